"""A file of SQLite as a store."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from urllib.parse import quote

from belated.exceptions import InvalidInput, JournalUnavailable
from belated.journals.arrivals import Clock
from belated.journals.sqlite.cells import SQLiteCells
from belated.journals.sqlite.end import EndFile
from belated.journals.sqlite.journal import SQLiteJournal
from belated.journals.sqlite.look import bandits_in
from belated.journals.sqlite.session import SQLiteSession
from belated.journals.store import Store, StoredBandit


class SQLiteStore(Store):
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
        #: The file.
        self.path = Path(path)
        self.place = repr(str(self.path))
        self._clock = clock

    @property
    def address(self) -> str:
        """With which another process opens the same store."""
        return f"sqlite:///{quote(str(self.path.absolute()))}"

    def __repr__(self) -> str:
        return f"<SQLiteStore: {self.place}>"

    def journal(
        self, bandit: str = "default", *, partitions: int | None = None, wait: float = 10.0
    ) -> SQLiteJournal:
        """Open the journal of a bandit; make it if it is new."""
        return SQLiteJournal(
            self.path, bandit=bandit, partitions=partitions, clock=self._clock, wait=wait
        )

    def cells(self, *, wait: float = 10.0) -> SQLiteCells:
        """Open the cells."""
        return SQLiteCells(self.path, clock=self._clock, wait=wait)

    def session(self, *, wait: float = 10.0) -> SQLiteSession:
        """Open one connection for any number of bandits; see :meth:`Store.session`."""
        return SQLiteSession(self, self._clock, wait)

    @contextmanager
    def new_journal(self, bandit: str, *, partitions: int) -> Iterator[SQLiteJournal]:
        """Make a file that is there once the block has ended; see :meth:`Store.new_journal`."""
        path = self.path
        for suffix in ("", "-wal", "-shm"):
            if path.with_name(path.name + suffix).exists():
                message = f"{path}{suffix} is there already: an import makes a new file"
                raise InvalidInput(message, path)
        if not path.parent.is_dir():
            raise InvalidInput(f"{path.parent}: there is no such folder", path)
        with tempfile.TemporaryDirectory(prefix=f".{path.name}.", dir=path.parent) as folder:
            built = Path(folder, path.name)
            with SQLiteJournal(built, bandit=bandit, partitions=partitions) as journal:
                yield journal
            if built.with_name(built.name + "-wal").exists():
                raise JournalUnavailable(f"{path} could not be closed: is the disk full?")
            EndFile(path).remove()  # of a file that was here before
            os.replace(built, path)
        _sync_folder(path.parent)

    def describe(self) -> list[StoredBandit]:
        """Return what is stored of each bandit, by name; changes nothing."""
        return bandits_in(self.path) if self.path.exists() else []


def _sync_folder(folder: Path) -> None:
    """Have the name of a new file on stable storage too, where the system can do that."""
    with suppress(OSError):
        opened = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(opened)
        finally:
            os.close(opened)
