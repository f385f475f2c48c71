"""A journal in a file: durable, and shared by the processes of one machine."""

from __future__ import annotations

import os

from belated.core.ids import check_id
from belated.exceptions import JournalError
from belated.journals.arrivals import Clock
from belated.journals.bandits import open_bandit
from belated.journals.sqlite.cells import SQLiteCells
from belated.journals.sqlite.file import SQLiteFile, open_file
from belated.journals.sqlite.log import SQLiteLog
from belated.journals.sqlite.rows import BANDITS
from belated.journals.steady_clock import system_clock


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
        self._clock = clock or system_clock
        self._file = open_file(path, wait)
        self._place = repr(str(self._file.path))
        self._open_shelf(SQLiteCells(self._file, clock=clock))
        try:
            found = open_bandit(self.cells, bandit, partitions, self._place, self._check_room)
        except BaseException:
            self._file.close()
            raise
        self._number, self._partitions = found.number, found.partitions
        self._secret = found.secret

    def close(self) -> None:
        """Close the file; any later call raises :class:`JournalClosed`."""
        self.cells.close()
        self._file.close()

    def _check_room(self, number: int) -> None:
        if number >= BANDITS:
            message = f"{self._place} already holds {BANDITS - 1} bandits"
            raise JournalError(f"{message}: put this one into another file")
