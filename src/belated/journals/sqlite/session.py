"""One connection to a file of SQLite, for any number of bandits."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import chain
from typing import TYPE_CHECKING

from belated.core.events import encode
from belated.journals.arrivals import Clock
from belated.journals.log import Appended
from belated.journals.sqlite.cells import SQLiteCells
from belated.journals.sqlite.file import SQLiteFile
from belated.journals.sqlite.journal import SQLiteJournal
from belated.journals.sqlite.rows import POSITIONS
from belated.journals.store import Batch, StoreSession

if TYPE_CHECKING:
    from belated.journals.sqlite.store import SQLiteStore


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
        with self._file.writing(size) as connection:
            return [
                journal.append_within(connection, one.events, data, one.ids, one.requests)
                for journal, one, data in zip(journals, batches, encoded, strict=True)
            ]

    def ends(self, bandits: Iterable[str]) -> dict[str, tuple[int, ...]]:
        """Return where the partitions of each bandit end, where its journal exists."""
        select = "SELECT max(place) FROM record WHERE place > ? AND place < ?"
        journals, ends = self._existing(bandits), {}
        with self._file.reading() as connection:
            for name, journal in journals.items():
                assert isinstance(journal, SQLiteJournal)
                places = (
                    connection.execute(select, (base, base + POSITIONS)).fetchone()[0]
                    for base in map(journal.place, range(journal.partitions))
                )
                ends[name] = tuple((place or 0) % POSITIONS for place in places)
        return ends

    def close(self) -> None:
        """Close the file; any later call of what was opened raises :class:`JournalClosed`."""
        super().close()
        self._file.close()
