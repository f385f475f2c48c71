"""A journal in a file: durable, and shared by the processes of one machine."""

from __future__ import annotations

import json
import os
import sqlite3

from belated.core.events import Trimmed
from belated.core.ids import check_id, check_partitions
from belated.exceptions import JournalError, OwnerFenced
from belated.journals.arrivals import (
    Clock,
    check_partition,
)
from belated.journals.snapshots import (
    Snapshot,
    check_base,
    check_kept,
    check_position,
    checksums_of,
    damage,
    refuse_damaged_base,
    seal,
    tell_discarded,
)
from belated.journals.sqlite.file import SQLiteFile, open_file
from belated.journals.sqlite.log import SQLiteLog
from belated.journals.sqlite.rows import BANDITS, MARKS
from belated.journals.steady_clock import system_clock
from belated.journals.stored import as_stored, check_wanted


class SQLiteJournal(SQLiteLog):
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
        wanted = None if partitions is None else check_partitions(partitions)
        self._clock = clock or system_clock
        # By partition, the checksums of the pieces of the snapshot last saved or loaded here.
        self._known: dict[int, dict[str, bytes]] = {}
        # What is owned, by process too: what a fork inherits, it does not own.
        self._epochs: dict[tuple[int, int], int] = {}
        self._file = open_file(path, wait)
        self._place = repr(str(self._file.path))
        try:
            self._number, self._partitions = self._register(wanted)
        except BaseException:
            self._file.close()
            raise

    def identify(self, identity: dict[str, str]) -> dict[str, str]:
        """Store what the bandit is, if nothing is stored yet; give back what is."""

        def store(connection: sqlite3.Connection) -> str:
            connection.execute(
                "UPDATE bandit SET identity = ? WHERE number = ? AND identity IS NULL",
                (json.dumps(identity), self._number),
            )
            (stored,) = connection.execute(
                "SELECT identity FROM bandit WHERE number = ?", (self._number,)
            ).fetchone()
            return str(stored)

        return dict(json.loads(self._file.write(store)))

    def reidentify(self, identity: dict[str, str]) -> None:
        """Store what the bandit is, instead of what was stored."""
        with self._file.writing() as connection:
            connection.execute(
                "UPDATE bandit SET identity = ? WHERE number = ?",
                (json.dumps(identity), self._number),
            )

    def acquire(self, partition: int) -> int:
        """Become the owner of a partition; see :meth:`Shelf.acquire`."""
        check_partition(partition, self._partitions)
        with self._file.writing() as connection:
            epoch = self._epoch(connection, partition) + 1
            connection.execute(
                "REPLACE INTO owner (bandit, partition, epoch) VALUES (?, ?, ?)",
                (self._number, partition, epoch),
            )
        self._epochs[os.getpid(), partition] = epoch
        return epoch

    def save(self, snapshot: Snapshot) -> None:
        """Store a snapshot; see :meth:`Shelf.save`."""
        partition = snapshot.partition
        check_partition(partition, self._partitions)
        checksums = checksums_of(snapshot, self._known.get(partition, {}))
        whose = (self._number, partition)

        def store(connection: sqlite3.Connection) -> None:
            mine = self._epochs.get((os.getpid(), partition))
            if mine not in (None, self._epoch(connection, partition)):
                raise OwnerFenced(partition)
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

        self._file.write(store, sum(map(len, snapshot.pieces.values())))
        # Also where it was ignored: what may be kept next time is compared with what is stored.
        self._known[partition] = checksums

    def load(self, partition: int) -> Snapshot | None:
        """The stored snapshot, None if there is none; see :meth:`Shelf.load`."""
        check_partition(partition, self._partitions)
        whose = (self._number, partition)
        self._known.pop(partition, None)
        # One statement, so that no other process can save in between.
        rows = self._file.read(
            lambda connection: connection.execute(
                "SELECT position, fingerprint, seal, name, checksum, CAST(data AS BLOB) "
                "FROM snapshot LEFT JOIN piece USING (bandit, partition) "
                "WHERE bandit = ? AND partition = ?",
                whose,
            ).fetchall()
        )
        if not rows:
            return None
        snapshot, checksums, sealed = as_stored(partition, rows)
        reason = damage(snapshot, checksums, sealed)
        if reason is None and snapshot.position <= self.end(partition):
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
        tell_discarded(snapshot, reason)
        return None

    def base(self, partition: int) -> Snapshot | None:
        """Return what the records that were dropped came to; see :meth:`Shelf.base`."""
        check_partition(partition, self._partitions)
        rows = self._file.read(
            lambda connection: connection.execute(
                "SELECT position, fingerprint, seal, name, checksum, CAST(data AS BLOB) "
                "FROM base LEFT JOIN base_piece USING (bandit, partition, position) "
                "WHERE bandit = ? AND partition = ?",
                (self._number, partition),
            ).fetchall()
        )
        if not rows:
            return None
        base, checksums, sealed = as_stored(partition, rows)
        reason = damage(base, checksums, sealed)
        refuse_damaged_base(base, reason, self.end(partition), self._place)
        return base

    def rebase(self, base: Snapshot, trimmed: Trimmed, undone: int) -> None:
        """Store a base, and a record that says so; see :meth:`Shelf.rebase`."""
        partition, position = base.partition, base.position
        check_partition(partition, self._partitions)
        checksums, whose = checksums_of(base, {}), (self._number, partition)
        arrivals = self._arrivals([trimmed])
        # One at a time, so that appends come in between: what takes its place is one row.
        for name, data in base.pieces.items():
            with self._file.writing(len(data)) as connection:
                connection.execute(
                    "REPLACE INTO base_piece (bandit, partition, position, name, checksum, data) "
                    "VALUES (?, ?, ?, ?, ?, ?)",
                    (*whose, position, name, checksums[name], data),
                )
        with self._file.writing() as connection:
            saved = connection.execute(
                "SELECT position FROM snapshot WHERE bandit = ? AND partition = ?", whose
            ).fetchone()
            check_base(
                base,
                undone,
                before=self._start(connection, partition).position,
                saved=None if saved is None else saved[0],
                undone=len(self._marked(connection, partition, MARKS["undone"])),
            )
            self._append(connection, arrivals)
            connection.execute(
                "REPLACE INTO base (bandit, partition, position, recorded, fingerprint, seal) "
                "VALUES (?, ?, ?, ?, ?, ?)",
                (*whose, position, trimmed.recorded, base.fingerprint, seal(base, checksums)),
            )
        with self._file.writing() as connection:
            connection.execute(
                "DELETE FROM base_piece WHERE bandit = ? AND partition = ? AND position <> ?",
                (*whose, position),
            )

    def _epoch(self, connection: sqlite3.Connection, partition: int) -> int:
        row = connection.execute(
            "SELECT epoch FROM owner WHERE bandit = ? AND partition = ?", (self._number, partition)
        ).fetchone()
        return 0 if row is None else int(row[0])

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
                if found[0] >= BANDITS:
                    message = (
                        f"{self._place} already holds {BANDITS - 1} bandits: "
                        "put this one into another file"
                    )
                    raise JournalError(message)
        number, partitions = found
        check_wanted(self._bandit, self._place, wanted, partitions)
        return number, partitions
