"""One connection to a store for any number of bandits, and one commit for what they append."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Protocol, runtime_checkable

from belated.core.events import Event, ModeChanged
from belated.exceptions import JournalError
from belated.journals.journal import Journal
from belated.journals.log import Appended, Requests, UniqueLog
from belated.journals.shelf import CoordinationStore, KeyStore


@dataclass(frozen=True)
class Batch:
    """Events of one bandit.

    Attributes:
        journal: Where they go; opened by the session that appends them.
        events: What is to be appended.
        ids: Those among their ids that callers chose: each may have one decision.
        requests: What decisions among the events were chosen from, by their place.
    """

    journal: UniqueLog
    events: Sequence[Event]
    ids: Collection[str] = ()
    requests: Requests = field(default_factory=dict)

    def append(self) -> Appended:
        """Append them, in a commit of their own."""
        if self.ids:
            return self.journal.append_unique(self.events, self.ids, self.requests)
        return Appended(self.journal.append(self.events, requests=self.requests), {})


class BatchLog(Protocol):
    """Appends for several bandits at once."""

    def append_all(self, batches: Sequence[Batch]) -> list[Appended]:
        """Append batches, in one commit: all of them or none.

        Where a caller's id has a decision already, a commit for each bandit is allowed.
        """

    def close(self) -> None:
        """Release whatever is held."""


@dataclass(frozen=True)
class Glance:
    """How a bandit stands, for learners.

    Attributes:
        ends: Position of the last record of each partition.
        led: Whether a learner leads.
    """

    ends: tuple[int, ...]
    led: bool


@runtime_checkable
class StoreSession(BatchLog, Protocol):
    """One connection, for the bandits of a process. Threads that use it take turns.

    What it opens stays open as long as it does. :class:`belated.testing.StoreContract` tests it.
    """

    def journal(self, bandit: str, *, partitions: int | None = None) -> Journal:
        """Open a journal, as :meth:`Store.journal` does."""

    def coordination(self, bandit: str) -> CoordinationStore:
        """Open a lease and a model, as :meth:`Store.coordination` does."""

    def keys(self) -> KeyStore:
        """Open the API keys."""

    def published(self, after: Mapping[str, int]) -> dict[str, tuple[int, bytes]]:
        """Return the models, with their numbers, of those bandits that have another than this."""

    def modes(self, bandits: Sequence[str]) -> dict[str, ModeChanged]:
        """Return the last event that changed the mode of each bandit, where there is one."""

    def glance(self, bandits: Sequence[str]) -> dict[str, Glance]:
        """Return how each of these bandits stands, where its journal exists."""

    def renew_leases(self, held: Mapping[str, str], seconds: float) -> dict[str, int]:
        """Renew leases by the names of their bandits, each with its holder, in one commit.

        Returns:
            The epochs of those whose holder still leads.
        """


class _Opens(Protocol):
    """What :class:`LoopedSession` needs of a store."""

    def journal(
        self, bandit: str = ..., *, partitions: int | None = ..., wait: float = ...
    ) -> Journal: ...
    def coordination(self, bandit: str = ..., *, wait: float = ...) -> CoordinationStore: ...
    def keys(self, *, wait: float = ...) -> KeyStore: ...


class LoopedSession:
    """A session with a store that has no connections: it asks for one bandit after the other.

    Args:
        store: the store.
        wait: seconds to wait for it.
    """

    def __init__(self, store: _Opens, wait: float) -> None:
        self._store = store
        self._wait = wait
        self._journals: dict[str, Journal] = {}
        self._coordinations: dict[str, CoordinationStore] = {}

    def journal(self, bandit: str, *, partitions: int | None = None) -> Journal:
        """Open a journal."""
        return self._store.journal(bandit, partitions=partitions, wait=self._wait)

    def coordination(self, bandit: str) -> CoordinationStore:
        """Open a lease and a model."""
        return self._store.coordination(bandit, wait=self._wait)

    def keys(self) -> KeyStore:
        """Open the API keys."""
        return self._store.keys(wait=self._wait)

    def append_all(self, batches: Sequence[Batch]) -> list[Appended]:
        """Append batches, one after the other."""
        return [batch.append() for batch in batches]

    def published(self, after: Mapping[str, int]) -> dict[str, tuple[int, bytes]]:
        """Return the models of those bandits that have another than this."""
        found = {name: self._lead(name).published(last) for name, last in after.items()}
        return {name: one for name, one in found.items() if one is not None}

    def modes(self, bandits: Sequence[str]) -> dict[str, ModeChanged]:
        """Return the last event that changed the mode of each bandit."""
        found = {name: self._log(name).mode() for name in bandits}
        return {name: one for name, one in found.items() if one is not None}

    def glance(self, bandits: Sequence[str]) -> dict[str, Glance]:
        """Return how each of these bandits stands."""
        found = {}
        for name in bandits:
            with suppress(JournalError):  # there is none yet
                led = self._lead(name).leader() is not None
                log = self._log(name)
                found[name] = Glance(tuple(map(log.end, range(log.partitions))), led)
        return found

    def renew_leases(self, held: Mapping[str, str], seconds: float) -> dict[str, int]:
        """Renew leases, one after the other."""
        return renew_each(self._lead, held, seconds)

    def close(self) -> None:
        """Close what was opened to look."""
        for journal in self._journals.values():
            journal.close()
        for coordination in self._coordinations.values():
            coordination.close()

    def _log(self, name: str) -> Journal:
        if name not in self._journals:
            self._journals[name] = self.journal(name)
        return self._journals[name]

    def _lead(self, name: str) -> CoordinationStore:
        if name not in self._coordinations:
            self._coordinations[name] = self.coordination(name)
        return self._coordinations[name]


def renew_each(
    lead: Callable[[str], CoordinationStore], held: Mapping[str, str], seconds: float
) -> dict[str, int]:
    """Renew leases one after the other, given where that of a bandit is."""
    found = {name: lead(name).acquire_lease(who, seconds) for name, who in held.items()}
    return {name: epoch for name, epoch in found.items() if epoch is not None}
