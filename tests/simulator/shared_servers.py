"""Learners of the service that share the partitions: each a worker, and one the merger."""

from __future__ import annotations

import math

from belated.journals import Claim, Snapshot
from belated.learner.partitioned import PartitionFold
from belated.published import PublishedModel
from belated.rewards import retention_us
from belated.service.learning.membership import Membership
from belated.service.learning.shared_learner import SharedLearner
from tests.simulator.checks import Disagreement, check_counts
from tests.simulator.host import Host
from tests.simulator.schedule import SECOND
from tests.simulator.servers import TROUBLE, Server
from tests.simulator.session import SimulatedJournal
from tests.simulator.shared_checks import check_merged
from tests.simulator.world import PLAIN

#: Of the models that are published this share is compared with a replay; the last ones all are.
COMPARED = 0.2


class WorkerServer(Server):
    """A process that works on its share of the partitions."""

    def open(self, host: Host) -> None:
        """Learn what is claimed."""
        world, knobs = self.world, self.world.knobs
        lease = knobs.span / 1e6 / self.rng.choice([5, 20, 50])
        holder = f"{self.name}/{self.rng.random()}"
        coordination = self.store.coordination()
        journal = WorkerJournal(world.store, world.faults)
        journal.server = self
        self.service = SharedLearner(
            journal, coordination, self._empty_fold, holder=holder, lease=lease, runtime=host
        )
        #: What this worker was told that it holds.
        self.told: tuple[int, ...] = ()
        self.membership = _ToldMembership(coordination, holder, lease, host)
        self.membership.server = self
        self.service.worker.membership = self.membership
        self._published = -math.inf
        host.after(self.pause() / SECOND, self._tick)

    def _empty_fold(self, partition: int) -> PartitionFold:
        knobs = self.world.knobs
        return PartitionFold(
            knobs.policy,
            knobs.rewards,
            partitions=knobs.partitions,
            partition=partition,
            retention=retention_us(knobs.retention, knobs.rewards),
            kernels=PLAIN,
            tuning=knobs.tuning,
        )

    def _tick(self) -> None:
        if self.world.active:
            self.work()
            assert self.host is not None
            self.host.after(self.pause() / SECOND, self._tick)

    def work(self) -> None:
        """Do some steps; or end the process, in good order."""
        if not self.runs:
            return
        if self.world.faults.strike("stopped in good order"):
            try:
                self.service.close()
            except TROUBLE as error:
                self.world.trace_event(self.name, error)
            self.stop()
            return
        steps = self.rng.choice([1, 1, 4, 16])
        for _ in range(steps):
            self.step(self.world.faults.strike("worker slept"))

    def step(self, slept: bool = False) -> int:
        """Do a step, maybe one that believes to hold what it held before; returns its work."""
        worker, merger = self.service.worker, self.service.merger
        ends = self.membership._ends, merger.lease._ends
        lost = worker.lost
        if slept and ends[0] > -math.inf:  # it slept after it had looked
            self.membership._ends = math.inf
            merger.lease._ends = math.inf if merger.leads() else ends[1]
        count = 0
        try:
            count = self.service.step()
        except TROUBLE as error:
            self.world.trace_event(self.name, error)
        finally:
            if self.membership._ends == math.inf:
                self.membership._ends = ends[0]
            if merger.lease._ends == math.inf:
                merger.lease._ends = ends[1]
        self.world.faults.see("partition lost", worker.lost - lost)
        self._check()
        return count

    def _check(self) -> None:
        worker = self.service.worker
        for partition, one in worker.owned.items():
            check_counts(f"{self.name}, partition {partition}", one.fold)
        positions = {p: one.fold.position for p, one in sorted(worker.owned.items())}
        self.world.trace_event(self.name, f"at {positions}")
        self._check_published()

    def _check_published(self) -> None:
        """M: what was published just now is what a replay comes to."""
        merger = self.service.merger
        if merger.merging is None or merger._published_at == self._published:
            return
        self._published = merger._published_at
        found = self.store.lead.data
        model = PublishedModel.read(found)
        self.world.faults.see("center moved", int(model.center_n == model.n > 0))
        if self.rng.random() < COMPARED:
            check_merged(self.world, merger.merging, model)
            self.world.trace_event(self.name, f"published {model.positions}")


class _ToldMembership(Membership):
    """Remembers what the worker was told."""

    server: WorkerServer

    def claim(self) -> Claim:
        claim = super().claim()
        self.server.told = claim.partitions
        return claim


class WorkerJournal(SimulatedJournal):
    """The journal of a worker: what it saves must be its own."""

    server: WorkerServer

    def save(self, snapshot: Snapshot) -> None:
        """W: whoever was told that a partition is another's, or is fenced, saves nothing of it."""
        super().save(snapshot)
        partition, worker = snapshot.partition, self.server.service.worker
        if partition not in self.server.told:
            raise Disagreement(f"W: {worker.name} saved partition {partition}, which it had lost")
        held, epoch = worker.owned.get(partition), self._store.epochs[partition]
        if held is None or held.epoch != epoch:
            raise Disagreement(f"W: {worker.name} saved partition {partition} of epoch {epoch}")
