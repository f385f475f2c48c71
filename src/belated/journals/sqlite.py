"""A journal in a file: durable, and shared by the processes of one machine."""

from __future__ import annotations

import json
import os
import sqlite3
import zlib
from collections.abc import Iterable, Sequence

from belated.events import Event, Record, encode
from belated.exceptions import JournalError
from belated.ids import check_id, check_partitions
from belated.journals.arrivals import (
    EMPTY,
    Clock,
    Tail,
    arrange,
    arrange_carried,
    check_partition,
    check_range,
    route,
    stamps_for,
    system_clock,
)
from belated.journals.snapshots import (
    Snapshot,
    check_kept,
    check_position,
    checksums_of,
    damage,
    seal,
    warn_discarded,
)
from belated.journals.sqlite_file import SQLiteFile
from belated.journals.stored import StoredJournal, as_stored

# A place is one number: 11 bits of bandit, 12 of partition, 40 of position.
_POSITIONS = 1 << 40
_PARTITIONS = 1 << 12
_BANDITS = 1 << 11


class SQLiteJournal(StoredJournal):
    """Keeps events in a file of SQLite, each append on stable storage when it returns.

    Any number of threads and processes of one machine may have the file open and append at the same
    time; they take turns. One file can hold several bandits, which then take turns too: a file for
    each is faster. The file must lie on a local disk. Positions have no gaps, so a record that is
    missing is noticed, and so is one that was changed.

    Args:
        path: the file; made if it is not there.
        bandit: the name of the bandit within the file.
        partitions: a power of two, fixed when the bandit is first opened; None for as many as there
            are, and 1 in a new one.
        clock: gives the time in microseconds since 1970; None for the system's.
        wait: how many seconds to wait for other processes before :class:`JournalUnavailable`.

    >>> import tempfile
    >>> from belated.events import Reward
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
        path: str | os.PathLike[str],
        *,
        bandit: str,
        partitions: int | None = None,
        clock: Clock | None = None,
        wait: float = 10.0,
    ) -> None:
        self._bandit = check_id(bandit, "the bandit's name")
        wanted = None if partitions is None else check_partitions(partitions)
        self._clock = clock or system_clock
        # By partition, the checksums of the pieces of the snapshot last saved or loaded here.
        self._known: dict[int, dict[str, bytes]] = {}
        self._file = SQLiteFile(path, wait)
        self._place = repr(str(self._file.path))
        try:
            self._number, self._partitions = self._register(wanted)
        except BaseException:
            self._file.close()
            raise

    def append(
        self, events: Sequence[Event], *, recorded: Sequence[int] | None = None
    ) -> list[int]:
        """Keep events, all or none; see :meth:`Journal.append`."""
        partitions = [route(event, self._partitions) for event in events]
        data = [encode(event) for event in events]
        with self._file.writing(sum(map(len, data))) as connection:
            # The clock is read under the lock, so that stamps are in the order of positions.
            stamps = stamps_for(events, recorded, self._clock)
            records = arrange(
                zip(partitions, stamps, events, strict=True), lambda p: self._tail(connection, p)
            )
            self._insert(connection, records, data)
        return [record.position for record in records]

    def carry(self, records: Iterable[Record]) -> None:
        """Take over records with their stamps; see :meth:`Journal.carry`."""
        taken = list(records)
        data = [encode(record.event) for record in taken]
        with self._file.writing(sum(map(len, data))) as connection:
            arranged = arrange_carried(taken, self._partitions, lambda p: self._tail(connection, p))
            self._insert(connection, arranged, data)

    def read(self, partition: int, after: int, limit: int) -> list[Record]:
        """The records beyond a position; see :meth:`Journal.read`.

        Raises:
            CorruptJournal: records are missing.
            CorruptEvent: a record was changed after it was written.
        """
        check_range(partition, after, limit, self._partitions)
        base = self._key(partition, 0)
        with self._file.reading() as connection:
            rows = connection.execute(
                'SELECT place, recorded, "check", CAST(event AS BLOB) FROM record '
                "WHERE place > ? AND place < ? ORDER BY place LIMIT ?",
                (base + after, base + _POSITIONS, limit),
            ).fetchall()
        found = (
            (place - base, recorded, _is_intact(place, recorded, check, data), data)
            for place, recorded, check, data in rows
        )
        return self._records(partition, after, found)

    def end(self, partition: int) -> int:
        """The position of the last record, 0 if there is none."""
        check_partition(partition, self._partitions)
        with self._file.reading() as connection:
            return self._tail(connection, partition).position

    def last_stamp(self, partition: int) -> int:
        """The stamp of the last record, 0 if there is none."""
        check_partition(partition, self._partitions)
        with self._file.reading() as connection:
            return self._tail(connection, partition).stamp

    def identify(self, identity: dict[str, str]) -> dict[str, str]:
        """Store what the bandit is, if nothing is stored yet; give back what is."""
        with self._file.writing() as connection:
            connection.execute(
                "UPDATE bandit SET identity = ? WHERE number = ? AND identity IS NULL",
                (json.dumps(identity), self._number),
            )
            (stored,) = connection.execute(
                "SELECT identity FROM bandit WHERE number = ?", (self._number,)
            ).fetchone()
        return dict(json.loads(stored))

    def reidentify(self, identity: dict[str, str]) -> None:
        """Store what the bandit is, instead of what was stored."""
        with self._file.writing() as connection:
            connection.execute(
                "UPDATE bandit SET identity = ? WHERE number = ?",
                (json.dumps(identity), self._number),
            )

    def save(self, snapshot: Snapshot) -> None:
        """Store a snapshot; see :meth:`Journal.save`."""
        partition = snapshot.partition
        check_partition(partition, self._partitions)
        checksums = checksums_of(snapshot, self._known.get(partition, {}))
        whose = (self._number, partition)
        given = snapshot.pieces.items()
        with self._file.writing(sum(len(data) for _, data in given)) as connection:
            check_position(snapshot, self._tail(connection, partition).position)
            before = connection.execute(
                "SELECT position FROM snapshot WHERE bandit = ? AND partition = ?", whose
            ).fetchone()
            if before is None or snapshot.position >= before[0]:
                stored = connection.execute(
                    "SELECT name, checksum FROM piece WHERE bandit = ? AND partition = ?", whose
                ).fetchall()
                check_kept(snapshot, checksums, dict(stored))
                connection.executemany(
                    "DELETE FROM piece WHERE bandit = ? AND partition = ? AND name = ?",
                    [(*whose, name) for name, _ in stored if name not in snapshot.kept],
                )
                connection.executemany(
                    "INSERT INTO piece (bandit, partition, name, checksum, data) "
                    "VALUES (?, ?, ?, ?, ?)",
                    (
                        (*whose, name, checksums[name], data)
                        for name, data in snapshot.pieces.items()
                    ),
                )
                connection.execute(
                    "REPLACE INTO snapshot (bandit, partition, position, fingerprint, seal) "
                    "VALUES (?, ?, ?, ?, ?)",
                    (*whose, snapshot.position, snapshot.fingerprint, seal(snapshot, checksums)),
                )
        # Also where it was ignored: what may be kept next time is compared with what is stored.
        self._known[partition] = checksums

    def load(self, partition: int) -> Snapshot | None:
        """The stored snapshot, None if there is none; see :meth:`Journal.load`."""
        check_partition(partition, self._partitions)
        whose = (self._number, partition)
        self._known.pop(partition, None)
        with self._file.reading() as connection:
            end = self._tail(connection, partition).position
            # One statement, so that no other process can save in between.
            rows = connection.execute(
                "SELECT position, fingerprint, seal, name, checksum, CAST(data AS BLOB) "
                "FROM snapshot LEFT JOIN piece USING (bandit, partition) "
                "WHERE bandit = ? AND partition = ?",
                whose,
            ).fetchall()
        if not rows:
            return None
        snapshot, checksums, sealed = as_stored(partition, rows)
        reason = damage(snapshot, checksums, sealed, end)
        if reason is None:
            self._known[partition] = checksums
            return snapshot
        with self._file.writing() as connection:
            # Unless another process has saved a new one since.
            removed = connection.execute(
                "DELETE FROM snapshot WHERE bandit = ? AND partition = ? AND seal = ?",
                (*whose, sealed),
            )
            if removed.rowcount:
                connection.execute("DELETE FROM piece WHERE bandit = ? AND partition = ?", whose)
        warn_discarded(partition, reason)
        return None

    def close(self) -> None:
        """Close the file; any later call raises :class:`JournalClosed`."""
        self._file.close()

    def _register(self, wanted: int | None) -> tuple[int, int]:
        """The number of the bandit in the file, and that of its partitions."""
        find = "SELECT number, partitions FROM bandit WHERE name = ?"
        with self._file.reading() as connection:
            found = connection.execute(find, (self._bandit,)).fetchone()
        if found is None:
            with self._file.writing() as connection:
                connection.execute(
                    "INSERT OR IGNORE INTO bandit (name, partitions) VALUES (?, ?)",
                    (self._bandit, wanted or 1),
                )
                found = connection.execute(find, (self._bandit,)).fetchone()
                if found[0] >= _BANDITS:
                    message = (
                        f"{self._place} already holds {_BANDITS - 1} bandits: "
                        "put this one into another file"
                    )
                    raise JournalError(message)
        number, partitions = found
        self._check_wanted(wanted, partitions)
        return number, partitions

    def _key(self, partition: int, position: int) -> int:
        return (self._number * _PARTITIONS + partition) * _POSITIONS + position

    def _tail(self, connection: sqlite3.Connection, partition: int) -> Tail:
        base = self._key(partition, 0)
        row = connection.execute(
            "SELECT place, recorded FROM record WHERE place > ? AND place < ? "
            "ORDER BY place DESC LIMIT 1",
            (base, base + _POSITIONS),
        ).fetchone()
        return EMPTY if row is None else Tail(row[0] - base, row[1])

    def _insert(
        self, connection: sqlite3.Connection, records: list[Record], data: list[bytes]
    ) -> None:
        rows = []
        for record, event in zip(records, data, strict=True):
            place = self._key(record.partition, record.position)
            rows.append((place, record.recorded, _check(place, record.recorded, event), event))
        connection.executemany(
            'INSERT INTO record (place, recorded, "check", event) VALUES (?, ?, ?, ?)', rows
        )


def _check(place: int, recorded: int, data: bytes) -> int:
    # The sum starts from the two numbers, so that a changed bit in any of the three shows.
    return zlib.crc32(data, (place ^ place >> 32 ^ recorded ^ recorded >> 32) & 0xFFFFFFFF)


def _is_intact(place: int, recorded: int, check: int, data: bytes) -> bool:
    try:
        return check == _check(place, recorded, data)
    except TypeError:  # a changed bit can change the type of a value too
        return False
