"""A durable journal in a SQLite file, shared by processes on one machine."""

from __future__ import annotations

import os
import sqlite3
import zlib
from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from hashlib import blake2s
from pathlib import Path
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from belated.core.events import (
    Decision,
    Event,
    Opaque,
    Overwritten,
    Record,
    Settled,
    digest_of,
    encode,
)
from belated.core.ids import check_id, partition_of
from belated.exceptions import CorruptJournal, JournalError
from belated.journals.arrivals import (
    LAST_SETTLEMENTS,
    Clock,
    check_partition,
    check_range,
    erased_key_in,
    subject_of,
)
from belated.journals.bandits import open_bandit
from belated.journals.indexed import StoredJournal, T
from belated.journals.log import EMPTY, Requests, Tail
from belated.journals.outcomes import OutcomeMessage
from belated.journals.pages import ColumnPage
from belated.journals.shelf import ACTS, act_cells
from belated.journals.sqlite.cells import SQLiteCells, put_cells
from belated.journals.sqlite.file import (
    BANDITS,
    POSITIONS,
    LastRecord,
    SQLiteFile,
    open_file,
    place_of,
    split_place,
)
from belated.journals.steady_clock import system_clock

#: Marks of events without an id; marks of ids are not negative.
SETTLED, _OTHER = -1, -2
#: Script that creates the tables of outcomes.
_OUTCOMES = Path(__file__).with_name("outcomes.sql")


def keyed_hash(secret: bytes) -> blake2s:
    """Return the keyed hash for marks; copying it costs half as much as creating it."""
    return blake2s(key=secret, digest_size=4)


def mark_of(event: Event | Opaque, keyed: blake2s) -> int:
    """Return the number under which the records of an id are indexed; it need not be unique.

    >>> from belated.core.events import Settled
    >>> mark_of(Settled(0, 5), keyed_hash(b"secret"))
    -1
    """
    key = erased_key_in(event)
    if key is not None:
        return mark_of_key(key, keyed) | isinstance(event, Decision)
    return SETTLED if isinstance(event, Settled) else _OTHER


def mark_of_key(key: bytes, keyed: blake2s) -> int:
    """Return the mark of an erased key: 4 bytes of the key, 30 bits of a keyed hash, and a 0 bit.

    Generated ids begin with the time, so new index entries are on cached pages. The hash is keyed,
    because callers could otherwise choose ids with colliding hashes. Decisions set the last bit, so
    that they are found without reading the other records of the id.
    """
    hashed = keyed.copy()
    hashed.update(key)
    return int.from_bytes(key[:4]) << 31 | int.from_bytes(hashed.digest()) >> 2 << 1


def check_of(place: int, recorded: int, mark: int, data: bytes) -> int:
    """Return the checksum of a row, computed over all four values."""
    whole = place ^ recorded ^ mark
    return zlib.crc32(data, (whole ^ whole >> 32) & 0xFFFFFFFF)


def is_intact(row: _Row) -> bool:
    """Return whether the checksum of a row matches."""
    place, recorded, mark, check, _, data = row
    try:
        return check == check_of(place, recorded, mark, data)
    except TypeError:  # a flipped bit can change the type of a value
        return False


def is_sound(page: ColumnPage, marks: NDArray[np.int64], checks: NDArray[np.int64]) -> bool:
    """Return whether the checksums of a page match; the page's positions are row numbers."""
    whole = page.positions ^ page.recorded ^ marks
    crcs = page.crcs((whole ^ whole >> 32) & 0xFFFFFFFF)
    return bool(np.array_equal(crcs, checks))


_COLUMNS = 'place, recorded, mark, "check", CAST(digest AS BLOB), CAST(event AS BLOB)'
_Row = tuple[int, int, int, int, bytes, bytes]


class SQLiteJournal(StoredJournal):
    """A journal in a SQLite file; appended events are on stable storage when the call returns.

    Any number of threads and processes on one machine may open the file and append concurrently;
    commits are serialized. A file can contain several bandits, but one file per bandit is faster.
    The file must be on a local disk. Positions are consecutive and records have checksums, so that
    missing and changed records are detected.

    Args:
        path: Path of the file, created if it does not exist.
        bandit: Name of the bandit within the file.
        partitions: Number of partitions, a power of two that is fixed when the bandit is first
            opened. None means the existing number, or 1 for a new bandit.
        clock: Returns the time in microseconds since 1970; by default, the system clock.
        wait: Seconds to wait for other processes before raising :class:`JournalUnavailable`.

    >>> import tempfile
    >>> from belated.core.events import Reward
    >>> folder = tempfile.TemporaryDirectory()
    >>> path = f"{folder.name}/offers.db"
    >>> with SQLiteJournal(path, bandit="offers") as journal:
    ...     journal.append([Reward("a", 5, 1.0), Reward("b", 6, 0.0)])
    [1, 2]
    >>> with SQLiteJournal(path, bandit="offers") as journal:
    ...     [record.event.value for record in journal.read(partition=0, after=0, limit=10)]
    [1.0, 0.0]
    >>> folder.cleanup()
    """

    def __init__(
        self,
        path: str | os.PathLike[str] | SQLiteFile,
        *,
        bandit: str,
        partitions: int | None = None,
        clock: Clock | None = None,
        wait: float = 10.0,
    ) -> None:
        self._bandit = check_id(bandit, "the bandit's name")
        self._clock = clock or system_clock
        self._file = open_file(path, wait)
        self._place = repr(str(self._file.path))
        self._open_shelf(SQLiteCells(self._file, clock=clock))
        try:
            entry = open_bandit(self.cells, bandit, partitions, self._place, self._check_room)
        except BaseException:
            self._file.close()
            raise
        self._number, self._partitions = entry.number, entry.partitions
        self._keyed = keyed_hash(entry.secret)

    def close(self) -> None:
        """Close the file; any later call raises :class:`JournalClosed`."""
        self.cells.close()
        self._file.close()

    def _check_room(self, number: int) -> None:
        if number >= BANDITS:
            message = f"{self._place} already has {BANDITS - 1} bandits"
            raise JournalError(f"{message}: use another file for this bandit")

    def _write(self, act: Callable[[sqlite3.Connection], T], size: int = 0) -> T:
        return self._file.write(act, size)

    def _read(self, act: Callable[[sqlite3.Connection], T]) -> T:
        return self._file.read(act)

    def _is_last(self, connection: sqlite3.Connection, record: Record) -> bool:
        place = place_of(self._number, record.partition, record.position)
        last = connection.execute(
            "SELECT place, recorded, CAST(digest AS BLOB) FROM record "
            "WHERE place >= ? AND place <= ? ORDER BY place DESC LIMIT 1",
            (place, place_of(self._number, record.partition, POSITIONS - 1)),
        ).fetchone()
        return bool(last == (place, record.recorded, record.digest))

    def _index_acts(self, records: Sequence[Record]) -> None:
        """Do nothing, because :meth:`_insert` writes the cells."""

    def read(self, partition: int, after: int, limit: int) -> list[Record]:
        """Return the records after a position; see :meth:`Log.read`.

        Raises:
            CorruptJournal: records are missing.
            CorruptEvent: a record was changed after it was written.
        """
        base, rows = self._page(partition, after, limit)
        checked = ((row[0] - base, row[1], is_intact(row), row[4], row[5]) for row in rows)
        return self._records(partition, after, checked)

    def read_columns(self, partition: int, after: int, limit: int) -> ColumnPage:
        """Return records after a position as columns; see :meth:`ColumnLog.read_columns`."""
        base, rows = self._page(partition, after, limit)
        columns = zip(*rows, strict=True) if rows else [()] * 6
        places, stamps, marks, checks, digests, events = columns
        try:
            page = ColumnPage.of(places, stamps, digests, events)
            sound = is_sound(page, np.array(marks, np.int64), np.array(checks, np.int64))
        except (TypeError, ValueError, OverflowError):  # a flipped bit can change a type
            sound = False
        if sound and np.array_equal(page.positions, base + after + 1 + np.arange(len(rows))):
            return replace(page, positions=page.positions - base)
        return ColumnPage.of_records(self.read(partition, after, limit))  # raises the exact error

    def _page(self, partition: int, after: int, limit: int) -> tuple[int, list[_Row]]:
        check_range(partition, after, limit, self._partitions)
        base = self.row_offset(partition)
        select = (
            f"SELECT {_COLUMNS} FROM record WHERE place > ? AND place < ? ORDER BY place LIMIT ?"
        )
        values = base + after, base + POSITIONS, limit

        def scan(connection: sqlite3.Connection) -> list[_Row]:
            rows: list[_Row] = connection.execute(select, values).fetchall()
            end = self._tail(connection, partition).position if len(rows) < limit else 0
            if after + len(rows) < end:  # records were appended, or the scan ended too early
                rows = connection.execute(select, values).fetchall()
            last = after + len(rows)
            if len(rows) < limit and last < end and (not rows or rows[-1][0] == base + last):
                raise self._hidden(partition, last + 1)
            return rows

        return base, self._file.read(scan)

    def overwrite(self, keys: Sequence[bytes]) -> int:
        """Overwrite the events of erased decisions; see :meth:`UniqueLog.overwrite`.

        The old bytes are zeroed in the file, and the write-ahead log is truncated.
        """
        count = super().overwrite(keys)
        self._file.empty_log()
        return count

    def _replace(self, connection: sqlite3.Connection, record: Record, event: Overwritten) -> None:
        data, mark = encode(event), mark_of(record.event, self._keyed)
        place = place_of(self._number, record.partition, record.position)
        check = check_of(place, record.recorded, mark, data)
        connection.execute(
            'UPDATE record SET event = ?, "check" = ? WHERE place = ?', (data, check, place)
        )
        connection.execute("DELETE FROM request WHERE place = ?", (place,))

    def settlements(self, partition: int) -> list[Record]:
        """Return the most recent settlements of a partition, in order."""
        check_partition(partition, self._partitions)
        rows = self._file.read(
            lambda connection: self._marked(
                connection, partition, SETTLED, "DESC", LAST_SETTLEMENTS
            )
        )
        return [self._record_of(row) for row in sorted(rows)]

    def requests(self, partition: int, positions: Sequence[int]) -> dict[int, bytes]:
        """Return the stored requests of decisions, by position."""
        check_partition(partition, self._partitions)
        base = self.row_offset(partition)
        select = "SELECT CAST(request AS BLOB) FROM request WHERE place = ?"
        rows = self._file.read(
            lambda connection: {
                n: connection.execute(select, (base + n,)).fetchone() for n in positions
            }
        )
        return {position: row[0] for position, row in rows.items() if row is not None}

    def _drop(self, connection: sqlite3.Connection, partition: int, start: int, limit: int) -> int:
        base = self.row_offset(partition)
        places = connection.execute(
            "SELECT place FROM record WHERE place > ? AND place <= ? ORDER BY place LIMIT ?",
            (base, base + start, limit),
        ).fetchall()
        for table in ("record", "request"):
            connection.executemany(f"DELETE FROM {table} WHERE place = ?", places)
        if connection.execute("SELECT 1 FROM sqlite_master WHERE name = 'outcome'").fetchone():
            connection.execute(
                "DELETE FROM outcome WHERE rowid IN (SELECT rowid FROM outcome "
                "WHERE bandit = ? AND partition = ? AND version <= ? ORDER BY version LIMIT ?)",
                (self._bandit, partition, start, limit),
            )
        return len(places)

    def put_outcomes(self, partition: int, outcomes: Sequence[OutcomeMessage]) -> None:
        """Store outcomes in the table ``outcome``; see :meth:`OutcomeLog.put_outcomes`."""
        rows = [
            (self._bandit, outcome.id, partition, outcome.version, outcome.data.decode())
            for outcome in outcomes
        ]

        def write(connection: sqlite3.Connection) -> None:
            for statement in _OUTCOMES.read_text(encoding="utf-8").split(";\n"):
                connection.execute(statement)
            connection.executemany(
                "INSERT INTO outcome (bandit, id, partition, version, message) "
                "VALUES (?, ?, ?, ?, ?) ON CONFLICT (bandit, id) DO UPDATE "
                "SET version = excluded.version, message = excluded.message "
                "WHERE version < excluded.version",
                rows,
            )

        self._file.write(write, sum(len(outcome.data) for outcome in outcomes))

    def row_offset(self, partition: int) -> int:
        """Return the row number before the first record of a partition."""
        return place_of(self._number, partition, 0)

    def _find(
        self, connection: sqlite3.Connection, keys: Collection[bytes], others: int | None = None
    ) -> list[Record]:
        rows: list[_Row] = []
        marks = {  # a set, since ids may share a mark
            (mark_of_key(key, self._keyed), partition_of(key, self._partitions)) for key in keys
        }
        for mark, home in marks:
            rows += self._marked(connection, home, mark | 1)
            rows += self._marked(connection, home, mark, limit=others)
        return [r for r in map(self._record_of, sorted(rows)) if erased_key_in(r.event) in keys]

    def _marked(
        self,
        connection: sqlite3.Connection,
        partition: int,
        mark: int,
        order: Literal["ASC", "DESC"] = "ASC",
        limit: int | None = None,
    ) -> list[_Row]:
        """Return the first or last rows of a partition with a mark; all rows if limit is None."""
        base = self.row_offset(partition)
        return connection.execute(
            f"SELECT {_COLUMNS} FROM record WHERE mark = ? AND place > ? AND place < ? "
            f"ORDER BY place {order} LIMIT ?",
            (mark, base, base + POSITIONS, -1 if limit is None else limit),
        ).fetchall()

    def _record_of(self, row: _Row) -> Record:
        """Return the record of a row that was found by its mark."""
        partition, position = split_place(row[0])
        checked = [(position, row[1], is_intact(row), row[4], row[5])]
        return self._records(partition, position - 1, checked)[0]

    def _tail(self, connection: sqlite3.Connection, partition: int) -> Tail:
        """Return the position and timestamp of a partition's last record.

        A damaged row number misleads SQLite's binary searches, which then miss later rows.
        Therefore, both the last row and the row after it are checked.

        Raises:
            CorruptJournal: records after the last one are unreachable.
        """
        base = self.row_offset(partition)
        # Use one statement to read both rows consistently.
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
            if not is_intact(last):
                before = "SELECT max(place) FROM record WHERE place < ?"
                (place,) = connection.execute(before, (last[0],)).fetchone()
                expected = max(place or base, base) + 1
                if expected != last[0]:
                    raise self._hidden(partition, expected - base)
        if rows and (rows[0][0] < base + POSITIONS or not is_intact(rows[0])):
            raise self._hidden(partition, tail.position + 1)
        return tail

    def _hidden(self, partition: int, position: int) -> CorruptJournal:
        where = self._where(partition, position)
        return CorruptJournal(f"{where} is unreachable because a row is damaged: restore a backup")

    def _insert(
        self,
        connection: sqlite3.Connection,
        records: list[Record],
        data: Sequence[bytes],
        requests: Requests | None,
    ) -> list[Record]:
        """Write records; return the records with their digests."""
        rows, inserted = [], []
        for record, data_of_event in zip(records, data, strict=True):
            partition, position, recorded = record.partition, record.position, record.recorded
            place, event = place_of(self._number, partition, position), record.event
            mark, digest = mark_of(event, self._keyed), digest_of(data_of_event)
            check = check_of(place, recorded, mark, data_of_event)
            rows.append((place, recorded, mark, check, digest, data_of_event))
            inserted.append(Record(partition, position, recorded, event, digest))
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
        puts: dict[str, bytes] = {}
        for row, record in zip(rows, inserted, strict=True):
            if row[2] < 0 and subject_of(record.event) in ACTS:  # the mark is cheaper to test
                puts |= act_cells(self._bandit, record)
        if puts:
            put_cells(connection, puts, self._clock())
        return inserted
