"""One run with a bandit in each process: deciders answer clients, learners save snapshots."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, TypeVar

from belated.bandit import Bandit
from belated.core.events import Reward, SubjectReward, Void
from belated.core.times import as_datetime
from belated.decider import MODES
from belated.exceptions import (
    BanditOff,
    CorruptEvent,
    InvalidInput,
    JournalUnavailable,
    OwnerFenced,
    RewardConflict,
    UnknownEvent,
)
from belated.features import PerArm
from belated.fold.fold import Fold
from belated.journals import Journal
from belated.journals.spool.journal import SpoolJournal
from tests.simulator.checks import (
    Disagreement,
    check_acknowledged,
    check_counts,
    check_estimate,
    check_halted,
    check_lineage,
    check_names,
    check_one_answer,
    check_oracle,
    check_pages,
    check_replay,
    check_requests,
    check_same,
    check_stamps,
    check_sticky,
    expected_of,
    replayed,
)
from tests.simulator.clients import (
    BoundaryWriter,
    Client,
    SubjectClient,
    TrimmingOperator,
    UndoingOperator,
    Writer,
)
from tests.simulator.faults import Killed
from tests.simulator.releases import ReleaseManager, offered
from tests.simulator.settings import DAY
from tests.simulator.store import SimulatedJournal
from tests.simulator.world import (
    PLAIN,
    REFUSED,
    Answer,
    DecisionRequest,
    Disk,
    Receiver,
    Reply,
    Request,
    World,
)

T = TypeVar("T")
#: Errors that a process survives and retries after.
TROUBLE = (JournalUnavailable, OwnerFenced, CorruptEvent, UnknownEvent)


class Process:
    """Opens the bandit, dies, and opens it again from what is stored.

    Args:
        world: it lives in.
        name: of the process.
    """

    def __init__(self, world: World, name: str) -> None:
        self.world = world
        self.name = name
        self._bandit: Bandit | None = None
        self._rng = world.stream(name)
        self._clock = world.clock(name)
        self.start()
        world.schedule.after(self._pause(), self._tick)

    @property
    def bandit(self) -> Bandit:
        """The open bandit."""
        assert self._bandit is not None
        return self._bandit

    def start(self) -> None:
        """Open the bandit, or retry later."""
        if self._bandit is not None:
            return
        try:
            self._bandit = self._open()
        except (Killed, JournalUnavailable, CorruptEvent, UnknownEvent) as error:
            self.world.trace_event(self.name, f"did not start: {error}")
            self.world.schedule.after(self._pause(), self.start)
        else:
            self.world.trace_event(self.name, f"started at {self.bandit._fold.positions}")
            self._started(self.bandit)

    def use(self, action: Callable[[Bandit], T]) -> T | None:
        """Call an action with the bandit; return None if it failed."""
        if self._bandit is None:
            return None
        try:
            return action(self._bandit)
        except Killed:
            self.kill()
        except TROUBLE as error:
            self.world.trace_event(self.name, error)
        return None

    def kill(self) -> None:
        """End the process."""
        if self._bandit is not None:
            self.world.trace_event(self.name, "killed")
            self._leave()

    def _open(self) -> Bandit:
        settings = self.world.settings
        return Bandit(
            policy=self.world.policy,
            features=self.world.features,
            rewards=settings.rewards,
            retention=settings.retention,
            journal=self._journal(),
            seed=self.world.seed,
            clock=self._clock,
            clock_skew="10d",  # clocks jump, and the oracle takes every time
            kernels=PLAIN,
            tuning=settings.tuning,
        )

    def _journal(self) -> Journal:
        return SimulatedJournal(self.world.store, self.world.faults)

    def _leave(self) -> None:
        self._bandit = None
        self.world.schedule.after(self._pause(), self.start)

    def _tick(self) -> None:
        if self.world.active:
            if self._bandit is not None and self.world.faults.strike("stopped in good order"):
                self.use(Bandit.close)
                self._leave()
            self._work()
            self.world.schedule.after(self._pause(), self._tick)

    def _pause(self) -> float:
        return self._rng.expovariate(10 / self.world.settings.span)

    def _started(self, bandit: Bandit) -> None: ...

    def _work(self) -> None: ...


class Learner(Process):
    """Settles decisions and saves snapshots, as the owner of all partitions or unowned."""

    _owner = False

    def _started(self, bandit: Bandit) -> None:
        """Check that snapshot and tail give the same as all records, in some cases."""
        self._owner = False
        if self._rng.random() < 0.3:
            check_replay(self.world, self.name, bandit._fold)

    def _work(self) -> None:
        is_owned, rng = self.world.settings.owned, self._rng
        if is_owned and not self._owner:
            # The first is meant to be the owner; any other is wrong about it.
            is_first = self.name == "learner 0"
            if is_first or self.world.faults.strike("partition taken over"):
                self.use(self._acquire)
        if rng.random() < 0.5:  # separately from saving, so that snapshots may be behind
            self.use(self._sync)
        elif self._owner or not is_owned:
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
    """Answers clients; with a spool on its own disk also while the store is unavailable."""

    def __init__(self, world: World, name: str) -> None:
        self._disk = Disk(world.faults, world.stream(f"{name}'s disk"))
        self._watching = False
        super().__init__(world, name)

    def receive(self, what: Request, reply: Reply) -> None:
        """Process a request; there is no answer if that fails."""
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
            offer, now = _offered(bandit, what.key or self.name), self._clock()
            if what.count > 1:
                (name, value) = next(iter(offer.items()))
                batch = {"rows" if name == "rows" else "contexts": [value] * what.count}
                return bandit.decide_many(**batch, activated=what.activated)
            decision = bandit.decide(
                **offer,
                id=what.name,
                activated=what.activated,
                subject=what.subject,
                sticky=what.sticky,
            )
            check_sticky(what, decision, now)
            return [decision]
        try:
            if isinstance(what, Reward):
                return bandit.observe(
                    what.id, what.value, at=what.at, part=what.part, revision=what.revision
                ).status
            if isinstance(what, SubjectReward):
                return bandit.observe(
                    subject=what.subject, value=what.value, at=what.at, event_id=what.event_id
                ).status
            append = bandit.void if isinstance(what, Void) else bandit.activate
            return append(what.id, at=what.at).status
        except (InvalidInput, RewardConflict):
            return REFUSED

    def _journal(self) -> Journal:
        journal = super()._journal()
        if not self.world.settings.spooled:
            return journal
        return SpoolJournal(journal, self._disk, wait=None, clock=self._clock)

    def _started(self, bandit: Bandit) -> None:
        self._watch()

    def _leave(self) -> None:
        if self._rng.random() < 0.5:  # the machine went down, not only the process
            self._disk.lose_power()
        super()._leave()

    def _watch(self) -> None:
        """Do what the thread of a spool does: retry as long as anything is queued."""
        spool = self._bandit.journal if self._bandit is not None else None
        if isinstance(spool, SpoolJournal) and not self._watching:
            status = spool.status
            if status.journal_down or status.queued:
                self._watching = True
                self.world.schedule.after(self._pause(), self._forward)

    def _forward(self) -> None:
        self._watching = False
        self.use(lambda bandit: bandit.journal.forward())  # type: ignore[attr-defined]
        self._watch()


class Cluster:
    """All processes and actors of a run."""

    def __init__(self, world: World) -> None:
        self.world = world
        self._start_processes()
        # Deciders get most of the requests.
        writers = [Writer(world, f"writer {n}") for n in range(2)]
        servers: list[Receiver] = [*self._receivers() * 3, *writers]
        for n in range(world.settings.clients):
            Client(world, f"client {n}", servers)
        if world.settings.subjects:
            SubjectClient(world, "subject client", servers)
        BoundaryWriter(world)
        UndoingOperator(world)
        if not world.settings.releases:  # a trimmed journal refuses other features
            TrimmingOperator(world)
        self._rng = world.stream("town")
        world.schedule.after(0, self._inject_faults)

    def _start_processes(self) -> None:
        world, settings = self.world, self.world.settings
        if settings.releases:
            self._manager = ReleaseManager(world, lambda: self._processes)
        self.learners = [Learner(world, f"learner {n}") for n in range(settings.learners)]
        self.deciders = [Decider(world, f"decider {n}") for n in range(settings.deciders)]

    def _receivers(self) -> list[Receiver]:
        return list(self.deciders)

    @property
    def _processes(self) -> list[Process]:
        return [*self.learners, *self.deciders]

    def run(self) -> None:
        """Run while faults may occur."""
        self.world.schedule.run(until=self.world.start + self.world.settings.span)

    def _inject_faults(self) -> None:
        """Inject faults of the store, the clocks and the processes, repeatedly."""
        world, rng, store, faults = self.world, self._rng, self.world.store, self.world.faults
        if not world.active:
            return
        rate = 10 / world.settings.span
        wait, pause = rng.expovariate(rate), rng.expovariate(rate)
        partition = rng.randrange(world.settings.partitions)
        clock, jump = rng.choice(world.clocks), rng.choice([-DAY, DAY])
        draw, is_torn = rng.random(), rng.random() < 0.5
        if store.reachable and faults.strike("store unreachable"):
            store.reachable = False
            world.schedule.after(pause, partial(setattr, store, "reachable", True))
        if faults.strike("killed at any time"):
            self._kill(rng.random())
        if faults.strike("clock jumped a day"):
            clock.offset += jump
            world.store_clock_moved |= clock is world.clocks[0]
        if store.has_snapshot(partition) and faults.strike("snapshot damaged"):
            store.spoil(partition, draw, is_torn)
        records = store.readable(partition)
        if records and faults.strike("record damaged"):
            place = partition, records[int(draw * len(records))].position
            store.veiled[place] = "damaged"
            world.schedule.after(pause, partial(store.veiled.pop, place, None))  # from a backup
        world.schedule.after(wait, self._inject_faults)

    def _kill(self, draw: float) -> None:
        self._processes[int(draw * len(self._processes))].kill()

    def heal(self) -> None:
        """End all faults, then run until every request is answered and every spool delivered."""
        world = self.world
        world.faults.stop()
        world.store.reachable = True
        world.store.veiled.clear()  # restored, and upgraded
        for clock in world.clocks:
            clock.offset = 0
        world.store_clock_moved = True
        self._start_all()
        world.schedule.run()

    def _start_all(self) -> None:
        for process in self._processes:
            if process._bandit is not None and process.bandit.features is not self.world.features:
                process.kill()
            process.start()

    def end(self) -> None:
        """Release what the run holds."""

    def check(self) -> str:
        """Check all laws: at once, and when all windows have ended; return the digest."""
        world = self.world
        check_acknowledged(world)
        check_names(world)
        check_lineage(world)
        self._agree()
        world.pass_windows()
        fold = self._agree()
        check_stamps(world)
        check_requests(world)
        self._check_decisions(fold)
        self._check_modes()
        for name, status in _STATUSES.items():
            world.faults.see(name, fold.counters.get(status, 0))
        return fold.digest

    def _agree(self) -> Fold:
        """L: learners, deciders, a new one, a replay and the oracle agree; return the replay."""
        world = self.world
        processes = [*self._processes, Learner(world, f"newcomer at {world.schedule.now}")]
        for _ in range(2):  # the second time nothing is due: all have read everything
            for process in processes:
                process.bandit.sync()
        replay = replayed(world, world.ends)
        expected = expected_of(replay, world.records)
        for process in processes:
            check_counts(process.name, process.bandit._fold)
            check_same("L", process.name, process.bandit._fold, replay)
            check_estimate(process.name, process.bandit._fold, expected)
        check_oracle(replay, expected)
        check_estimate("a replay", replay, expected)
        check_pages(world, replay)
        world.trace_event("all", f"agree on {replay.digest}")
        return replay

    def _check_decisions(self, fold: Fold) -> None:
        """L: nothing that is due is left."""
        if self.world.settings.rewards.window is not None:
            assert fold.counts["pending"] == fold.counts["dormant"] == 0, "L: not all was settled"

    def _check_modes(self) -> None:
        """L: every bandit obeys the mode that another one has set."""
        for mode in (*MODES, "learn"):
            self._processes[0].bandit.change_mode(mode)
            for process in self._processes:
                bandit = process.bandit
                if bandit.mode != mode:
                    raise Disagreement(f"L: {process.name} does not read the mode {mode}")
                try:
                    decision = bandit.decide(**_offered(bandit, ""))
                except BanditOff:
                    obeyed = mode == "off"
                else:
                    uniform = decision.propensity == 1 / len(_actions(bandit))
                    obeyed = mode != "off" and (mode != "baseline" or uniform)
                if not obeyed:
                    raise Disagreement(f"L: {process.name} does not obey the mode {mode}")
        paused = _actions(self._processes[0].bandit)[0]
        self._processes[0].bandit.pause(paused)
        for process in self._processes:
            bandit = process.bandit
            if bandit.actions[0].state != "paused":
                raise Disagreement(f"L: {process.name} does not read that an action is paused")
            if bandit.decide(**_offered(bandit, "")).action == paused:
                raise Disagreement(f"L: {process.name} chooses a paused action")
        self._processes[0].bandit.resume(paused)
        self._processes[0].bandit.use_model(as_datetime(self.world.store.now()))
        chosen_model = self._processes[0].bandit._fold.chosen
        for process in self._processes:
            bandit = process.bandit
            bandit.sync()
            decision = bandit.decide(**_offered(bandit, ""))
            if chosen_model is None or decision.model != chosen_model.version:
                raise Disagreement(f"L: {process.name} decides with the model {decision.model}")
        self._processes[0].bandit.use_model(None)


def _offered(bandit: Bandit, key: str) -> dict[str, Any]:
    return offered(key, bandit.features, bandit.policy.dim)


def _actions(bandit: Bandit) -> Sequence[int | str]:
    return bandit.features.actions if isinstance(bandit.features, PerArm) else range(3)


#: Consequences of faults that the ledger counts, with its names for them.
_STATUSES = {
    "told twice": "duplicate",
    "reward revised": "revised",
    "reward late": "late",
    "reward expired": "expired",
    "reward orphaned": "orphaned",
    "reward invalid": "invalid",
    "subject rewarded": "credited",
    "rivals under one id": "conflict",
    "decision activated": "activated",
    "decision voided": "voided",
}
