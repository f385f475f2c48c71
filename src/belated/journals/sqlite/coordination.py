"""The lease, the published model and the workers of a bandit, in a file of SQLite."""

from __future__ import annotations

import json
import os
import sqlite3
from collections.abc import Collection, Sequence

from belated.core.ids import check_id
from belated.exceptions import OwnerFenced
from belated.journals.arrivals import Clock
from belated.journals.leases import granted_epoch
from belated.journals.shelf import Leader
from belated.journals.sqlite.file import SQLiteFile, open_file
from belated.journals.steady_clock import system_clock
from belated.journals.stored import no_such_bandit
from belated.journals.workers import Claim, Known, SentSums, claimed

#: Only files whose bandits have several learners have these tables, in whatever release it began.
_WORKERS = """
CREATE TABLE IF NOT EXISTS worker (
    bandit     INTEGER NOT NULL REFERENCES bandit,
    name       TEXT NOT NULL,
    until      INTEGER NOT NULL, -- microseconds since 1970
    partitions TEXT NOT NULL, -- JSON
    PRIMARY KEY (bandit, name)
)
"""
_SUMS = """
CREATE TABLE IF NOT EXISTS sums (
    bandit    INTEGER NOT NULL REFERENCES bandit,
    partition INTEGER NOT NULL,
    epoch     INTEGER NOT NULL,
    position  INTEGER NOT NULL,
    center    INTEGER NOT NULL,
    data      BLOB NOT NULL,
    PRIMARY KEY (bandit, partition)
)
"""


class SQLiteCoordinationStore:
    """Where learners agree on who leads, and deciders find the model.

    It has a connection of its own. Leases end by the clock of this machine, which all processes
    that have the file open share.

    Args:
        path: The file; a journal has made it before.
        bandit: Name of the bandit.
        clock: Gives the time in microseconds since 1970; None for the system's.
        wait: Seconds to wait for other processes before :class:`JournalUnavailable`.
    """

    def __init__(
        self,
        path: str | os.PathLike[str] | SQLiteFile,
        *,
        bandit: str,
        clock: Clock | None = None,
        wait: float = 10.0,
    ) -> None:
        self._clock = clock or system_clock
        self._file = open_file(path, wait)
        try:
            with self._file.reading() as connection:
                found = connection.execute(
                    "SELECT number FROM bandit WHERE name = ?",
                    (check_id(bandit, "the bandit's name"),),
                ).fetchone()
            if found is None:
                raise no_such_bandit(bandit, repr(str(self._file.path)))
            self._number: int = found[0]
        except BaseException:
            self._file.close()
            raise

    def acquire_lease(self, holder: str, seconds: float) -> int | None:
        """Become the leader, or stay it; see :meth:`CoordinationStore.acquire_lease`."""
        with self._file.writing() as connection:
            now = self._clock()  # under the lock of writers, so that no one else reads it meanwhile
            epoch = granted_epoch(holder, *self._lease(connection), now)
            if epoch is not None:
                connection.execute(
                    "REPLACE INTO leader (bandit, holder, epoch, until) VALUES (?, ?, ?, ?)",
                    (self._number, holder, epoch, now + round(seconds * 1e6)),
                )
        return epoch

    def release_lease(self, holder: str) -> None:
        """End the lease of this holder now, so that another need not wait."""
        with self._file.writing() as connection:
            connection.execute(
                "UPDATE leader SET until = 0 WHERE bandit = ? AND holder = ?",
                (self._number, holder),
            )

    def leader(self) -> Leader | None:
        """Return who leads now, None if no one does."""
        with self._file.reading() as connection:
            holder, epoch, until = self._lease(connection)
        left = until - self._clock()
        return Leader(holder, epoch, left / 1e6) if left > 0 else None

    def publish(self, data: bytes, epoch: int) -> int:
        """Store a model in place of the last; see :meth:`CoordinationStore.publish`."""
        with self._file.writing(len(data)) as connection:
            _, current, _ = self._lease(connection)
            if not current or epoch != current:
                raise OwnerFenced(None)
            (last,) = connection.execute(
                "SELECT coalesce(max(number), 0) FROM model WHERE bandit = ?", (self._number,)
            ).fetchone()
            connection.execute(
                "REPLACE INTO model (bandit, number, data) VALUES (?, ?, ?)",
                (self._number, last + 1, data),
            )
        return int(last) + 1

    def published(self, after: int = 0) -> tuple[int, bytes] | None:
        """Return the last model and its number, None if that number is ``after``."""
        with self._file.reading() as connection:
            found: tuple[int, bytes] | None = connection.execute(
                "SELECT number, data FROM model WHERE bandit = ? AND number <> ?",
                (self._number, after),
            ).fetchone()
        return found

    def claim(self, worker: str, seconds: float) -> Claim:
        """Be one of the workers; see :meth:`CoordinationStore.claim`."""
        with self._file.writing() as connection:
            connection.execute(_WORKERS)
            now = self._clock()
            connection.execute(
                "DELETE FROM worker WHERE bandit = ? AND name <> ? AND until <= ?",
                (self._number, worker, now),
            )
            held = self._held(connection)
            (partitions,) = connection.execute(
                "SELECT partitions FROM bandit WHERE number = ?", (self._number,)
            ).fetchone()
            claim = claimed(held.pop(worker, ()), list(held.values()), partitions)
            connection.execute(
                "REPLACE INTO worker (bandit, name, until, partitions) VALUES (?, ?, ?, ?)",
                (self._number, worker, now + round(seconds * 1e6), json.dumps(claim.partitions)),
            )
        return claim

    def give_back(self, worker: str, partitions: Collection[int]) -> None:
        """Leave partitions to other workers."""
        with self._file.writing() as connection:
            connection.execute(_WORKERS)
            left = [one for one in self._held(connection).get(worker, ()) if one not in partitions]
            connection.execute(
                "UPDATE worker SET partitions = ? WHERE bandit = ? AND name = ?",
                (json.dumps(left), self._number, worker),
            )

    def leave(self, worker: str) -> None:
        """End the session of this worker now."""
        with self._file.writing() as connection:
            connection.execute(_WORKERS)
            connection.execute(
                "DELETE FROM worker WHERE bandit = ? AND name = ?", (self._number, worker)
            )

    def send(self, sums: Sequence[SentSums]) -> list[int]:
        """Store sums; see :meth:`CoordinationStore.send`."""
        with self._file.writing(sum(len(one.data) for one in sums)) as connection:
            connection.execute(_SUMS)
            epochs = dict(
                connection.execute(
                    "SELECT partition, epoch FROM owner WHERE bandit = ?", (self._number,)
                )
            )
            held = [one for one in sums if epochs.get(one.partition) == one.epoch]
            connection.executemany(
                "INSERT INTO sums VALUES (?, ?, ?, ?, ?, ?) "
                "ON CONFLICT (bandit, partition) DO UPDATE SET epoch = excluded.epoch, "
                "position = excluded.position, center = excluded.center, data = excluded.data "
                "WHERE (epoch, position, center) "
                "<= (excluded.epoch, excluded.position, excluded.center)",
                [(self._number, one.partition, *one.order, one.data) for one in held],
            )
        return [one.partition for one in sums if one not in held]

    def sent(self, known: Known) -> list[SentSums]:
        """Return the last sums of each partition, but for those that are known."""
        with self._file.writing() as connection:  # the table may have to be made
            connection.execute(_SUMS)
            places = connection.execute(
                "SELECT partition, epoch, position, center FROM sums WHERE bandit = ? "
                "ORDER BY partition",
                (self._number,),
            ).fetchall()
            return [
                SentSums(
                    *connection.execute(
                        "SELECT partition, epoch, position, center, data FROM sums "
                        "WHERE bandit = ? AND partition = ?",
                        (self._number, partition),
                    ).fetchone()
                )
                for partition, *order in places
                if known.get(partition) != tuple(order)
            ]

    def close(self) -> None:
        """Close the file; any later call raises :class:`JournalClosed`."""
        self._file.close()

    def _held(self, connection: sqlite3.Connection) -> dict[str, list[int]]:
        """The partitions of each worker."""
        rows = connection.execute(
            "SELECT name, partitions FROM worker WHERE bandit = ?", (self._number,)
        )
        return {name: json.loads(partitions) for name, partitions in rows}

    def _lease(self, connection: sqlite3.Connection) -> tuple[str, int, int]:
        """Holder, epoch and end of the last lease."""
        found: tuple[str, int, int] | None = connection.execute(
            "SELECT holder, epoch, until FROM leader WHERE bandit = ?", (self._number,)
        ).fetchone()
        return found or ("", 0, 0)
