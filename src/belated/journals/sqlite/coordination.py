"""The lease and the published model of a bandit, in a file of SQLite."""

from __future__ import annotations

import os
import sqlite3

from belated.exceptions import OwnerFenced
from belated.ids import check_id
from belated.journals.arrivals import Clock
from belated.journals.leases import granted_epoch
from belated.journals.shelf import Leader
from belated.journals.sqlite.file import SQLiteFile, open_file
from belated.journals.steady_clock import system_clock
from belated.journals.stored import no_such_bandit


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

    def close(self) -> None:
        """Close the file; any later call raises :class:`JournalClosed`."""
        self._file.close()

    def _lease(self, connection: sqlite3.Connection) -> tuple[str, int, int]:
        """Holder, epoch and end of the last lease."""
        found: tuple[str, int, int] | None = connection.execute(
            "SELECT holder, epoch, until FROM leader WHERE bandit = ?", (self._number,)
        ).fetchone()
        return found or ("", 0, 0)
