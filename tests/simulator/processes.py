"""Processes that hold a bandit: deciders answer clients, learners settle and save snapshots."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from belated.bandit import Bandit
from belated.events import Reward, Void
from belated.exceptions import (
    CorruptEvent,
    InvalidInput,
    JournalUnavailable,
    OwnerFenced,
    RewardConflict,
    UnknownEvent,
)
from belated.journals import Journal
from belated.journals.spool.journal import SpoolJournal
from tests.simulator.checks import (
    check_counts,
    check_halted,
    check_one_answer,
    check_replay,
)
from tests.simulator.disk import Disk
from tests.simulator.faults import Killed
from tests.simulator.messages import (
    REFUSED,
    Answer,
    DecisionRequest,
    Reply,
    Request,
    rows_of,
)
from tests.simulator.session import SimulatedJournal
from tests.simulator.world import PLAIN, World

T = TypeVar("T")


class Process:
    """Opens the bandit, dies, and opens it again from what is stored.

    Args:
        world: it lives in.
        name: of the process.
    """

    def __init__(self, world: World, name: str) -> None:
        self.world = world
        self.name = name
        self.bandit: Bandit | None = None
        self._rng = world.stream(name)
        self._clock = world.clock(name)
        self.start()
        world.schedule.after(self._pause(), self._tick)

    def start(self) -> None:
        """Open the bandit, or try again later."""
        if self.bandit is not None:
            return
        try:
            self.bandit = self._open()
        except (Killed, JournalUnavailable, CorruptEvent, UnknownEvent) as error:
            self.world.trace_event(self.name, f"did not start: {error}")
            self.world.schedule.after(self._pause(), self.start)
        else:
            self.world.trace_event(self.name, f"started at {self.bandit._fold.positions}")
            self._started(self.bandit)

    def use(self, action: Callable[[Bandit], T]) -> T | None:
        """Do something with the bandit; None if it came to nothing."""
        if self.bandit is None:
            return None
        try:
            return action(self.bandit)
        except Killed:
            self.world.trace_event(self.name, "killed")
            self._leave()
        except (JournalUnavailable, OwnerFenced, CorruptEvent, UnknownEvent) as error:
            self.world.trace_event(self.name, error)
        return None

    def kill(self) -> None:
        """End the process here and now."""
        if self.bandit is not None:
            self.world.trace_event(self.name, "killed")
            self._leave()

    def _open(self) -> Bandit:
        knobs = self.world.knobs
        return Bandit(
            policy=knobs.policy,
            rewards=knobs.rewards,
            retention=knobs.retention,
            journal=self._journal(),
            seed=self.world.seed,
            clock=self._clock,
            kernels=PLAIN,
            tuning=knobs.tuning,
        )

    def _journal(self) -> Journal:
        return SimulatedJournal(self.world.store, self.world.faults)

    def _leave(self) -> None:
        self.bandit = None
        self.world.schedule.after(self._pause(), self.start)

    def _tick(self) -> None:
        """What is done now and then while the world is active."""
        if self.world.active:
            if self.bandit is not None and self.world.faults.strike("stopped in good order"):
                self.use(Bandit.close)
                self._leave()
            self._work()
            self.world.schedule.after(self._pause(), self._tick)

    def _pause(self) -> float:
        return self._rng.expovariate(10 / self.world.knobs.span)

    def _started(self, bandit: Bandit) -> None: ...

    def _work(self) -> None: ...


class Learner(Process):
    """Settles what is due, and saves snapshots: as the owner of all partitions, or as it likes."""

    _owner = False

    def _started(self, bandit: Bandit) -> None:
        """Snapshot and tail must have come to what all records come to."""
        self._owner = False
        if self._rng.random() < 0.3:
            check_replay(self.world, self.name, bandit._fold)

    def _work(self) -> None:
        owned, rng = self.world.knobs.owned, self._rng
        if owned and not self._owner:
            # The first is meant to be the owner; any other only believes so.
            first = self.name == "learner 0"
            if first or self.world.faults.strike("partition taken over"):
                self.use(self._acquire)
        if rng.random() < 0.5:  # apart from saving: what is saved may be behind
            self.use(self._sync)
        elif self._owner or not owned:
            self.use(self._save)

    def _acquire(self, bandit: Bandit) -> None:
        assert isinstance(bandit.journal, SimulatedJournal)
        for partition in range(bandit.journal.partitions):
            bandit.journal.acquire(partition)
        self._owner = True
        self.world.trace_event(self.name, "owns all partitions")

    def _sync(self, bandit: Bandit) -> None:
        try:
            bandit.sync()
        except (CorruptEvent, UnknownEvent):
            check_halted(self.world, bandit._fold)
            raise
        check_counts(self.name, bandit._fold)
        self.world.trace_event(self.name, f"at {bandit._fold.positions}: {bandit.digest}")

    def _save(self, bandit: Bandit) -> None:
        try:
            bandit.save()
        except OwnerFenced:
            self._owner = False
            raise
        self.world.trace_event(self.name, f"saved {bandit._fold.positions}")


class Decider(Process):
    """Answers clients; with a spool on its own disk also while the store is away."""

    def __init__(self, world: World, name: str) -> None:
        self._disk = Disk(world.faults, world.stream(f"{name}'s disk"))
        self._watching = False
        super().__init__(world, name)

    def receive(self, what: Request, reply: Reply) -> None:
        """Decide, or hear; no answer where that failed."""
        answer = self.use(lambda bandit: self._answer(bandit, what))
        if answer == "accepted":
            self.world.faults.see("event spooled")
        if answer is not None:
            if isinstance(what, DecisionRequest) and what.name:
                check_one_answer(self.world, what.name, answer)
            reply(answer)
        self._watch()

    def _answer(self, bandit: Bandit, what: Request) -> Answer:
        if isinstance(what, DecisionRequest):
            rows = rows_of(what.name or self.name, bandit.policy.dim)
            if what.count > 1:
                return bandit.decide_many([rows] * what.count, activated=what.activated)
            return [bandit.decide(rows, id=what.name, activated=what.activated)]
        try:
            if isinstance(what, Reward):
                return bandit.observe(
                    what.id, what.value, at=what.at, part=what.part, revision=what.revision
                ).status
            tell = bandit.void if isinstance(what, Void) else bandit.activate
            return tell(what.id, at=what.at).status
        except (InvalidInput, RewardConflict):
            return REFUSED

    def _journal(self) -> Journal:
        journal = super()._journal()
        if not self.world.knobs.spooled:
            return journal
        return SpoolJournal(journal, self._disk, wait=None, clock=self._clock)

    def _started(self, bandit: Bandit) -> None:
        self._watch()

    def _leave(self) -> None:
        if self._rng.random() < 0.5:  # the machine went down, not the process alone
            self._disk.lose_power()
        super()._leave()

    def _watch(self) -> None:
        """Do what the thread of a spool does: try again as long as anything waits."""
        spool = self.bandit.journal if self.bandit is not None else None
        if isinstance(spool, SpoolJournal) and not self._watching:
            status = spool.status
            if status.journal_down or status.queued:
                self._watching = True
                self.world.schedule.after(self._pause(), self._try_again)

    def _try_again(self) -> None:
        self._watching = False
        self.use(_forward)
        self._watch()


def _forward(bandit: Bandit) -> None:
    assert isinstance(bandit.journal, SpoolJournal)
    bandit.journal.forward()
