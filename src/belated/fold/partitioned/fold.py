"""The fold of one partition of a journal that several learners share."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from belated.core.rewards import ConversionsOnly, Rewards
from belated.core.tuning import USUAL, Tuning
from belated.features import Features
from belated.fold.fold import Fold
from belated.fold.partitioned.aged import (
    AgedLearner,
    AgedMerging,
    ConversionLearner,
    HalfLifeLearner,
)
from belated.fold.partitioned.center import Center
from belated.fold.partitioned.learner import PartitionLearner
from belated.fold.partitioned.merging import Merging
from belated.fold.partitioned.sums import PartitionSums
from belated.fold.published import PublishedModel
from belated.journals.outcomes import OutcomeLog
from belated.model.kernels import Kernels
from belated.policies import Policy


class PartitionFold(Fold):
    """Folds one partition; snapshots have the same format as those of other folds.

    Args:
        policy: the policy whose model is trained.
        rewards: what a missing reward means.
        features: features for recomputing rows that were computed with other features; None if
            callers pass rows.
        partitions: number of partitions of the journal.
        partition: the partition to fold.
        retention: how long a decision accepts rewards, in microseconds.
        outcomes: where to send outcomes of decisions as they change; None if they are not sent.
        kernels: kernels to use instead of the fastest available.
        tuning: internal sizes.

    >>> from belated import Bernoulli, DelayedUCB, Explicit
    >>> fold = PartitionFold(DelayedUCB(2, Bernoulli()), Explicit(), partitions=4, partition=3)
    >>> fold.sums(epoch=1).position
    0
    """

    learner: PartitionLearner | AgedLearner

    def __init__(
        self,
        policy: Policy,
        rewards: Rewards,
        *,
        features: Features | None = None,
        partitions: int,
        partition: int,
        retention: int | None = None,
        outcomes: OutcomeLog | None = None,
        kernels: Kernels | None = None,
        tuning: Tuning = USUAL,
    ) -> None:
        self.partition = partition
        self._model: PublishedModel | None = None
        super().__init__(
            policy,
            rewards,
            features=features,
            partitions=partitions,
            retention=retention,
            outcomes=outcomes,
            kernels=kernels,
            tuning=tuning,
        )

    @property
    def folded(self) -> Sequence[int]:
        """A tuple with the number of this partition."""
        return (self.partition,)

    @property
    def position(self) -> int:
        """The position of the last folded record."""
        return self.positions[self.partition]

    def _new_learner(self) -> PartitionLearner | AgedLearner:
        sizes: dict[str, Any] = {"kernels": self._kernels, "tuning": self.tuning}
        if isinstance(self.rewards, ConversionsOnly):
            return ConversionLearner(self.policy, self.rewards, **sizes)
        if self.policy.half_life is not None:
            return HalfLifeLearner(self.policy, self.rewards, **sizes)
        return PartitionLearner(self.policy, partitions=self._partitions, **sizes)

    def new_merging(self) -> Merging:
        """Return an object that merges the sums of folds like this one."""
        policy, rewards = self.policy, self.rewards
        if isinstance(self.learner, AgedLearner):
            return AgedMerging(policy, rewards, self._partitions, self.fingerprint)
        return Merging(policy, self._partitions, self.fingerprint)

    def load_model(self, model: PublishedModel) -> None:
        """Expand at a published model's center; use the model if the mode becomes ``freeze``."""
        self._model = model
        if (center := Center.read(model, self.policy.shape)) is not None:
            self.learner.adopt(center)

    def sums(self, epoch: int) -> PartitionSums:
        """Return the sums of the partition.

        Args:
            epoch: the epoch in which this process owns the partition.
        """
        learner, ledger = self.learner, self.ledgers[self.partition]
        rows, pending = learner.sums(), learner.pending_information
        chain = self.chains[self.partition]
        return PartitionSums(
            fingerprint=self.snapshot_fingerprint(self.partition),
            partition=self.partition,
            epoch=epoch,
            position=self.position,
            expanded_at=learner.expanded_at,
            version=self.version,
            decisions=learner.model.decisions,
            pending=learner.model.pending,
            counts=self.counts,
            counters=self.counters,
            shape=learner.theta.shape,
            theta=learner.theta.astype("<f8").tobytes(),
            rows=rows.pack(),
            information=pending.matrix.astype("<f8").tobytes(),
            at=learner.now,
            head=chain.head,
            oldest=ledger.oldest,
            last_stamp=0 if chain.last is None else chain.last.recorded,
            unmatched=self.unmatched,
        )

    def _freeze(self, at: int) -> PublishedModel | None:
        """Return the last published model, which deciders use when the mode becomes ``freeze``."""
        return None if self._model is None else msgspec.structs.replace(self._model, at=at)
