"""The memory of this process as a store."""

from __future__ import annotations

import threading

from belated.journals.arrivals import Clock
from belated.journals.bandits import open_bandit
from belated.journals.memory.cells import MemoryCells
from belated.journals.memory.journal import Facts, MemoryJournal
from belated.journals.steady_clock import system_clock
from belated.journals.store import Store


class MemoryStore(Store):
    """Opens journals, leases and keys that live as long as the store; see :class:`Store`.

    Threads may share the store, and what it opens.

    Args:
        clock: Gives the time in microseconds since 1970; None for the system's.

    >>> from belated.core.events import Void
    >>> store = MemoryStore()
    >>> with store.journal("offers") as one, store.journal("offers") as other:
    ...     one.append([Void("a", 5)])
    ...     other.end(0)
    [1]
    1
    >>> [one.name for one in store.describe()]
    ['offers']
    """

    name = "memory"
    place = "the memory of this process"

    def __init__(self, *, clock: Clock | None = None) -> None:
        self._clock = clock or system_clock
        self._cells = MemoryCells(self._clock)
        self._logs: dict[int, Facts] = {}
        self._lock = threading.Lock()

    def cells(self, *, wait: float = 10.0) -> MemoryCells:
        """Open the cells."""
        return self._cells.share()

    def journal(
        self, bandit: str = "default", *, partitions: int | None = None, wait: float = 10.0
    ) -> MemoryJournal:
        """Open the journal of a bandit; make it if it is new."""
        found = open_bandit(self._cells, bandit, partitions, self.place)
        with self._lock:
            facts = self._logs.setdefault(found.number, Facts(found.partitions, self._cells))
        return MemoryJournal.sharing(facts, bandit, self._clock)
