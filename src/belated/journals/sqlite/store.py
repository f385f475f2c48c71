"""A SQLite file as a store of journals and cells."""

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
from belated.journals.sqlite.file import POSITIONS, EndFile, SQLiteFile, check_format, translated
from belated.journals.sqlite.log import SQLiteJournal
from belated.journals.store import Batch, Store, StoredBandit, StoreSession, stored_bandits


@contextmanager
def open_read_only(path: Path) -> Iterator[sqlite3.Connection]:
    """Open an existing journal file, read-only.

    Raises:
        InvalidInput: the file does not exist.
        NotAJournal: the file is not a journal.
        CorruptJournal: the file is damaged.
        JournalUnavailable: the file cannot currently be read.
        UnsupportedFormat: the file was created by a newer release.
    """
    if not path.is_file():
        problem = "this is not a file" if path.exists() else "there is no such file"
        raise InvalidInput(f"{path}: {problem}", path)
    try:
        uri = f"{path.absolute().as_uri()}?mode=ro"
        with closing(sqlite3.connect(uri, uri=True)) as connection:
            header = "application_id, user_version FROM pragma_application_id, pragma_user_version"
            application, version = connection.execute(f"SELECT {header}").fetchone()
            check_format(application, version, path)
            yield connection
    except (sqlite3.DatabaseError, UnicodeDecodeError) as error:
        failure = translated(error, "read", path)
        if failure is error:
            failure = NotAJournal(f"{path}: this cannot be read as a journal ({error})")
        raise failure from None


def bandits_in(path: Path) -> list[StoredBandit]:
    """Return the metadata of each bandit in a file, sorted by name."""
    with open_read_only(path) as connection:
        return stored_bandits(scan(connection, "bandit/"), scan(connection, "snapshot/"))


class SQLiteSession(StoreSession):
    """Opens bandits over one connection; see :class:`~belated.journals.store.StoreSession`.

    Args:
        store: Store of the file, which is created if it does not exist.
        clock: Returns the time in microseconds since 1970; by default, the system clock.
        wait: Seconds to wait for other processes before raising :class:`JournalUnavailable`.
    """

    def __init__(self, store: SQLiteStore, clock: Clock | None, wait: float) -> None:
        self._clock = clock
        self._file = SQLiteFile(store.path, wait)
        super().__init__(store, self.share_cells(), wait)

    def journal(self, bandit: str, *, partitions: int | None = None) -> SQLiteJournal:
        """Open the journal of a bandit; create it if it does not exist."""
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
        size += sum(len(data) for batch in batches for data in batch.requests.values())
        return self._file.write(
            lambda connection: [
                journal.append_within(connection, batch.events, data, batch.ids, batch.requests)
                for journal, batch, data in zip(journals, batches, encoded, strict=True)
            ],
            size,
        )

    def ends(self, bandits: Iterable[str]) -> dict[str, tuple[int, ...]]:
        """Return the end of each partition, by bandit; see :meth:`StoreSession.ends`."""
        select = "SELECT max(place) FROM record WHERE place > ? AND place < ?"
        journals = self._existing(bandits)

        def read(connection: sqlite3.Connection) -> dict[str, tuple[int, ...]]:
            ends = {}
            for name, journal in journals.items():
                assert isinstance(journal, SQLiteJournal)
                places = (
                    connection.execute(select, (base, base + POSITIONS)).fetchone()[0]
                    for base in map(journal.row_offset, range(journal.partitions))
                )
                ends[name] = tuple((place or 0) % POSITIONS for place in places)
            return ends

        return self._file.read(read)

    def close(self) -> None:
        """Close the file; later calls on opened objects raise :class:`JournalClosed`."""
        super().close()
        self._file.close()


class SQLiteStore(Store):
    """A store in one SQLite file; see :class:`~belated.journals.Store`.

    The file is created when an object is first opened in it, and only its owner can read it.

    Args:
        path: Path of the file, on a local disk.
        clock: Returns the time in microseconds since 1970; by default, the system clock.

    >>> SQLiteStore("offers.db").place
    "'offers.db'"
    """

    name = "sqlite"
    concurrent_appends = False

    def __init__(self, path: str | os.PathLike[str], *, clock: Clock | None = None) -> None:
        #: Path of the file.
        self.path = Path(path)
        self.place = repr(str(self.path))
        self._clock = clock

    @property
    def address(self) -> str:
        """The address with which another process can open the same store."""
        return f"sqlite:///{quote(str(self.path.absolute()))}"

    def __repr__(self) -> str:
        return f"<SQLiteStore: {self.place}>"

    def journal(
        self, bandit: str = "default", *, partitions: int | None = None, wait: float = 10.0
    ) -> SQLiteJournal:
        """Open the journal of a bandit; create it if it does not exist."""
        return SQLiteJournal(
            self.path, bandit=bandit, partitions=partitions, clock=self._clock, wait=wait
        )

    def cells(self, *, wait: float = 10.0) -> SQLiteCells:
        """Open the cells in this file."""
        return SQLiteCells(self.path, clock=self._clock, wait=wait)

    def session(self, *, wait: float = 10.0) -> SQLiteSession:
        """Open one connection for any number of bandits; see :meth:`Store.session`."""
        return SQLiteSession(self, self._clock, wait)

    @contextmanager
    def new_journal(self, bandit: str, *, partitions: int) -> Iterator[SQLiteJournal]:
        """Create a file that appears when the block ends; see :meth:`Store.new_journal`."""
        path = self.path
        for suffix in ("", "-wal", "-shm"):
            if path.with_name(path.name + suffix).exists():
                message = f"{path}{suffix} already exists: choose a new file for the import"
                raise InvalidInput(message, path)
        if not path.parent.is_dir():
            raise InvalidInput(f"{path.parent}: there is no such folder", path)
        with tempfile.TemporaryDirectory(prefix=f".{path.name}.", dir=path.parent) as folder:
            built = Path(folder, path.name)
            with SQLiteJournal(built, bandit=bandit, partitions=partitions) as journal:
                yield journal
            if built.with_name(built.name + "-wal").exists():
                raise JournalUnavailable(
                    f"{path} could not be closed: check that the disk is not full"
                )
            EndFile(path).remove()  # left over from an earlier file
            os.replace(built, path)
        with suppress(OSError):  # some systems cannot sync folders
            sync(path.parent)

    def describe(self) -> list[StoredBandit]:
        """Return the metadata of each bandit; see :meth:`Store.describe`."""
        return bandits_in(self.path) if self.path.exists() else []
