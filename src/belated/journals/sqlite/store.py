"""A file of SQLite as a store."""

from __future__ import annotations

import os
from pathlib import Path

from belated.journals.arrivals import Clock
from belated.journals.sqlite.coordination import SQLiteCoordinationStore
from belated.journals.sqlite.file import SQLiteFile
from belated.journals.sqlite.journal import SQLiteJournal
from belated.journals.sqlite.keys import SQLiteKeyStore


class SQLiteStore:
    """Opens journals, leases and keys in one file; see :class:`~belated.journals.Store`.

    The file is made when something is first opened in it; only its owner can read it.

    Args:
        path: The file, on a local disk.
        clock: Gives the time in microseconds since 1970; None for the system's.

    >>> SQLiteStore("offers.db").place
    "'offers.db'"
    """

    name = "sqlite"

    def __init__(self, path: str | os.PathLike[str], *, clock: Clock | None = None) -> None:
        self._path = Path(path)
        self._clock = clock

    def __repr__(self) -> str:
        return f"<SQLiteStore: {self.place}>"

    @property
    def place(self) -> str:
        """The file."""
        return repr(str(self._path))

    def journal(
        self, bandit: str = "default", *, partitions: int | None = None, wait: float = 10.0
    ) -> SQLiteJournal:
        """Open the journal of a bandit; make it if it is new."""
        return SQLiteJournal(
            self._path, bandit=bandit, partitions=partitions, clock=self._clock, wait=wait
        )

    def coordination(
        self, bandit: str = "default", *, wait: float = 10.0
    ) -> SQLiteCoordinationStore:
        """Open the lease and the published model of a bandit whose journal exists."""
        return SQLiteCoordinationStore(self._path, bandit=bandit, clock=self._clock, wait=wait)

    def keys(self, *, wait: float = 10.0) -> SQLiteKeyStore:
        """Open the API keys."""
        return SQLiteKeyStore(self._path, clock=self._clock, wait=wait)

    def bandits(self) -> list[str]:
        """Return the names of all bandits, sorted; a file that is not there is not made."""
        if not self._path.exists():
            return []
        file = SQLiteFile(self._path, 10.0)
        try:
            with file.reading() as connection:
                return sorted(name for (name,) in connection.execute("SELECT name FROM bandit"))
        finally:
            file.close()

    def create_tables(self) -> None:
        """They are made with the file."""
