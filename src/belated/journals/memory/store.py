"""The memory of this process as a store."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

from belated.core.ids import check_id
from belated.journals.arrivals import Clock
from belated.journals.memory.coordination import Lead, MemoryCoordinationStore
from belated.journals.memory.journal import Facts, MemoryJournal
from belated.journals.memory.keys import Keys, MemoryKeyStore
from belated.journals.sessions import LoopedSession
from belated.journals.steady_clock import system_clock
from belated.journals.store import StoredBandit, StoredSnapshot
from belated.journals.stored import already_there, check_wanted, no_such_bandit


class MemoryStore:
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
        self._bandits: dict[str, tuple[Facts, Lead]] = {}
        self._keys = Keys()
        self._lock = threading.Lock()

    def journal(
        self, bandit: str = "default", *, partitions: int | None = None, wait: float = 10.0
    ) -> MemoryJournal:
        """Open the journal of a bandit; make it if it is new."""
        check_id(bandit, "the bandit's name")
        with self._lock:
            if bandit not in self._bandits:
                new = Facts(1 if partitions is None else partitions)
                self._bandits[bandit] = new, Lead(new.epochs)
            facts, _ = self._bandits[bandit]
        check_wanted(bandit, self.place, partitions, len(facts.streams))
        return MemoryJournal.sharing(facts, bandit, self._clock)

    def coordination(
        self, bandit: str = "default", *, wait: float = 10.0
    ) -> MemoryCoordinationStore:
        """Open the lease and the published model of a bandit whose journal exists."""
        if bandit not in self._bandits:
            raise no_such_bandit(bandit, self.place)
        return MemoryCoordinationStore(self._bandits[bandit][1], self._clock)

    def keys(self, *, wait: float = 10.0) -> MemoryKeyStore:
        """Open the API keys."""
        return MemoryKeyStore(self._keys, self._clock)

    def session(self, *, wait: float = 10.0) -> LoopedSession:
        """Open what any number of bandits share; see :meth:`Store.session`."""
        return LoopedSession(self, wait)

    @contextmanager
    def new_journal(self, bandit: str, *, partitions: int) -> Iterator[MemoryJournal]:
        """Make a journal that is there once the block has ended; see :meth:`Store.new_journal`."""
        check_id(bandit, "the bandit's name")
        facts = Facts(partitions)
        with MemoryJournal.sharing(facts, bandit, self._clock) as journal:
            yield journal
        with self._lock:
            if bandit in self._bandits:
                raise already_there(bandit, self.place)
            self._bandits[bandit] = facts, Lead(facts.epochs)

    def describe(self) -> list[StoredBandit]:
        """Return what is stored of each bandit, by name."""
        return [
            StoredBandit(
                name,
                len(facts.streams),
                facts.identity,
                [
                    StoredSnapshot(
                        partition,
                        one.snapshot.position,
                        one.snapshot.fingerprint,
                        sum(len(data) for data in one.snapshot.pieces.values() if data),
                    )
                    for partition, one in sorted(facts.snapshots.items())
                ],
            )
            for name, (facts, _) in sorted(self._bandits.items())
        ]

    def create_tables(self) -> None:
        """There are none."""
