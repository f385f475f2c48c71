"""The store as the service opens it: sessions with the journal, the lease and the model."""

from __future__ import annotations

from contextlib import AbstractContextManager

from belated.events import ModeChanged
from belated.exceptions import JournalUnavailable, OwnerFenced
from belated.journals import Journal, KeyStore, Leader
from belated.journals.memory.coordination import Lead, MemoryCoordinationStore
from belated.journals.sessions import LoopedSession
from belated.journals.store import StoredBandit
from belated.testing.simulator.checks import Disagreement
from belated.testing.simulator.session import SimulatedJournal
from belated.testing.simulator.world import World


class SimulatedStore:
    """A :class:`belated.journals.Store` for all processes of a run.

    Args:
        world: it lives in.
    """

    name = "simulated"
    place = "a simulated store"

    def __init__(self, world: World) -> None:
        self._world = world
        self.lead = Lead()

    def journal(
        self, bandit: str = "default", *, partitions: int | None = None, wait: float = 10.0
    ) -> Journal:
        """Open a session."""
        if not self._world.store.reachable:
            raise JournalUnavailable("the store does not answer")
        return SimulatedJournal(self._world.store, self._world.faults)

    def coordination(self, bandit: str = "default", *, wait: float = 10.0) -> Coordination:
        """Open the lease and the model."""
        return Coordination(self._world, self.lead)

    def keys(self, *, wait: float = 10.0) -> KeyStore:
        """There are none."""
        raise NotImplementedError

    def session(self, *, wait: float = 10.0) -> LoopedSession:
        """Open what a process shares."""
        return LoopedSession(self, wait)

    def new_journal(self, bandit: str, *, partitions: int) -> AbstractContextManager[Journal]:
        """Nothing is imported."""
        raise NotImplementedError

    def describe(self) -> list[StoredBandit]:
        """Nobody asks."""
        raise NotImplementedError

    def create_tables(self) -> None:
        """There are none."""


class Coordination:
    """The real one in memory, which cannot always be reached; what it grants is checked.

    Args:
        world: it lives in.
        lead: who leads, and its model.
    """

    def __init__(self, world: World, lead: Lead) -> None:
        self._world = world
        self._lead = lead
        self._real = MemoryCoordinationStore(lead, world.store.now)

    def acquire_lease(self, holder: str, seconds: float) -> int | None:
        """Become the leader, or stay it: as soon as the lease of another has ended, not before."""
        self._reach()
        lead, now = self._lead, self._world.store.now()
        free = lead.holder in ("", holder) or now >= lead.until
        epoch = self._real.acquire_lease(holder, seconds)
        if (epoch is not None) != free:
            raise Disagreement(f"L: a lease until {lead.until} was asked for at {now}: {epoch}")
        return epoch

    def release_lease(self, holder: str) -> None:
        """Leave at once."""
        self._reach()
        self._real.release_lease(holder)

    def leader(self) -> Leader | None:
        """Return who leads."""
        self._reach()
        return self._real.leader()

    def publish(self, data: bytes, epoch: int) -> int:
        """Publish a model: refused from whoever was superseded, and never while frozen."""
        self._reach()
        try:
            number = self._real.publish(data, epoch)
        except OwnerFenced:
            self._world.faults.see("owner superseded")
            raise
        if epoch != self._lead.epoch:
            raise Disagreement("L: one that leads no longer has published a model")
        mode = self._world.store.mode()
        if mode is not None and mode.mode == "freeze":
            raise Disagreement("L: a model was published while the bandit is frozen")
        return number

    def published(self, after: int = 0) -> tuple[int, bytes] | None:
        """Return the model and its number, if it is another."""
        self._reach()
        return self._real.published(after)

    def close(self) -> None:
        """Nothing is held."""

    def _reach(self) -> None:
        if not self._world.store.reachable:
            raise JournalUnavailable("the store does not answer")


def change_mode(world: World, mode: str) -> None:
    """Write a mode into the journal, as an operator does."""
    event = ModeChanged(world.schedule.now, mode, "")
    SimulatedJournal(world.store, world.faults).append([event])
