"""The log of a bandit in a file of SQLite."""

from __future__ import annotations

import sqlite3
from collections.abc import Collection, Iterable, Sequence
from dataclasses import replace

import numpy as np

from belated.core.events import Event, Record, digest_of, encode
from belated.core.ids import erased_key_of, partition_of
from belated.exceptions import CorruptJournal
from belated.journals.acts import ACTS, act_cell, packed
from belated.journals.arrivals import (
    Clock,
    arrange,
    arrange_imported,
    check_partition,
    check_range,
    check_requests,
    route,
    stamps_for,
)
from belated.journals.columns import ColumnPage
from belated.journals.log import EMPTY, Appended, AppendedAfter, Requests, Tail
from belated.journals.lookups import (
    LAST_SETTLEMENTS,
    append_first,
    erased_key_in,
    of_kept,
    subject_of,
    to_overwrite,
)
from belated.journals.sqlite.cells import put_cells
from belated.journals.sqlite.end import LastRecord
from belated.journals.sqlite.file import SQLiteFile
from belated.journals.sqlite.rows import (
    POSITIONS,
    SETTLED,
    check_of,
    is_intact,
    is_sound,
    mark_of,
    mark_of_key,
    place_of,
    split_place,
)
from belated.journals.stored import StoredJournal

_COLUMNS = 'place, recorded, mark, "check", CAST(digest AS BLOB), CAST(event AS BLOB)'
#: About how many bytes an event takes.
EVENT_BYTES = 256
_Row = tuple[int, int, int, int, bytes, bytes]
#: The partition of an event, the event, and its bytes.
_Arrival = tuple[int, Event, bytes]


class SQLiteLog(StoredJournal):
    """What is appended, and read back by position or by id; see :class:`SQLiteJournal`."""

    _file: SQLiteFile
    _number: int
    _clock: Clock

    def append(
        self,
        events: Sequence[Event],
        *,
        recorded: Sequence[int] | None = None,
        requests: Requests | None = None,
    ) -> list[int]:
        """Keep events, all or none; see :meth:`Log.append`."""
        arrivals = self._arrivals(events)
        check_requests(events, requests)
        found = self._file.write(
            lambda connection: self._append(connection, arrivals, recorded, requests),
            _size(arrivals, requests),
        )
        return [record.position for record in found]

    def append_after(
        self, events: Sequence[Event], last: Record, *, requests: Requests | None = None
    ) -> AppendedAfter:
        """Keep events, and give their records; see :meth:`FollowedLog.append_after`."""
        arrivals = self._arrivals(events)
        check_requests(events, requests)
        place = place_of(self._number, last.partition, last.position)

        def append(connection: sqlite3.Connection) -> AppendedAfter:
            before = connection.execute(
                "SELECT place, recorded, CAST(digest AS BLOB) FROM record "
                "WHERE place >= ? AND place < ? ORDER BY place DESC LIMIT 1",
                (place, place_of(self._number, last.partition, POSITIONS - 1)),
            ).fetchone()
            if before != (place, last.recorded, last.digest):
                found = self._append(connection, arrivals, None, requests)
                return AppendedAfter([record.position for record in found], [])
            stamp = max(self._clock(), last.recorded)
            records = [
                Record(last.partition, position, stamp, event)
                for position, event in enumerate(events, last.position + 1)
            ]
            found = self._insert(connection, records, [data for _, _, data in arrivals], requests)
            return AppendedAfter([record.position for record in found], found)

        return self._file.write(append, _size(arrivals, requests))

    def append_unique(
        self,
        events: Sequence[Event],
        ids: Collection[str],
        requests: Requests | None = None,
    ) -> Appended:
        """Keep events, and no second decision; see :meth:`UniqueLog.append_unique`."""
        check_requests(events, requests)
        size = sum(map(len, requests.values())) if requests else 0
        return self._file.write(
            lambda connection: self.append_within(connection, events, ids, requests),
            size + EVENT_BYTES * len(events),
        )

    def append_within(
        self,
        connection: sqlite3.Connection,
        events: Sequence[Event],
        ids: Collection[str],
        requests: Requests | None,
    ) -> Appended:
        """The same within a transaction that others append in too."""
        arrivals = self._arrivals(events)
        return append_first(
            events,
            ids,
            self._of(connection, {erased_key_of(id) for id in ids}),
            lambda kept: [
                record.position
                for record in self._append(
                    connection, [arrivals[n] for n in kept], requests=of_kept(requests, kept)
                )
            ],
        )

    def import_records(
        self, records: Iterable[Record], *, requests: Requests | None = None
    ) -> None:
        """Take over records with their stamps; see :meth:`Log.import_records`."""
        taken = list(records)
        data = [encode(record.event) for record in taken]
        check_requests([record.event for record in taken], requests)
        with self._file.writing(sum(map(len, data))) as connection:
            arranged = arrange_imported(
                taken, self._partitions, lambda p: self._tail(connection, p)
            )
            self._insert(connection, arranged, data, requests)

    def read(self, partition: int, after: int, limit: int) -> list[Record]:
        """The records beyond a position; see :meth:`Log.read`.

        Raises:
            CorruptJournal: records are missing.
            CorruptEvent: a record was changed after it was written.
        """
        base, rows = self._page(partition, after, limit)
        found = (
            (place - base, recorded, is_intact(place, recorded, mark, check, data), digest, data)
            for place, recorded, mark, check, digest, data in rows
        )
        return self._records(partition, after, found)

    def read_columns(self, partition: int, after: int, limit: int) -> ColumnPage:
        """Return the records beyond a position as columns; see :meth:`ColumnLog.read_columns`."""
        base, rows = self._page(partition, after, limit)
        columns = zip(*rows, strict=True) if rows else [()] * 6
        places, stamps, marks, checks, digests, events = columns
        try:
            page = ColumnPage.of(places, stamps, digests, events)
            sound = is_sound(page, np.array(marks, np.int64), np.array(checks, np.int64))
        except (TypeError, ValueError, OverflowError):  # a changed bit can change a type too
            sound = False
        if sound and np.array_equal(page.positions, base + after + 1 + np.arange(len(rows))):
            return replace(page, positions=page.positions - base)
        return ColumnPage.of_records(self.read(partition, after, limit))  # which says what is wrong

    def _page(self, partition: int, after: int, limit: int) -> tuple[int, list[_Row]]:
        check_range(partition, after, limit, self._partitions)
        base = self.place(partition)
        select = (
            f"SELECT {_COLUMNS} FROM record WHERE place > ? AND place < ? ORDER BY place LIMIT ?"
        )
        wanted = base + after, base + POSITIONS, limit

        def scan(connection: sqlite3.Connection) -> list[_Row]:
            rows: list[_Row] = connection.execute(select, wanted).fetchall()
            end = self._tail(connection, partition).position if len(rows) < limit else 0
            if after + len(rows) < end:  # records were appended since, or the scan ended too early
                rows = connection.execute(select, wanted).fetchall()
            last = after + len(rows)
            if len(rows) < limit and last < end and (not rows or rows[-1][0] == base + last):
                raise self._hidden(partition, last + 1)
            return rows

        return base, self._file.read(scan)

    def records_of(self, ids: Sequence[str]) -> list[Record]:
        """Return all records of these ids, by partition and position: found by an index."""
        return self._file.read(lambda connection: self._of(connection, {*map(erased_key_of, ids)}))

    def overwrite(self, keys: Sequence[bytes]) -> int:
        """Overwrite the events of erased decisions; see :meth:`UniqueLog.overwrite`.

        The old bytes are zeroed in the file, and the write-ahead log is emptied.
        """
        self._check_erased(keys)
        with self._file.writing() as connection:
            found = to_overwrite(self._of(connection, set(keys)))
            for record, event in found:
                data, mark = encode(event), mark_of(event)
                place = place_of(self._number, record.partition, record.position)
                check = check_of(place, record.recorded, mark, data)
                connection.execute(
                    'UPDATE record SET event = ?, "check" = ? WHERE place = ?', (data, check, place)
                )
                connection.execute("DELETE FROM request WHERE place = ?", (place,))
        self._file.empty_log()
        return len(found)

    def settlements(self, partition: int) -> list[Record]:
        """Return the last records that settled a partition, in order."""
        check_partition(partition, self._partitions)
        rows = self._file.read(
            lambda connection: self._marked(connection, partition, SETTLED, LAST_SETTLEMENTS)
        )
        return [self._found(row) for row in sorted(rows)]

    def requests(self, partition: int, positions: Sequence[int]) -> dict[int, bytes]:
        """Return what decisions were chosen from, by position, where it was kept."""
        check_partition(partition, self._partitions)
        base = self.place(partition)
        select = "SELECT CAST(request AS BLOB) FROM request WHERE place = ?"
        found = self._file.read(
            lambda connection: {
                one: connection.execute(select, (base + one,)).fetchone() for one in positions
            }
        )
        return {position: row[0] for position, row in found.items() if row is not None}

    def end(self, partition: int) -> int:
        """The position of the last record, 0 if there is none."""
        check_partition(partition, self._partitions)
        return self._file.read(lambda connection: self._tail(connection, partition)).position

    def last_stamp(self, partition: int) -> int:
        """The stamp of the last record, 0 if there is none."""
        check_partition(partition, self._partitions)
        return self._file.read(lambda connection: self._tail(connection, partition)).stamp

    def drop(self, partition: int, limit: int) -> int:
        """Drop some of the records up to the start; see :meth:`Log.drop`."""
        check_partition(partition, self._partitions)
        base = self.place(partition)
        last = base + self.start(partition).position
        with self._file.writing() as connection:
            places = connection.execute(
                "SELECT place FROM record WHERE place > ? AND place <= ? ORDER BY place LIMIT ?",
                (base, last, limit),
            ).fetchall()
            connection.executemany("DELETE FROM record WHERE place = ?", places)
            connection.executemany("DELETE FROM request WHERE place = ?", places)
        return len(places)

    def place(self, partition: int) -> int:
        """Return the place before the first record of a partition."""
        return place_of(self._number, partition, 0)

    def now(self) -> int:
        """Return the time of the clock that stamps records, in microseconds since 1970."""
        self._file.check_open()
        return self._clock()

    def _arrivals(self, events: Sequence[Event]) -> list[_Arrival]:
        return [(route(event, self._partitions), event, encode(event)) for event in events]

    def _append(
        self,
        connection: sqlite3.Connection,
        arrivals: Sequence[_Arrival],
        recorded: Sequence[int] | None = None,
        requests: Requests | None = None,
    ) -> list[Record]:
        # The clock is read under the lock, so that stamps are in the order of positions.
        stamps = stamps_for(arrivals, recorded, self._clock)
        records = arrange(
            ((home, now, event) for (home, event, _), now in zip(arrivals, stamps, strict=True)),
            lambda partition: self._tail(connection, partition),
        )
        return self._insert(connection, records, [data for _, _, data in arrivals], requests)

    def _of(self, connection: sqlite3.Connection, keys: Collection[bytes]) -> list[Record]:
        """Return all records of the ids with these erased keys."""
        wanted = sorted({(partition_of(key, self._partitions), mark_of_key(key)) for key in keys})
        rows = [row for one in wanted for row in self._marked(connection, *one)]
        return [one for one in map(self._found, sorted(rows)) if erased_key_in(one.event) in keys]

    def _marked(
        self, connection: sqlite3.Connection, partition: int, mark: int, limit: int = -1
    ) -> list[_Row]:
        """The last rows of a partition under a mark; -1 for all of them."""
        base = self.place(partition)
        return connection.execute(
            f"SELECT {_COLUMNS} FROM record WHERE mark = ? AND place > ? AND place < ? "
            "ORDER BY place DESC LIMIT ?",
            (mark, base, base + POSITIONS, limit),
        ).fetchall()

    def _found(self, row: _Row) -> Record:
        """A record that was not looked up by its position."""
        place, recorded, mark, check, digest, data = row
        partition, position = split_place(place)
        intact = is_intact(place, recorded, mark, check, data)
        found = [(position, recorded, intact, digest, data)]
        return self._records(partition, position - 1, found)[0]

    def _tail(self, connection: sqlite3.Connection, partition: int) -> Tail:
        """Return the last record of a partition.

        A damaged row number misleads the binary searches of SQLite, which then do not find the rows
        behind it. So the last row and the one that follows it are examined.

        Raises:
            CorruptJournal: records behind the last one are hidden.
        """
        base = self.place(partition)
        # One statement: both rows are of the same state of the file.
        rows: list[_Row] = connection.execute(
            f"SELECT {_COLUMNS} FROM record WHERE place >= coalesce("
            "(SELECT max(place) FROM record WHERE place > ? AND place < ?), ?) "
            "ORDER BY place LIMIT 2",
            (base, base + POSITIONS, base),
        ).fetchall()
        tail = EMPTY
        if rows and base < rows[0][0] < base + POSITIONS:
            last = rows.pop(0)
            tail = Tail(last[0] - base, last[1])
            if not _is_whole(last):
                before = "SELECT max(place) FROM record WHERE place < ?"
                (place,) = connection.execute(before, (last[0],)).fetchone()
                expected = max(place or base, base) + 1
                if expected != last[0]:
                    raise self._hidden(partition, expected - base)
        if rows and (rows[0][0] < base + POSITIONS or not _is_whole(rows[0])):
            raise self._hidden(partition, tail.position + 1)
        return tail

    def _hidden(self, partition: int, position: int) -> CorruptJournal:
        where = self._where(partition, position)
        return CorruptJournal(f"{where} is out of reach, as a row is damaged: restore a backup")

    def _insert(
        self,
        connection: sqlite3.Connection,
        records: list[Record],
        data: list[bytes],
        requests: Requests | None,
    ) -> list[Record]:
        """Write records; returns them with their digests."""
        rows, written = [], []
        for record, event in zip(records, data, strict=True):
            place = place_of(self._number, record.partition, record.position)
            mark, digest = mark_of(record.event), digest_of(event)
            check = check_of(place, record.recorded, mark, event)
            rows.append((place, record.recorded, mark, check, digest, event))
            written.append(
                Record(record.partition, record.position, record.recorded, record.event, digest)
            )
        connection.executemany(
            'INSERT INTO record (place, recorded, mark, "check", digest, event) '
            "VALUES (?, ?, ?, ?, ?, ?)",
            rows,
        )
        if requests:
            connection.executemany(
                "REPLACE INTO request (place, request) VALUES (?, ?)",
                [(rows[n][0], request) for n, request in requests.items()],
            )
        if rows:
            self._file.note_last(LastRecord(place, digest))
        acts = [record for record in written if subject_of(record.event) in ACTS]
        if acts:
            puts = {act_cell(self._bandit, act): packed(act) for act in acts}
            put_cells(connection, puts, self._clock())
        return written


def _is_whole(row: _Row) -> bool:
    """Whether a row is as it was written."""
    place, recorded, mark, check, _, data = row
    return is_intact(place, recorded, mark, check, data)


def _size(arrivals: Sequence[_Arrival], requests: Requests | None) -> int:
    size = sum(len(data) for _, _, data in arrivals)
    return size + sum(map(len, requests.values())) if requests else size
