"""A file of SQLite as a store: its journals and cells, over one connection or several."""

from __future__ import annotations

import os
import sqlite3
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from itertools import chain
from pathlib import Path
from urllib.parse import quote

from belated.core.events import encode
from belated.exceptions import InvalidInput, JournalUnavailable, NotAJournal
from belated.journals.arrivals import Clock
from belated.journals.folders import sync
from belated.journals.log import Appended
from belated.journals.sqlite.cells import SQLiteCells, scan
from belated.journals.sqlite.file import (
    POSITIONS,
    EndFile,
    SQLiteFile,
    check_format,
    translated,
)
from belated.journals.sqlite.log import SQLiteJournal
from belated.journals.store import Batch, Store, StoredBandit, StoreSession, stored_bandits


@contextmanager
def looking_into(path: Path) -> Iterator[sqlite3.Connection]:
    """Open a journal file that is there, to read only.

    Raises:
        InvalidInput: there is no such file.
        NotAJournal: it is no journal, or cannot be read as one.
        CorruptJournal: it is damaged.
        JournalUnavailable: it cannot be read now.
        UnsupportedFormat: a newer release has made it.
    """
    if not path.is_file():
        what = "this is no file" if path.exists() else "there is no such file"
        raise InvalidInput(f"{path}: {what}", path)
    try:
        uri = f"{path.absolute().as_uri()}?mode=ro"
        with closing(sqlite3.connect(uri, uri=True)) as connection:
            header = "application_id, user_version FROM pragma_application_id, pragma_user_version"
            application, version = connection.execute(f"SELECT {header}").fetchone()
            check_format(application, version, path)
            yield connection
    except (sqlite3.DatabaseError, UnicodeDecodeError) as error:
        found = translated(error, "read", path)
        if found is error:
            found = NotAJournal(f"{path}: this cannot be read as a journal ({error})")
        raise found from None


def bandits_in(path: Path) -> list[StoredBandit]:
    """Return what a file holds of each bandit, by name."""
    with looking_into(path) as connection:
        return stored_bandits(scan(connection, "bandit/"), scan(connection, "snapshot/"))


class SQLiteSession(StoreSession):
    """Opens bandits over one connection; see :class:`~belated.journals.store.StoreSession`.

    Args:
        store: The file; made if it is not there.
        clock: Gives the time in microseconds since 1970; None for the system's.
        wait: Seconds to wait for other processes before :class:`JournalUnavailable`.
    """

    def __init__(self, store: SQLiteStore, clock: Clock | None, wait: float) -> None:
        self._clock = clock
        self._file = SQLiteFile(store.path, wait)
        super().__init__(store, self.share_cells(), wait)

    def journal(self, bandit: str, *, partitions: int | None = None) -> SQLiteJournal:
        """Open the journal of a bandit; make it if it is new."""
        return SQLiteJournal(self._file, bandit=bandit, partitions=partitions, clock=self._clock)

    def share_cells(self) -> SQLiteCells:
        """Return cells over the same connection."""
        return SQLiteCells(self._file, clock=self._clock)

    def append_all(self, batches: Sequence[Batch]) -> list[Appended]:
        """Append batches in one transaction."""
        journals = []
        for batch in batches:
            assert isinstance(batch.journal, SQLiteJournal)
            journals.append(batch.journal)
        encoded = [[encode(event) for event in batch.events] for batch in batches]
        size = sum(map(len, chain.from_iterable(encoded)))
        size += sum(len(data) for one in batches for data in one.requests.values())
        return self._file.write(
            lambda connection: [
                journal.append_within(connection, one.events, data, one.ids, one.requests)
                for journal, one, data in zip(journals, batches, encoded, strict=True)
            ],
            size,
        )

    def ends(self, bandits: Iterable[str]) -> dict[str, tuple[int, ...]]:
        """Return where the partitions of each bandit end, where its journal exists."""
        select = "SELECT max(place) FROM record WHERE place > ? AND place < ?"
        journals = self._existing(bandits)

        def read(connection: sqlite3.Connection) -> dict[str, tuple[int, ...]]:
            ends = {}
            for name, journal in journals.items():
                assert isinstance(journal, SQLiteJournal)
                places = (
                    connection.execute(select, (base, base + POSITIONS)).fetchone()[0]
                    for base in map(journal.place, range(journal.partitions))
                )
                ends[name] = tuple((place or 0) % POSITIONS for place in places)
            return ends

        return self._file.read(read)

    def close(self) -> None:
        """Close the file; any later call of what was opened raises :class:`JournalClosed`."""
        super().close()
        self._file.close()


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
        with suppress(OSError):  # not every system can do that
            sync(path.parent)

    def describe(self) -> list[StoredBandit]:
        """Return what is stored of each bandit, by name; changes nothing."""
        return bandits_in(self.path) if self.path.exists() else []
