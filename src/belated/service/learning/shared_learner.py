"""One of several learners of a bandit: a worker for some partitions, and a merger if it leads."""

from __future__ import annotations

from collections.abc import Callable

from belated.features import Features
from belated.fold.partitioned import PartitionFold
from belated.journals import CoordinationStore, Journal
from belated.service.learning.lease import SECONDS as LEASE
from belated.service.learning.lease import LeaseRenewal, new_holder
from belated.service.learning.merger import Merger
from belated.service.learning.partition_worker import PartitionWorker
from belated.service.runtime import Runtime, ThreadRuntime


class SharedLearner:
    """Works on its share of the partitions; one of all learners merges, too.

    Call :meth:`step` again and again. Start as many as there are cores for: the partitions are
    shared among them, and those of one that dies go to the others.

    Args:
        journal: of the bandit.
        coordination: where learners share the work, and models are published.
        fold: makes an empty fold of a partition.
        features: what makes rows, if anything does: the journal is told.
        holder: the name of this learner; one that no other has if None.
        lease: seconds for which a learner that has died is missed.
        shelf: the same journal, opened once more: snapshots are written to it. If None, the journal
            itself.
        runtime: time and threads; real ones if None.
        renewal: renews the leases of all learners of the process; if None, that of this one.

    Attributes:
        worker: for partitions.
        merger: of all of them, if this learner leads.
    """

    def __init__(
        self,
        journal: Journal,
        coordination: CoordinationStore,
        fold: Callable[[int], PartitionFold],
        *,
        features: Features | None = None,
        holder: str | None = None,
        lease: float = LEASE,
        shelf: Journal | None = None,
        runtime: Runtime | None = None,
        renewal: LeaseRenewal | None = None,
    ) -> None:
        runtime = runtime or ThreadRuntime()
        self.coordination = coordination
        self.holder = holder or new_holder()
        self.worker = PartitionWorker(
            journal,
            coordination,
            fold,
            name=self.holder,
            session=lease,
            shelf=shelf,
            runtime=runtime,
        )
        self.merger = Merger(
            journal,
            coordination,
            fold,
            name=self.holder,
            features=features,
            lease=lease,
            runtime=runtime,
            renewal=renewal,
        )

    @property
    def epoch(self) -> int:
        """In which this learner leads; 0 if another does."""
        return self.merger.epoch

    def leads(self) -> bool:
        """Whether it is this one that merges and publishes."""
        return self.merger.leads()

    def step(self) -> int:
        """Do what is due; returns how much that was, 0 if it can rest."""
        try:
            return self.worker.step()
        finally:  # a record that a worker cannot read does not keep others' sums from deciders
            self.merger.step()

    def close(self, *, save: bool = True) -> None:
        """Save, leave partitions and lead to others, and let go of everything.

        Args:
            save: False if a fold may be half changed: an error came in the middle of a step.
        """
        self.merger.close()
        self.worker.close(save=save)
        self.coordination.close()
