"""One run of the service: deciders, learners with a lease, an operator, and their store."""

from __future__ import annotations

import math
from asyncio import AbstractEventLoop
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple, TypeVar, cast, get_args

import msgspec
import numpy as np

from belated.core.events import (
    ActionChanged,
    Decision,
    Event,
    ModeChanged,
    ModelChosen,
    Reward,
    SubjectReward,
    encode,
)
from belated.core.ids import key_of, partition_of
from belated.core.inputs import Row
from belated.core.rewards import reported_outcome, reported_reward, retention_us
from belated.core.times import duration_us
from belated.decider import MODES, ParsedRequest, check_same
from belated.decider.actions import Change
from belated.decider.requests import parse_request
from belated.exceptions import (
    BanditOff,
    InvalidInput,
    JournalError,
    JournalUnavailable,
    OwnerFenced,
)
from belated.fold.fold import Fold
from belated.fold.partitioned import PartitionSums
from belated.fold.published import PublishedModel
from belated.journals import Journal, SpoolJournal, Store as BaseStore
from belated.journals.cells import Cell, Outcome, cell_name
from belated.journals.coordination import CoordinationStore
from belated.journals.memory import MemoryCells
from belated.journals.spool.journal import Forwarder
from belated.service.learning.learning_service import LearningService
from belated.service.runtime import Runtime
from belated.service.serving.definition import Definition
from belated.service.serving.served_bandits import ServedBandits
from belated.service.serving.spools import LeftSpools, OpensJournals, Recovery
from tests.simulator import checks
from tests.simulator.checks import (
    Disagreement,
    check_counts,
    check_estimate,
    check_one_answer,
    check_oracle,
    check_pages,
    check_sticky,
    expected_of,
    fold_settings,
    replayed,
)
from tests.simulator.embedded import TROUBLE, Cluster
from tests.simulator.faults import Killed
from tests.simulator.host import Host, SimulatedLoop
from tests.simulator.releases import ReleaseManager, offered
from tests.simulator.settings import SECOND
from tests.simulator.store import SessionCells, SimulatedJournal
from tests.simulator.world import (
    PLAIN,
    REFUSED,
    DecisionRequest,
    Disk,
    Receiver,
    Reply,
    Request,
    World,
)

#: Limit on the seconds, one by one, that a learner gets to finish its work.
PATIENCE = 20_000
#: What the operator does to actions.
CHANGES = get_args(Change)
#: The name of the bandit.
BANDIT = "bandit"

# --- the store -----------------------------------------------------------------------------------


class Lead(NamedTuple):
    """The leader of the bandit, and its model.

    Attributes:
        holder: of the lease; empty if nobody has it.
        epoch: in which it leads.
        written: when its heartbeat was written.
        duration: for which that is fresh, in microseconds.
        data: the published model.
    """

    holder: str
    epoch: int
    written: int
    duration: int
    data: bytes

    @property
    def until(self) -> int:
        """The end of the lease."""
        return self.written + self.duration

    def is_held(self, now: int) -> bool:
        """Return whether it is held at a time; a heartbeat of the far future does not count."""
        return self.written - self.duration < now < self.until


class SimulatedStore(BaseStore):
    """A :class:`belated.journals.Store` for all processes of a run.

    Args:
        world: it lives in.
    """

    name = "simulated"
    place = "a simulated store"

    def __init__(self, world: World) -> None:
        self._world = world
        #: The greatest order of all sums that were stored, by partition.
        self.newest: dict[int, tuple[int, int, int]] = {}

    @property
    def lead(self) -> Lead:
        """Return the leader, from the cells."""
        cells, empty_cell = self._world.store.cells, Cell(0, 0, b"")
        names = [cell_name(kind, BANDIT) for kind in ("lease", "model")]
        lease, model = (cells.get(names).get(name, empty_cell) for name in names)
        holder = lease.value.decode()
        heartbeat = cell_name("heartbeat", holder)
        beat = cells.get([heartbeat]).get(heartbeat, empty_cell)
        return Lead(holder, lease.version, beat.written, int(beat.value or 0), model.value)

    def cells(self, *, wait: float = 10.0) -> NotedCells:
        """Open the cells."""
        return NotedCells(self._world, self.newest)

    def journal(
        self, bandit: str = BANDIT, *, partitions: int | None = None, wait: float = 10.0
    ) -> Journal:
        """Open a session."""
        if not self._world.store.reachable:
            raise JournalUnavailable("the store does not answer")
        return SimulatedJournal(self._world.store, self._world.faults)

    def coordination(self, bandit: str = BANDIT, *, wait: float = 10.0) -> Coordination:
        """Open the lease and the published model."""
        return Coordination(self._world, self)


class NotedCells(SessionCells):
    """Cells as a process of the service reaches them; stored values are checked.

    Args:
        world: they live in.
        newest: the greatest order of all sums that were stored, by partition.
    """

    def __init__(self, world: World, newest: dict[int, tuple[int, int, int]]) -> None:
        super().__init__(world.store)
        self._world = world
        self._newest = newest
        self._rng = world.stream("late sums")

    def transact(
        self, expected: Mapping[str, int], puts: Mapping[str, bytes], deletes: Collection[str] = ()
    ) -> Outcome:
        """Change cells; sometimes the outcome for sums is unknown, and they arrive later."""
        if not any(name.startswith("sums/") for name in puts):
            return super().transact(expected, puts, deletes)
        self._reach()
        if self._world.faults.strike("sums late"):
            wait = self._rng.expovariate(20 / self._world.settings.span)
            self._world.schedule.after(wait, lambda: self._store_sums(expected, puts))
            raise JournalUnavailable("the connection broke: nobody knows what is there")
        return self._store_sums(expected, puts)

    def _store_sums(self, expected: Mapping[str, int], puts: Mapping[str, bytes]) -> Outcome:
        """O: the sums of a partition are replaced by those of a higher epoch, then position."""
        outcome = MemoryCells.transact(self, expected, puts)
        for data in puts.values() if outcome.ok else ():
            entry = PartitionSums.read(data)
            newest_order = self._newest.get(entry.partition, entry.order)
            if entry.order < newest_order:
                raise Disagreement(f"O: {entry.order} has replaced {newest_order}")
            self._newest[entry.partition] = entry.order
        return outcome


class Coordination(CoordinationStore):
    """The coordination store, sometimes unreachable; the leases it grants are checked.

    Args:
        world: it lives in.
        store: of the service.
    """

    def __init__(self, world: World, store: SimulatedStore) -> None:
        super().__init__(store.cells(), BANDIT)
        self._world = world
        self._store = store

    def acquire_lease(self, holder: str, seconds: float) -> int | None:
        """Acquire or renew the lease: granted as soon as another's has ended, and not before."""
        lead, now = self._store.lead, self._world.store.now()
        is_free = lead.holder in ("", holder) or not lead.is_held(now)
        epoch = super().acquire_lease(holder, seconds)
        if (epoch is not None) != is_free:
            raise Disagreement(f"L: a lease until {lead.until} was asked for at {now}: {epoch}")
        return epoch

    def publish(self, data: bytes, epoch: int) -> None:
        """Publish a model: refused from former leaders, and never done while frozen."""
        try:
            super().publish(data, epoch)
        except OwnerFenced:
            self._world.faults.see("owner superseded")
            raise
        if epoch != self._store.lead.epoch:
            raise Disagreement("L: one that leads no longer has published a model")
        mode = self._world.store.mode()
        if mode is not None and mode.mode == "freeze":
            raise Disagreement("L: a model was published while the bandit is frozen")

    def close(self) -> None:
        """Do nothing."""


# --- processes -----------------------------------------------------------------------------------


class Server:
    """A process: it starts, dies, and starts again from what is stored.

    Args:
        world: it lives in.
        store: of the service.
        name: of the process.
    """

    def __init__(self, world: World, store: SimulatedStore, name: str) -> None:
        self.world = world
        self.store = store
        self.name = name
        self.rng = world.stream(name)
        self._host: Host | None = None
        self.start()

    @property
    def host(self) -> Host:
        """The host of the process; it stays after its death."""
        assert self._host is not None
        return self._host

    def start(self) -> None:
        """Start the process if it does not run, or retry later."""
        if self._host is not None and self._host.alive:
            return
        self._host = Host(self.world, self.name, self._died)
        self.features = self.world.features
        try:
            self.open(self._host)
        except (Killed, *TROUBLE) as error:
            self.world.trace_event(self.name, f"did not start: {error}")
            self._host.stop()
            self.world.schedule.after(self.pause(), self.start)

    def open(self, host: Host) -> None:
        """Create what the process runs."""
        raise NotImplementedError

    def stop(self, close: Callable[[], object]) -> None:
        """Shut the process down cleanly."""
        try:
            close()
        except TROUBLE as error:
            self.world.trace_event(self.name, error)
        self.host.stop()
        self.world.schedule.after(self.pause(), self.start)

    def pause(self) -> float:
        """Return the microseconds until the next action of the process."""
        return self.rng.expovariate(20 / self.world.settings.span)

    def _died(self) -> None:
        self.world.trace_event(self.name, "killed")
        self.world.schedule.after(self.pause(), self.start)


T = TypeVar("T")


class Spools:
    """The spool of one decider, on its own disk, retried as its thread would do."""

    def __init__(self, world: World, disk: Disk, host: Host) -> None:
        self._world = world
        self._disk = disk
        self._host = host
        self._watching = False

    def forwarder(self) -> Forwarder:
        """Return a forwarder without a thread."""
        return Forwarder(None)

    def open(
        self,
        journal: Journal,
        delivered: Callable[[Sequence[Event], Sequence[int]], None],
        forwarder: Forwarder,
    ) -> SpoolJournal:
        """Put a spool before a journal."""
        self.spool = WatchedSpool(
            journal, self._disk, clock=self._host.clock, delivered=delivered, forwarder=forwarder
        )
        self.spool.watch = self._watch
        self._watch()
        return self.spool

    def recover(self, store: OpensJournals, bandits: Sequence[str], runtime: Runtime) -> Recovery:
        """Recover nothing: no other process uses this disk."""
        return _NothingLeft()

    def _watch(self) -> None:
        status = self.spool.status
        if (status.journal_down or status.queued) and not self._watching:
            self._watching = True
            self._world.faults.see("event spooled", status.queued)
            wait = self._host.pause(1.0) or self._world.settings.span / (20 * SECOND)
            self._host.after(wait, self._deliver)

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
    """A spool without a thread that reports each append."""

    watch: Callable[[], None] = staticmethod(lambda: None)

    def _append_or_spool(self, append: Callable[[], T], spool: Callable[[], T]) -> T:
        try:
            return super()._append_or_spool(append, spool)
        finally:
            self.watch()


class DeciderServer(Server):
    """A decider: it answers when the events of a request are durable."""

    def __init__(self, world: World, store: SimulatedStore, name: str) -> None:
        self._disk = Disk(world.faults, world.stream(f"{name}'s disk"))
        super().__init__(world, store, name)

    def open(self, host: Host) -> None:
        """Serve the bandit."""
        settings, world = self.world.settings, self.world
        retention = retention_us(settings.retention, settings.rewards)
        self.bandits = ServedBandits(
            [
                Definition(
                    BANDIT,
                    world.policy,
                    settings.rewards,
                    features=world.features,
                    retention=retention,
                )
            ],
            self.store,
            cast(AbstractEventLoop, SimulatedLoop(host)),
            host,
            spools=Spools(self.world, self._disk, host) if settings.spooled else None,
            seed=self.rng.getrandbits(32),
            kernels=PLAIN,
            tuning=settings.tuning,
        )
        self.bandit = self.bandits[BANDIT]
        self._made: dict[str, Decision] = {}  # durable, by id: decided since the last start

    def _died(self) -> None:
        if self.rng.random() < 0.5:  # the machine went down, not only the process
            self._disk.lose_power()
        super()._died()

    def receive(self, what: Request, reply: Reply) -> None:
        """Process a request if the process is alive."""
        if self._host is not None:
            self._host.run(partial(self._receive, what, reply))

    def _receive(self, what: Request, reply: Reply) -> None:
        if self.world.faults.strike("stopped in good order"):
            self.stop(self.bandits.close)  # pending events are committed, and nobody is answered
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
            self._submit(what, respond)
        except InvalidInput:
            reply(REFUSED)
        except BanditOff:  # the service polls all the time; here nothing does at the end of a run
            self.poll()

    def _submit(self, what: Request, respond: Callable[[Any], None]) -> None:
        bandit = self.bandit
        if isinstance(what, DecisionRequest):
            request, rows = self._parsed(what)
            data = rows.astype(np.float32).tobytes()
            if what.sticky is not None:
                now = self.host.clock()

                def check(answer: Any) -> None:
                    if not isinstance(answer, Exception):
                        # The clock may have been set back since the request.
                        check_sticky(what, answer[0], min(now, self.host.clock()))
                        answer = list(answer)
                    respond(answer)

                span, parsed = duration_us(what.sticky), (request, data)
                bandit.decide_sticky(what.subject, None, span, lambda: parsed, check)
                return
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
            bandit.append_rewards([reward], respond)
        elif isinstance(what, SubjectReward):
            min_reward, max_reward = bandit.reward_range
            outcome = reported_outcome(
                what.subject,
                what.value,
                what.at_us,
                what.event_id,
                min_reward=min_reward,
                max_reward=max_reward,
            )
            bandit.append_rewards([outcome], respond)
        else:
            bandit.append_event(what, respond)

    def _parsed(self, what: DecisionRequest) -> tuple[ParsedRequest, Row]:
        features, dim = self.bandit.definition.features, self.bandit.definition.policy.dim
        offer = offered(what.key or self.name, features, dim)
        return parse_request(
            offer.get("context"),
            None,
            rows=offer.get("rows"),
            dim=dim,
            features=features,
            id=what.name,
            activated=what.activated,
            subject=what.subject,
        )

    def poll(self) -> None:
        """Read the mode and the model now."""
        poll = self.bandits.poll
        poll._model_due = poll._mode_due = 0.0
        if poll._worker is not None:
            poll._worker.wake()
        for worker in self.host.workers:
            worker.wake()

    def _check_answer(self, what: Request, answer: Any) -> None:
        """X: a decision returned under a name was valid there, and is counted until read."""
        if not isinstance(what, DecisionRequest):
            return
        if len(answer) != what.count:
            raise Disagreement(f"X: {what.count} decisions were asked for, {len(answer)} answered")
        _, rows = self._parsed(what)
        for decision in answer:
            check_same(decision, rows, self.bandit.definition.features)
            if what.name is not None and decision.id != what.name:
                raise Disagreement(f"X: {what.name} was asked for, and {decision.id} answered")
            if what.name is not None and not self.world.settings.spooled:
                if encode(decision) not in self.world.store.stood.get(what.name, ()):
                    raise Disagreement(f"X: {decision} was answered, and never stood")
                check_one_answer(self.world, what.name, answer)
            unapplied = self.bandit.decider.unapplied.get(decision.id)
            if unapplied is not None and unapplied.decision == decision:
                self._made[decision.id] = decision
        self._check_counted()

    def _check_counted(self) -> None:
        """C: a decision made here is pending in the model until a published model has read it."""
        bandit, settings = self.bandit, self.world.settings
        decider, published = bandit.decider, bandit._source._published
        unapplied = {entry.decision.id: entry for entry in decider.unapplied}
        is_limited = settings.tuning.max_unapplied < 20_000  # then older ones are summed up
        for id in list(self._made):
            partition = partition_of(key_of(id), settings.partitions)
            position = unapplied[id].position if id in unapplied else self._position(id)
            if published is not None and 0 < position <= published.positions[partition]:
                del self._made[id]
            elif id not in unapplied and not is_limited:
                raise Disagreement(f"C: {self.name} forgot {id}, which no model has read")
        if decider.mode == "learn" and decider.chosen is None:
            count = sum(entry.counted for entry in decider.unapplied)
            count += len(decider.unapplied) - len(unapplied)
            expected = count + (0 if published is None else published.pending)
            if decider.model.pending != expected:
                message = f"C: {self.name} counts {decider.model.pending} pending, not {expected}"
                raise Disagreement(message)

    def _position(self, id: str) -> int:
        store = self.world.store
        return min(
            (
                record.position
                for record in store.records(partition_of(key_of(id), store.partitions))
                if isinstance(record.event, Decision) and record.event.id == id
            ),
            default=0,
        )


class LearningServer(Server):
    """A process that learns: it works repeatedly, and sometimes shuts down cleanly."""

    service: Any

    def lease(self) -> float:
        """Draw the length of a lease, in seconds."""
        return self.world.settings.span / 1e6 / self.rng.choice([5, 20, 50])

    def tick(self) -> None:
        """Work, then schedule the next tick."""
        if self.world.active:
            self.work()
            self.host.after(self.pause() / SECOND, self.tick)

    def work(self) -> None:
        """Work, or shut down cleanly."""
        if not self.host.alive:
            return
        if self.world.faults.strike("stopped in good order"):
            self.stop(self.service.close)
        else:
            self.learn()

    def learn(self) -> None:
        """Do some steps."""
        raise NotImplementedError


class LearnerServer(LearningServer):
    """A learner with a lease, which is renewed in another thread and sometimes expires.

    Attributes:
        meet: has all learners work at once.
    """

    service: LearningService
    meet: Callable[[], object] = staticmethod(lambda: None)

    def open(self, host: Host) -> None:
        """Start the learner."""
        settings = fold_settings(self.world)
        self.service = LearningService(
            self.store.journal(),
            self.store.coordination(),
            lambda: Fold(**settings),
            holder=f"{self.name}/{self.rng.random()}",
            lease=self.lease(),
            runtime=host,
        )
        host.after(self.pause() / SECOND, self.tick)

    def learn(self) -> None:
        """Do a step, possibly one that wrongly assumes that it holds the lease."""
        lease = self.service.lease
        lease_end, has_slept = lease._ends, self.world.faults.strike("partition taken over")
        if has_slept:
            lease._ends = math.inf  # it slept after checking, and another may lead by now
        try:
            self.service.step()
        except TROUBLE as error:
            self.world.trace_event(self.name, error)
            has_slept = True  # it does nothing until it has the lease
        finally:
            if lease._ends == math.inf:
                lease._ends = lease_end
        self._check(has_slept)
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
        lead, world = self.store.lead, self.world
        if lead.holder == self.service.holder and self.rng.random() < 0.3:
            wait = lead.until - world.store.now()
            if 0 < wait < world.settings.span:
                world.schedule.after(wait, self.meet)


# --- the run -------------------------------------------------------------------------------------


class ServiceCluster(Cluster):
    """All processes and actors of a run with the service."""

    learners: Sequence[LearningServer]  # type: ignore[assignment]
    deciders: list[DeciderServer]  # type: ignore[assignment]

    def _start_processes(self) -> None:
        world, settings = self.world, self.world.settings
        self.store = SimulatedStore(world)
        if settings.releases:
            self._manager = ReleaseManager(world, lambda: [server.host for server in self._servers])
        self._start_learners()
        self.deciders = [
            DeciderServer(world, self.store, f"decider {n}") for n in range(settings.deciders)
        ]
        self._operator = world.stream("operator")
        world.schedule.after(0, self._operate)
        self._models = world.stream("models")
        self._chooses_models = self._models.random() < 0.3
        if self._chooses_models:
            world.schedule.after(0, self._choose_models)

    def _start_learners(self) -> None:
        numbers = range(self.world.settings.learners)
        learners = [LearnerServer(self.world, self.store, f"learner {n}") for n in numbers]
        for learner in learners:
            learner.meet = self._meet
        self.learners = learners

    def _receivers(self) -> list[Receiver]:
        return list(self.deciders)

    @property
    def _servers(self) -> list[Server]:
        return [*self.learners, *self.deciders]

    def _meet(self) -> None:
        """Have all learners work at the moment at which a lease ends."""
        if self.world.active:
            for learner in self.world.stream("order").sample(self.learners, len(self.learners)):
                learner.host.run(learner.work)

    def _operate(self) -> None:
        """Change the mode, or an action, repeatedly."""
        if self.world.active:
            if self._operator.random() < 0.5:
                action, change = self._operator.choice("01"), self._operator.choice(CHANGES)
                self._change_action(action, change)
            self._change_mode(self._operator.choice(["learn", "learn", "learn", *MODES]))
            wait = self._operator.expovariate(5 / self.world.settings.span)
            self.world.schedule.after(wait, self._operate)

    def _choose_models(self) -> None:
        """Choose a model, or the newest again, repeatedly."""
        if self.world.active:
            self._choose_model(self._models.choice([*self._kept(), None]))
            wait = self._models.expovariate(5 / self.world.settings.span)
            self.world.schedule.after(wait, self._choose_models)

    def _kept(self) -> list[PublishedModel]:
        """Return the models that an operator can choose."""
        coordination = CoordinationStore(self.world.store.cells, BANDIT)
        models = [coordination.kept_model(model.version) for model in coordination.kept_models()]
        models.append(self.store.lead.data)
        return [PublishedModel.read(data) for data in models if data]

    def _choose_model(self, model: PublishedModel | None) -> None:
        now = self.world.schedule.now
        if model is None:
            self._act(ModelChosen(now, 0), "use the newest model")
        else:
            event = ModelChosen(now, model.version, model.write())
            self._act(event, f"use the model {model.version}")

    def _change_mode(self, mode: str) -> None:
        self._act(ModeChanged(self.world.schedule.now, mode, ""), mode)

    def _change_action(self, action: str, change: str) -> None:
        self._act(ActionChanged(self.world.schedule.now, action, change), f"{change} {action}")

    def _act(self, event: Event, what: str) -> None:
        world = self.world
        try:
            SimulatedJournal(world.store, world.faults).append([event])
        except (Killed, *TROUBLE) as error:
            world.trace_event("the operator", error)
        else:
            world.trace_event("the operator", what)

    def _kill(self, draw: float) -> None:
        self._servers[int(draw * len(self._servers))].host.kill()

    def _start_all(self) -> None:
        self._change_mode("learn")
        if self._chooses_models:
            self._choose_model(None)
        for action in "01":
            self._change_action(action, "resume")
        for server in self._servers:
            if server.features is not self.world.features:
                server.host.kill()
            server.start()
        self._poll()

    def _poll(self) -> None:
        """Have every decider read the mode and the model, and deliver its spool."""
        for decider in self.deciders:
            decider.poll()
        self.world.schedule.run()

    def end(self) -> None:
        """Stop all processes."""
        for server in self._servers:
            server.host.stop()

    def _agree(self) -> Fold:
        """L: whoever leads, each decider has its model: that of a replay, and of the oracle."""
        world = self.world
        for learner in self.learners:  # each leads once, from the snapshot of the one before
            service = learner.service
            for _ in range(PATIENCE):
                world.schedule.run(until=world.schedule.now + SECOND)
                try:
                    count = service.step()
                except JournalUnavailable:  # a snapshot that was written while there were faults
                    continue
                if count == 0 and service.fold is not None and service._fit is None:
                    break
            if service.fold is None:
                raise Disagreement(f"L: {learner.name} does not lead, though nobody else does")
            fold = service.fold
            replay = replayed(world, world.ends)
            check_counts(learner.name, fold)
            checks.check_same("L", learner.name, fold, replay)
            expected = expected_of(replay, world.records)
            check_oracle(fold, expected)
            check_estimate(learner.name, fold, expected)
            check_estimate("a replay", replay, expected)
            self._check_deciders(fold)
            fold.save(service.journal)
            service.lease.close()
            service._stand_by()
        check_pages(world, replay)
        world.trace_event("all", f"agree on {replay.digest}")
        return replay

    def _check_deciders(self, fold: Fold) -> None:
        """L: the model of every decider is that of a fold."""
        self._poll()
        for decider in self.deciders:
            bandit = decider.bandit
            model = bandit.decider.model
            actual = len(bandit.decider.unapplied), bandit.version, model.n, model.pending
            expected = 0, fold.version, fold.model.n, fold.model.pending
            if actual != expected:
                raise Disagreement(f"L: {decider.name} has {actual}, and should have {expected}")

    def _check_decisions(self, fold: Fold) -> None:
        """L: what a decider returns about a decision is what the learner knows."""
        store = self.world.store
        ids = {
            record.event.id
            for partition in self.world.partitions
            for record in store.readable(partition)
            if isinstance(record.event, Decision)
        } - store.forgotten
        bandit = self.deciders[0].bandit
        for id in sorted(ids):
            entry = fold.entry(id)
            history = bandit._read_history(id, bandit._reader)
            if entry is None or history.forgotten or history.incomplete:
                continue
            if history.state != entry.state:
                raise Disagreement(f"L: {id} is told {history.state}, and is {entry.state}")

    def _check_modes(self) -> None:
        """L: every decider obeys the mode in the journal."""
        world = self.world
        for mode in (*MODES, "learn"):
            self._change_mode(mode)
            self._poll()
            for decider in self.deciders:
                if decider.bandit.decider.mode != mode:
                    raise Disagreement(f"L: {decider.name} does not obey the mode {mode}")
                model_before = decider.bandit.decider.model.decided.copy()
                propensities: list[float] = []
                name = f"{decider.name} in mode {mode} at {world.schedule.now}"
                decider.receive(DecisionRequest(name), partial(_note_propensity, propensities))
                world.schedule.run()
                equal = (model_before == decider.bandit.decider.model.decided).all()
                is_obeyed = {
                    "off": not propensities,
                    "baseline": propensities == [1 / len(self._actions)],
                    "freeze": bool(propensities) and equal,
                    "learn": bool(propensities),
                }
                if not is_obeyed[mode]:
                    raise Disagreement(f"L: {decider.name} in mode {mode}: {propensities}, {equal}")
        self._check_actions()
        self._check_chosen_models()

    def _check_chosen_models(self) -> None:
        """L: every decider uses the chosen model, although newer ones are published."""
        models = self._kept()
        usable = [model for model in models if model.features == models[-1].features]
        for model in (*usable[-2:], None):
            self._choose_model(model)
            self._poll()
            newest = PublishedModel.read(self.store.lead.data)
            newest = msgspec.structs.replace(newest, version=newest.version + 1)
            name = cell_name("model", BANDIT)
            self.world.store.cells.transact({}, {name: newest.write()})
            self._poll()
            chosen_model = newest if model is None else model
            for decider in self.deciders:
                decisions: list[Decision] = []
                decider.receive(DecisionRequest(None, count=2), partial(_note_made, decisions))
                self.world.schedule.run()
                versions = {decision.model for decision in decisions}
                theta = decider.bandit.decider.model.theta.astype("<f8")
                if versions != {chosen_model.version} or theta.tobytes() != chosen_model.theta:
                    message = f"L: {decider.name} decides with the models {versions}"
                    raise Disagreement(f"{message}, and should with {chosen_model.version}")

    @property
    def _actions(self) -> Sequence[int | str]:
        features = self.world.features
        return range(3) if features is None else features.actions

    def _check_actions(self) -> None:
        """L: no decider chooses a paused action."""
        *paused, last_action = self._actions
        for change in ("pause", "resume"):
            for action in paused:
                self._change_action(str(action), change)
            self._poll()
            for decider in self.deciders:
                decisions: list[Decision] = []
                decider.receive(DecisionRequest(None, count=5), partial(_note_made, decisions))
                self.world.schedule.run()
                chosen_actions = {decision.action for decision in decisions}
                if not chosen_actions or (change == "pause" and chosen_actions != {last_action}):
                    raise Disagreement(f"L: {decider.name} chooses {chosen_actions} after {change}")


def _note_made(made: list[Decision], answer: object) -> None:
    assert isinstance(answer, list)
    made.extend(answer)


def _note_propensity(propensities: list[float], answer: object) -> None:
    assert isinstance(answer, list)
    propensities.extend(decision.propensity for decision in answer)
