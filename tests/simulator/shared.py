"""One run of the service with several learners that share the partitions of a bandit.

Each learner is a worker, and one of them merges. More invariants must hold than in other runs:

* **M**: a published model is the result of a replay up to its positions.
* **O**: for each partition, the sums with the highest epoch, then position, count.
* **W**: one worker has a partition at a time; a worker that has lost it saves nothing of it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection
from hashlib import blake2b
from itertools import chain

import numpy as np

from belated.core.events import Decision, Erased, Retracted, Reward
from belated.core.inputs import Matrix
from belated.core.rewards import ConversionsOnly
from belated.exceptions import JournalUnavailable
from belated.fold.fold import Fold
from belated.fold.partitioned import Merging, PartitionFold, PartitionSums
from belated.fold.partitioned.aged import AgedMerging, AgedSums
from belated.fold.partitioned.merging import merged_estimate
from belated.fold.published import PublishedModel
from belated.fold.rules import State
from belated.fold.times import REMOVED
from belated.fold.undone import Undone
from belated.fold.weighting.half_life import REACH
from belated.journals.coordination import Claim
from belated.journals.snapshots import Snapshot
from belated.model.families import Gaussian
from belated.model.statistics import FrozenSums, Information
from belated.service.learning.shared_learner import SharedLearner
from tests.brokers import Brokers, Membership
from tests.simulator.checks import (
    Disagreement,
    check_counts,
    check_oracle,
    expected_of,
    fold_settings,
    replayed,
)
from tests.simulator.embedded import TROUBLE
from tests.simulator.host import Host
from tests.simulator.service import (
    Coordination,
    LearningServer,
    ServiceCluster,
    SimulatedStore,
)
from tests.simulator.settings import SECOND
from tests.simulator.store import SimulatedJournal
from tests.simulator.world import World

#: Share of the published models that are compared with a replay; the last ones all are.
COMPARED = 0.2
#: Limit on the seconds, one by one, that learners get to finish their work.
PATIENCE = 500
#: Sums agree to rounding, and so do the estimates made from them.
SUMS, ESTIMATES = 1e-9, 1e-6
#: Digits of the fingerprint of a fold; the rest names what it knew to be undone.
_FINGERPRINT = 32

# --- checks --------------------------------------------------------------------------------------


def check_merged(world: World, merging: Merging, model: PublishedModel) -> None:
    """M: counts exactly, sums and the estimate to rounding.

    Args:
        world: with the records.
        merging: that made the model.
        model: that was published.
    """
    entries = [merging.entries[partition] for partition in world.partitions]
    if model.positions != [entry.position for entry in entries]:
        raise Disagreement(f"M: the model says {model.positions}, and was made of others")
    replay = replayed(world, model.positions, [_undone(world, entry) for entry in entries])
    policy = replay.policy
    by_age = isinstance(merging, AgedMerging)
    parts = [(_check_entry(entry, replay, by_age), entry.center) for entry in entries]
    actual = model.version, model.n, model.pending, model.decisions
    expected = replay.version, replay.model.n, replay.model.pending, replay.model.decisions
    if actual != expected:
        raise Disagreement(f"M: the model counts {actual}, and a replay {expected}")
    # Otherwise rows may be frozen at the estimate of their time.
    exact = isinstance(policy.family, Gaussian) or world.settings.tuning.exact >= 100_000
    if exact and not by_age:
        theta, wanted_theta = model.model(policy).theta, merged_estimate(policy, parts).theta
        if not np.allclose(theta, wanted_theta, rtol=ESTIMATES, atol=ESTIMATES):
            raise Disagreement(f"M: the estimate is {theta}, and that of a replay {wanted_theta}")


def _undone(world: World, entry: PartitionSums) -> Undone | None:
    """Return what the worker knew to be undone, possibly beyond the records up to its position."""
    undo_records = [
        record
        for record in world.store.records(entry.partition)
        if isinstance(record.event, Erased | Retracted)
    ]
    fingerprint = entry.fingerprint[_FINGERPRINT:]
    # Restoring gives a state that existed before: of several equal states it was the latest.
    for count in range(len(undo_records), -1, -1):
        undone = Undone.of(undo_records[:count])
        if fingerprint == ("" if undone is None else undone.digest):
            return undone
    raise Disagreement(f"M: partition {entry.partition} knows of what nobody has undone")


def _check_entry(entry: PartitionSums, replay: Fold, by_age: bool) -> FrozenSums:
    """Compare the sums of a partition with a replay; return the replay's sums of rewards."""
    partition, policy = entry.partition, replay.policy
    ledger = replay.ledgers[partition]
    counts = {state.name.lower(): ledger.counts[state] for state in State}
    counters = {status: count for status, count in ledger.counters.items() if count}
    if (entry.counts, entry.counters) != (counts, counters):
        actual = f"{entry.counts}, {entry.counters}"
        raise Disagreement(f"M: partition {partition} counts {actual}, not {counts}, {counters}")
    assert replay.learner.observed  # folds in what is waiting
    observations = replay.learner.observations[partition]
    if by_age:
        _check_aged(entry, replay)
        return FrozenSums.zero(policy.shape)
    expected, arrived = observations.sums_at(policy.family, entry.center), entry.arrived()
    is_same = arrived.n == expected.n
    for name in ("gram", "cross", "square"):
        is_same &= _close(getattr(arrived.moments, name), getattr(expected.moments, name))
    if not is_same:
        raise Disagreement(f"M: partition {partition} has other sums of rewards")
    if not _close(entry.outstanding().matrix, _outstanding(replay, partition)):
        raise Disagreement(f"M: partition {partition} has other sums of pending decisions")
    return expected


def _check_aged(entry: PartitionSums, replay: Fold) -> None:
    """Compare the sums of observations that count by age, which are of all decisions or rewards."""
    learner, partition, half_life = replay.learner, entry.partition, replay.policy.half_life_us
    observations, began = learner.observations[partition], learner.times[partition].began
    began, (rows, _) = began[began != REMOVED], observations.since(0)
    sums = AgedSums.read(entry.rows, replay.policy.shape)
    matrix = sums.seen
    if isinstance(replay.rewards, ConversionsOnly):
        times, pending, _ = learner.outstanding()[partition]
        rows, began, matrix = np.concatenate([rows, pending]), np.append(began, times), sums.whole
    weights, forgotten = np.ones(len(rows)), 0.0
    if half_life is not None:
        weights, forgotten = np.exp2((began - entry.at) / half_life), len(rows) / 2**REACH
    _, _, slope = replay.policy.family.cumulant_mean_slope(rows @ entry.center)
    expected = Information.of(rows, weights * slope).matrix
    bound = SUMS * max(1.0, float(np.abs(expected).max(initial=0.0)))
    bound += forgotten * float(np.square(rows).max(initial=0.0))
    if int(sums.counts[0]) != observations.n or np.abs(matrix - expected).max() > bound:
        raise Disagreement(f"M: partition {partition} has other sums by age")


def _outstanding(replay: Fold, partition: int) -> Matrix:
    """Return the information of pending decisions, computed from their rows."""
    policy, adapter = replay.policy, replay.adapters[partition]
    numbers = replay.ledgers[partition].numbers(State.PENDING)
    rows, _ = adapter.rows_of(numbers)
    weights = adapter.table.column("weight")[numbers - adapter.table.base]
    if policy.metric == "gram" or policy.family.dispersion is None:
        weights = np.ones(len(rows))
    return Information.of(rows, weights).matrix


def _close(found: Matrix | float, wanted: Matrix | float) -> bool:
    scale = max(1.0, float(np.abs(wanted).max(initial=0.0)))
    return bool(np.allclose(found, wanted, rtol=SUMS, atol=SUMS * scale))


def check_slots(world: World) -> None:
    """X: every record is in the partition that its id names."""
    for record in chain(*world.records):
        event = record.event
        if isinstance(event, Decision | Reward):
            slot = _slot(event.id)
            if slot % world.settings.partitions != record.partition:
                raise Disagreement(f"X: {event} lies in partition {record.partition}: {slot}")


def _slot(id: str) -> int:
    """Return the slot of an id, by the documented format of ids."""
    if len(id) == 32 and id[12] == "7" and not set(id) - set("0123456789abcdef"):
        return int(id[13:16], 16)
    return int(blake2b(id.encode(), digest_size=16).hexdigest()[13:16], 16)


# --- processes -----------------------------------------------------------------------------------


class WorkerServer(LearningServer):
    """A learner that folds its share of the partitions.

    Args:
        world: it lives in.
        store: of the service.
        name: of the process.
        brokers: that assign partitions.
    """

    service: SharedLearner
    membership: NotedMembership

    def __init__(
        self, world: World, store: SimulatedStore, name: str, brokers: SimulatedBrokers
    ) -> None:
        self.brokers = brokers
        super().__init__(world, store, name)

    def open(self, host: Host) -> None:
        """Start the learner."""
        world = self.world
        lease = self.lease()
        holder = f"{self.name}/{self.rng.random()}"
        coordination = SharedCoordination(world, self.store)
        coordination.join = lambda seconds: self._join(holder, seconds, host)
        journal = WorkerJournal(world.store, world.faults)
        journal.server = self
        #: The partitions of the last claim.
        self.claimed: tuple[int, ...] = ()
        self.service = SharedLearner(
            journal, coordination, self._empty_fold, holder=holder, lease=lease, runtime=host
        )
        self._published = -math.inf
        host.after(self.pause() / SECOND, self.tick)

    def _join(self, holder: str, seconds: float, host: Host) -> NotedMembership:
        self.membership = NotedMembership(self.brokers, holder, seconds, host)
        self.membership.server = self
        return self.membership

    def _empty_fold(self, partition: int) -> PartitionFold:
        tuning = self.world.settings.tuning
        return PartitionFold(**fold_settings(self.world), partition=partition, tuning=tuning)

    def learn(self) -> None:
        """Do some steps."""
        for _ in range(self.rng.choice([1, 1, 4, 16])):
            self.step(self.world.faults.strike("worker slept"))

    def step(self, slept: bool = False) -> int:
        """Do a step, possibly one that wrongly assumes what it holds; return how much it did."""
        worker, lease = self.service.worker, self.service.lease
        ends_before = self.membership._ends, lease._ends
        lost_before = worker.lost
        if slept and ends_before[0] > -math.inf:  # it slept after checking
            self.membership._ends = math.inf
            lease._ends = math.inf if self.service.leads() else ends_before[1]
        count = 0
        try:
            count = self.service.step()
        except TROUBLE as error:
            self.world.trace_event(self.name, error)
        finally:
            if self.membership._ends == math.inf:
                self.membership._ends = ends_before[0]
            if lease._ends == math.inf:
                lease._ends = ends_before[1]
        self.world.faults.see("partition lost", worker.lost - lost_before)
        for partition, owned in worker.owned.items():
            check_counts(f"{self.name}, partition {partition}", owned.fold)
        positions = {p: owned.fold.position for p, owned in sorted(worker.owned.items())}
        self.world.trace_event(self.name, f"at {positions}")
        self._check_published()
        return count

    def _check_published(self) -> None:
        """M: a model that was just published equals a replay."""
        learner = self.service
        if learner.merging is None or learner._published_at == self._published:
            return
        self._published = learner._published_at
        model = PublishedModel.read(self.store.lead.data)
        self.world.faults.see("center moved", int(model.center_n == model.n > 0))
        by_age = isinstance(learner.merging, AgedMerging)
        self.world.faults.see("merged by age", int(by_age))
        if self.rng.random() < COMPARED:
            check_merged(self.world, learner.merging, model)
            self.world.trace_event(self.name, f"published {model.positions}")


class SimulatedBrokers(Brokers):
    """Brokers that are unreachable when the store is; their assignments are checked.

    Args:
        world: they live in.
    """

    def __init__(self, world: World) -> None:
        super().__init__(world.settings.partitions, world.store.now)
        self._world = world

    def claim(self, worker: str, seconds: float) -> Claim:
        """Claim partitions: none that a live worker holds."""
        self._reach()
        now = self._world.store.now()
        claims = [
            partitions
            for name, (until, partitions) in self.workers.items()
            if name != worker and until > now
        ]
        claim = super().claim(worker, seconds)
        if any(partition in partitions for partitions in claims for partition in claim.partitions):
            raise Disagreement(f"W: {worker} was given {claim}, and others hold {claims}")
        return claim

    def give_back(self, worker: str, partitions: Collection[int]) -> None:
        """Leave some partitions to others."""
        self._reach()
        super().give_back(worker, partitions)
        self._world.faults.see("partition given back", len(partitions))

    def leave(self, worker: str) -> None:
        """Leave all partitions to others."""
        self._reach()
        super().leave(worker)

    def _reach(self) -> None:
        if not self._world.store.reachable:
            raise JournalUnavailable("the brokers do not answer")


class SharedCoordination(Coordination):
    """The coordination store of a worker whose partitions brokers assign."""

    join: Callable[[float], NotedMembership]

    def join_group(self, seconds: float) -> NotedMembership:
        """Join the workers."""
        return self.join(seconds)


class NotedMembership(Membership):
    """Remembers what the worker has claimed."""

    server: WorkerServer

    def claim(self) -> Claim:
        """Return what the worker holds now."""
        claim = super().claim()
        self.server.claimed = claim.partitions
        return claim


class WorkerJournal(SimulatedJournal):
    """The journal of a worker, which may save only its own partitions."""

    server: WorkerServer

    def save(self, snapshot: Snapshot) -> None:
        """W: a worker that knows it has lost a partition, or is fenced, saves nothing of it."""
        super().save(snapshot)
        partition, worker = snapshot.partition, self.server.service.worker
        if partition not in self.server.claimed:
            raise Disagreement(f"W: {worker.name} saved partition {partition}, which it had lost")
        owned, epoch = worker.owned.get(partition), self._store.epochs[partition]
        if owned is None or owned.epoch != epoch:
            raise Disagreement(f"W: {worker.name} saved partition {partition} of epoch {epoch}")


# --- the run -------------------------------------------------------------------------------------


class SharedCluster(ServiceCluster):
    """All processes and actors of a run whose learners share the partitions."""

    learners: list[WorkerServer]

    def _start_learners(self) -> None:
        numbers = range(self.world.settings.learners)
        self.brokers = SimulatedBrokers(self.world)
        self.learners = [
            WorkerServer(self.world, self.store, f"learner {n}", self.brokers) for n in numbers
        ]

    def _start_all(self) -> None:
        # Claims granted while the store's clock was a day ahead would last a day.
        now, workers = self.world.store.now(), self.brokers.workers
        self.brokers.workers = {name: (min(until, now), p) for name, (until, p) in workers.items()}
        super()._start_all()

    def check(self) -> str:
        """Check all laws of a service, and that every record is in the partition of its id."""
        check_slots(self.world)
        return super().check()

    def _agree(self) -> Fold:
        """M, L: all learners together; then one of them alone, from what the others have saved."""
        self._agree_with(self.learners)
        first, *idle = self.world.stream("the last").sample(self.learners, len(self.learners))
        for worker in idle:
            worker.service.close()
            worker.host.stop()
        replay = self._agree_with([first])
        for worker in idle:
            worker.start()
        return replay

    def _agree_with(self, workers: list[WorkerServer]) -> Fold:
        world = self.world
        replay = replayed(world, self._work(workers))
        leaders = [worker for worker in workers if worker.service.leads()]
        if len(leaders) != 1:
            raise Disagreement(f"L: {len(leaders)} learners merge")
        merging = leaders[0].service.merging
        assert merging is not None
        check_merged(world, merging, PublishedModel.read(self.store.lead.data))
        partitions = [p for worker in workers for p in worker.service.worker.owned]
        if sorted(partitions) != list(world.partitions):
            raise Disagreement(f"W: the workers own {sorted(partitions)}")
        for worker in workers:
            for partition, part in worker.service.worker.owned.items():
                if part.fold.ledgers[partition].digest != replay.ledgers[partition].digest:
                    raise Disagreement(f"H: {worker.name} has other entries in {partition}")
        check_oracle(replay, expected_of(replay, world.records))
        self._check_deciders(replay)
        world.trace_event("all", f"agree on {replay.digest}")
        return replay

    def _work(self, workers: list[WorkerServer]) -> list[int]:
        """Work until a published model includes all records; return the ends of the partitions."""
        world = self.world
        for _ in range(PATIENCE + max(world.ends)):  # a page may be one record
            world.schedule.run(until=world.schedule.now + SECOND)
            for worker in workers:  # nothing renews their leases any more
                worker.membership.doubt([])
                worker.service.lease._ends = -math.inf
            n_steps = sum([worker.step() for worker in workers])
            ends = world.ends
            n_owned = sum(len(worker.service.worker.owned) for worker in workers)
            data = self.store.lead.data
            positions = PublishedModel.read(data).positions if data else []
            merged = [w.service.merging.positions for w in workers if w.service.merging]
            if not n_steps and n_owned == len(ends) and positions == ends and merged == [ends]:
                return ends
        raise Disagreement("L: no model comes to know all records")
