"""Processes of the service: deciders with a served bandit, learners with a lease."""

from __future__ import annotations

import math
from asyncio import AbstractEventLoop
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, TypeVar, cast

import numpy as np

from belated.decider import ParsedRequest, check_same
from belated.events import Decision, Event, Reward, encode
from belated.exceptions import (
    BanditOff,
    CorruptEvent,
    InvalidInput,
    JournalError,
    JournalUnavailable,
    OwnerFenced,
    UnknownEvent,
)
from belated.ids import key_of, partition_of
from belated.journals import Journal, SpoolJournal
from belated.journals.spool.line import Line
from belated.learner import Fold
from belated.rewards import reported_reward, retention_us
from belated.service.learning.learning_service import LearningService
from belated.service.runtime import Runtime
from belated.service.serving.definition import Definition
from belated.service.serving.served_bandits import ServedBandits
from belated.service.serving.spool_recovery import LeftSpools, OpensJournals
from belated.service.serving.spools import Recovery
from tests.simulator.checks import (
    Disagreement,
    check_counts,
    check_one_answer,
    empty_fold,
)
from tests.simulator.disk import Disk
from tests.simulator.faults import Killed
from tests.simulator.host import Host
from tests.simulator.loop import SimulatedLoop
from tests.simulator.messages import REFUSED, DecisionRequest, Reply, Request, rows_of
from tests.simulator.schedule import SECOND
from tests.simulator.service_store import SimulatedStore
from tests.simulator.world import PLAIN, World

#: What a process lives through, and tries again.
TROUBLE = (JournalUnavailable, OwnerFenced, CorruptEvent, UnknownEvent)


class Server:
    """A process: it starts, dies, and starts again from what is stored.

    Args:
        world: it lives in.
        store: where everything is.
        name: of the process.
    """

    def __init__(self, world: World, store: SimulatedStore, name: str) -> None:
        self.world = world
        self.store = store
        self.name = name
        self.rng = world.stream(name)
        self.host: Host | None = None
        self.start()

    @property
    def runs(self) -> bool:
        """Whether the process lives."""
        return self.host is not None and self.host.alive

    def start(self) -> None:
        """Start the process if it does not run; or later, if it cannot."""
        if self.runs:
            return
        self.host = Host(self.world, self.name, self._died)
        try:
            self.open(self.host)
        except (Killed, *TROUBLE) as error:
            self.world.trace_event(self.name, f"did not start: {error}")
            self.host.stop()
            self.world.schedule.after(self.pause(), self.start)

    def open(self, host: Host) -> None:
        """Make what the process runs."""
        raise NotImplementedError

    def stop(self) -> None:
        """End the process."""
        assert self.host is not None
        self.host.stop()
        self.world.schedule.after(self.pause(), self.start)

    def pause(self) -> float:
        """Return how long until something happens."""
        return self.rng.expovariate(20 / self.world.knobs.span)

    def _died(self) -> None:
        self.world.trace_event(self.name, "killed")
        self.world.schedule.after(self.pause(), self.start)


T = TypeVar("T")


class Spools:
    """The spool of one decider, on its own disk; it is watched as its thread would do."""

    def __init__(self, world: World, disk: Disk, host: Host) -> None:
        self._world = world
        self._disk = disk
        self._host = host
        self._watching = False

    def line(self) -> Line:
        """Without a thread."""
        return Line(None)

    def open(
        self,
        journal: Journal,
        delivered: Callable[[Sequence[Event], Sequence[int]], None],
        line: Line,
    ) -> SpoolJournal:
        """Put a spool before a journal."""
        self.spool = WatchedSpool(
            journal, self._disk, clock=self._host.clock, delivered=delivered, line=line
        )
        self.spool.watch = self._watch
        self._watch()
        return self.spool

    def recover(self, store: OpensJournals, bandits: Sequence[str], runtime: Runtime) -> Recovery:
        """No other process leaves anything on this disk."""
        return _NothingLeft()

    def _watch(self) -> None:
        """Try again as long as anything waits."""
        status = self.spool.status
        if (status.journal_down or status.queued) and not self._watching:
            self._watching = True
            self._world.faults.see("event spooled", status.queued)
            rest = self._host.pause(1.0) or self._world.knobs.span / (20 * SECOND)
            self._host.after(rest, self._deliver)

    def _deliver(self) -> None:
        self._watching = False
        self.spool.forward()
        self._watch()


class _NothingLeft:
    def left(self, bandit: str) -> LeftSpools:
        return LeftSpools(files=0, events=0)

    def stop(self, seconds: float | None = None) -> None:
        pass


class WatchedSpool(SpoolJournal):
    """A spool without a thread, that says when something was appended."""

    watch: Callable[[], None] = staticmethod(lambda: None)

    def _keep(self, append: Callable[[], T], spool: Callable[[], T]) -> T:
        try:
            return super()._keep(append, spool)
        finally:
            self.watch()


class DeciderServer(Server):
    """A decider: requests come in, answers go out when they are durable."""

    def __init__(self, world: World, store: SimulatedStore, name: str) -> None:
        self._disk = Disk(world.faults, world.stream(f"{name}'s disk"))
        super().__init__(world, store, name)

    def open(self, host: Host) -> None:
        """Serve the bandit."""
        knobs = self.world.knobs
        retention = retention_us(knobs.retention, knobs.rewards)
        self.loop = cast(AbstractEventLoop, SimulatedLoop(host))
        self.bandits = ServedBandits(
            [Definition("default", knobs.policy, knobs.rewards, retention=retention)],
            self.store,
            self.loop,
            host,
            spools=Spools(self.world, self._disk, host) if knobs.spooled else None,
            seed=self.rng.getrandbits(32),
            kernels=PLAIN,
            tuning=knobs.tuning,
        )
        self.bandit = self.bandits["default"]
        self._made: dict[str, Decision] = {}  # durable, by id: decided in this life

    def _died(self) -> None:
        if self.rng.random() < 0.5:  # the machine went down, not the process alone
            self._disk.lose_power()
        super()._died()

    def receive(self, what: Request, reply: Reply) -> None:
        """Answer, or not."""
        if self.host is not None:
            self.host.run(partial(self._receive, what, reply))

    def _receive(self, what: Request, reply: Reply) -> None:
        if self.world.faults.strike("stopped in good order"):
            self._close()
            return

        def respond(answer: Any) -> None:
            if isinstance(answer, InvalidInput):
                reply(REFUSED)
            elif isinstance(answer, Exception):
                if not isinstance(answer, JournalError | BanditOff):
                    raise answer  # a bug
            else:
                self._check_answer(what, answer)
                reply(answer if isinstance(what, DecisionRequest) else "accepted")

        try:
            self._ask(what, respond)
        except InvalidInput:
            reply(REFUSED)
        except BanditOff:  # it polls all the time, at the end of a run too
            self.poll()

    def _ask(self, what: Request, respond: Callable[[Any], None]) -> None:
        bandit = self.bandit
        if isinstance(what, DecisionRequest):
            rows = rows_of(what.name or self.name, bandit.definition.policy.dim)
            request = ParsedRequest(len(rows), None, what.name, activated=what.activated)
            data = rows.astype(np.float32).tobytes()
            bandit.decide([request] * what.count, [data] * what.count, respond)
        elif isinstance(what, Reward):
            min_reward, max_reward = bandit.reward_range
            reward = reported_reward(
                what.id,
                what.value,
                what.at_us,
                what.part,
                what.revision,
                min_reward=min_reward,
                max_reward=max_reward,
            )
            bandit.report([reward], respond)
        else:
            bandit.append_event(what, respond)

    def poll(self) -> None:
        """Look at the mode and the model now."""
        assert self.host is not None
        self.bandits.poll.look_now()
        for worker in self.host.workers:
            worker.wake()

    def _close(self) -> None:
        """Stop in good order: what waits is committed, and answered by nobody."""
        try:
            self.bandits.close()
        except TROUBLE as error:
            self.world.trace_event(self.name, error)
        self.stop()

    # --- laws ------------------------------------------------------------------------------------

    def _check_answer(self, what: Request, answer: Any) -> None:
        """X: a decision that is answered under a name stood there, and is counted until read."""
        if not isinstance(what, DecisionRequest):
            return
        if len(answer) != what.count:
            raise Disagreement(f"X: {what.count} decisions were asked for, {len(answer)} answered")
        rows = rows_of(what.name or self.name, self.world.knobs.policy.dim)
        for decision in answer:
            check_same(decision, rows)
            if what.name is not None and decision.id != what.name:
                raise Disagreement(f"X: {what.name} was asked for, and {decision.id} answered")
            if what.name is not None and not self.world.knobs.spooled:
                stood = self.world.store.stood.get(what.name, ())
                if encode(decision) not in stood:
                    raise Disagreement(f"X: {decision} was answered, and never stood")
                check_one_answer(self.world, what.name, answer)
            held = self.bandit.decider.unapplied.get(decision.id)
            if held is not None and held.decision == decision:
                self._made[decision.id] = decision
        self.check_counted()

    def check_counted(self) -> None:
        """C: what was decided here and no model has read is pending in the model."""
        bandit, knobs = self.bandit, self.world.knobs
        decider, published = bandit.decider, bandit._source._published
        held = {one.decision.id: one for one in decider.unapplied}
        few = knobs.tuning.max_unapplied < 20_000  # then older ones are sums, and not found
        for id in list(self._made):
            partition = partition_of(key_of(id), knobs.partitions)
            position = held[id].position if id in held else self._position(id)
            if published is not None and 0 < position <= published.positions[partition]:
                del self._made[id]
            elif id not in held and not few:
                raise Disagreement(f"C: {self.name} forgot {id}, which no model has read")
        if decider.mode == "learn":
            live = sum(one.counted for one in decider.unapplied)
            live += len(decider.unapplied) - len(held)
            wanted = live + (0 if published is None else published.pending)
            if decider.model.pending != wanted:
                message = f"C: {self.name} counts {decider.model.pending} pending, not {wanted}"
                raise Disagreement(message)

    def _position(self, id: str) -> int:
        store = self.world.store
        records = store.records(partition_of(key_of(id), store.partitions))
        made = (one for one in records if isinstance(one.event, Decision) and one.event.id == id)
        return min((one.position for one in made), default=0)


class LearnerServer(Server):
    """A learner of the service; its lease is renewed beside it, and ends now and then."""

    def open(self, host: Host) -> None:
        """Learn, when it leads."""
        knobs = self.world.knobs
        self.service = LearningService(
            SimulatedStore.journal(self.store),
            self.store.coordination(),
            self._empty_fold,
            holder=f"{self.name}/{self.rng.random()}",
            lease=knobs.span / 1e6 / self.rng.choice([5, 20, 50]),
            runtime=host,
        )
        host.after(self.pause() / SECOND, self._tick)

    def _empty_fold(self) -> Fold:
        return empty_fold(self.world)

    def _tick(self) -> None:
        if self.world.active:
            self.work()
            assert self.host is not None
            self.host.after(self.pause() / SECOND, self._tick)

    def work(self) -> None:
        """Do a step; or end the process, in good order."""
        if not self.runs:
            return
        if self.world.faults.strike("stopped in good order"):
            try:
                self.service.close()
            except TROUBLE as error:
                self.world.trace_event(self.name, error)
            self.stop()
            return
        lease = self.service.lease
        ends, slept = lease._ends, self.world.faults.strike("partition taken over")
        if slept:
            lease._ends = math.inf  # it slept after it had looked, and another may lead by now
        try:
            self.service.step()
        except TROUBLE as error:
            self.world.trace_event(self.name, error)
            slept = True  # it does nothing until it has the lease
        finally:
            if lease._ends == math.inf:
                lease._ends = ends
        self._check(slept)
        self._meet_at_the_end_of_the_lease()

    def _check(self, slept: bool) -> None:
        fold, lead = self.service.fold, self.store.lead
        if fold is None:
            return
        check_counts(self.name, fold)
        self.world.trace_event(self.name, f"at {fold.positions}: {fold.digest}")
        if not slept and not self.world.store_clock_moved and lead.holder != self.service.holder:
            raise Disagreement(f"L: {self.name} leads, and so does {lead.holder}")

    def _meet_at_the_end_of_the_lease(self) -> None:
        """All learners look at the very moment at which a lease ends."""
        lead, world = self.store.lead, self.world
        if lead.holder == self.service.holder and self.rng.random() < 0.3:
            wait = lead.until - world.store.now()
            if 0 < wait < world.knobs.span:
                world.schedule.after(wait, partial(world.meet, "learners"))
