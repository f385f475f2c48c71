"""The store as the service opens it: sessions with the journal, the lease and the model."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from contextlib import AbstractContextManager

from belated.events import ModeChanged
from belated.exceptions import JournalUnavailable, OwnerFenced
from belated.journals import Claim, Journal, KeyStore, Leader, SentSums
from belated.journals.memory.coordination import Lead, MemoryCoordinationStore
from belated.journals.sessions import LoopedSession
from belated.journals.store import StoredBandit
from belated.journals.workers import Known
from tests.simulator.checks import Disagreement
from tests.simulator.session import SimulatedJournal
from tests.simulator.world import World


class SimulatedStore:
    """A :class:`belated.journals.Store` for all processes of a run.

    Args:
        world: it lives in.
    """

    name = "simulated"
    place = "a simulated store"

    def __init__(self, world: World) -> None:
        self._world = world
        self.lead = Lead(world.store.epochs)
        self.newest: dict[int, tuple[int, int, int]] = {}

    def journal(
        self, bandit: str = "default", *, partitions: int | None = None, wait: float = 10.0
    ) -> Journal:
        """Open a session."""
        if not self._world.store.reachable:
            raise JournalUnavailable("the store does not answer")
        return SimulatedJournal(self._world.store, self._world.faults)

    def coordination(self, bandit: str = "default", *, wait: float = 10.0) -> Coordination:
        """Open the lease and the model."""
        return Coordination(self._world, self.lead, self.newest)

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
        newest: by partition, the greatest order of all sums that have come.
    """

    def __init__(self, world: World, lead: Lead, newest: dict[int, tuple[int, int, int]]) -> None:
        self._world = world
        self._lead = lead
        self._real = MemoryCoordinationStore(lead, world.store.now)
        self._newest = newest
        self._rng = world.stream("late sums")

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

    def claim(self, worker: str, seconds: float) -> Claim:
        """Claim partitions: none that another holds whose session goes on."""
        self._reach()
        now = self._world.store.now()
        others = [
            held
            for name, (until, held) in self._lead.workers.items()
            if name != worker and until > now
        ]
        claim = self._real.claim(worker, seconds)
        if any(partition in held for held in others for partition in claim.partitions):
            raise Disagreement(f"W: {worker} was given {claim}, and others hold {others}")
        return claim

    def give_back(self, worker: str, partitions: Collection[int]) -> None:
        """Leave some."""
        self._reach()
        self._world.faults.see("partition given back", len(partitions))
        self._real.give_back(worker, partitions)

    def leave(self, worker: str) -> None:
        """Leave all."""
        self._reach()
        self._real.leave(worker)

    def send(self, sums: Sequence[SentSums]) -> list[int]:
        """Send sums; now and then nobody knows whether they have come, and they come later."""
        self._reach()
        faults = self._world.faults
        if faults.strike("sums late"):
            lead = self._lead
            held = [one for one in sums if one.epoch == lead.epochs[one.partition]]
            wait = self._rng.expovariate(20 / self._world.knobs.span)
            self._world.schedule.after(wait, lambda: self._arrive(held))
            raise JournalUnavailable("the connection broke: nobody knows what is there")
        fenced = self._real.send(sums)
        self._note(one for one in sums if one.partition not in fenced)
        return fenced

    def _arrive(self, sums: Sequence[SentSums]) -> None:
        for one in sums:
            self._lead.keep_sums(one)
        self._note(sums)

    def _note(self, sums: Iterable[SentSums]) -> None:
        for one in sums:
            newest = self._newest.get(one.partition)
            if newest is None or one.order > newest:
                self._newest[one.partition] = one.order

    def sent(self, known: Known) -> list[SentSums]:
        """Return sums: of each partition those of the highest epoch, then position."""
        self._reach()
        for partition, one in self._lead.sums.items():
            if one.order != self._newest[partition]:
                newest = self._newest[partition]
                raise Disagreement(f"O: {one.order} of partition {partition} counts, not {newest}")
        return self._real.sent(known)

    def close(self) -> None:
        """Nothing is held."""

    def _reach(self) -> None:
        if not self._world.store.reachable:
            raise JournalUnavailable("the store does not answer")


def change_mode(world: World, mode: str) -> None:
    """Write a mode into the journal, as an operator does."""
    event = ModeChanged(world.schedule.now, mode, "")
    SimulatedJournal(world.store, world.faults).append([event])
