"""Merge the sums of all partitions into one model."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

import msgspec
import numpy as np

from belated.advice.issues import Noticed, of_counters
from belated.core.inputs import Vector
from belated.fold.learner import Learner
from belated.fold.partitioned.center import Center
from belated.fold.partitioned.sums import PartitionSums
from belated.fold.published import PublishedModel
from belated.journals.chain import Head, join_heads
from belated.model.blocks import product, solve
from belated.model.estimators import Estimate, Laplace, newton_step
from belated.model.estimators.ridge import gaussian_posterior
from belated.model.families import Gaussian
from belated.model.model import Model
from belated.model.statistics import FrozenSums, Information
from belated.policies import Policy


class Merging:
    """Holds one entry for each partition, and computes the model from the sum of all entries.

    The estimate is one Newton step from the :attr:`center`, which is the last published θ. The
    partitions expand their log-likelihoods at this θ. θ̂, the roots, the dispersion and an
    estimated ridge are not additive, so they are computed from the merged sums.

    Args:
        policy: the policy of the model.
        partitions: number of partitions of the journal.
        fingerprint: the fingerprint of the folds; entries from other folds are ignored.

    Attributes:
        entries: the current entry of each partition.
        center: the center at which the partitions should expand.
    """

    def __init__(self, policy: Policy, partitions: int, fingerprint: str) -> None:
        self.policy = policy
        self._partitions = partitions
        self._fingerprint = fingerprint
        self.entries: dict[int, PartitionSums] = {}
        self.center = Center(policy.start.mean)

    def take(self, entry: PartitionSums) -> bool:
        """Add an entry, unless the current one is at least as recent.

        Returns:
            Whether the entry was added.
        """
        last = self.entries.get(entry.partition)
        foreign = not entry.fingerprint.startswith(self._fingerprint)
        if foreign or (last is not None and entry.order <= last.order):
            return False
        self.entries[entry.partition] = entry
        return True

    @property
    def is_whole(self) -> bool:
        """Whether every partition has an entry."""
        return len(self.entries) == self._partitions

    @property
    def positions(self) -> list[int]:
        """The position of each partition's last record."""
        return [entry.position for entry in self._all()]

    @property
    def counts(self) -> dict[str, int]:
        """Number of decisions by state, over all partitions."""
        total: Counter[str] = Counter()
        for entry in self._all():
            total.update(entry.counts)
        return dict(total)

    @property
    def counters(self) -> dict[str, int]:
        """Number of events by status, over all partitions."""
        total: Counter[str] = Counter()
        for entry in self._all():
            total.update(entry.counters)
        return dict(sorted(total.items()))

    @property
    def unmatched(self) -> dict[str, int]:
        """Number of unknown decision ids that events refer to, by reporter of the first event."""
        total: Counter[str] = Counter()
        for entry in self._all():
            total.update(entry.unmatched)
        return dict(total)

    @property
    def noticed(self) -> dict[str, Noticed]:
        """Issues with the events in the journal."""
        return of_counters(self.counters)

    @property
    def oldest(self) -> int | None:
        """When the oldest pending decision was recorded; None if there is none."""
        times = (entry.oldest for entry in self._all())
        return min((time for time in times if time is not None), default=None)

    def export_model(self, at: int) -> PublishedModel:
        """Return the model of all partitions; with enough new data, move the center to its θ.

        Args:
            at: the time, in microseconds since 1970.
        """
        model, entries = self._merge(self._all()), self._all()
        return msgspec.structs.replace(
            PublishedModel.of(
                model,
                self.policy,
                positions=self.positions,
                version=sum(entry.version for entry in entries),
                at=at,
                head=self._head(),
                unmatched=self.unmatched,
                issues=self.noticed,
            ),
            center=self.center.write(),
            center_number=self.center.number,
            center_n=self.center.n,
        )

    def _merge(self, entries: Sequence[PartitionSums]) -> Model:
        """Return the model of all partitions; with enough new data, move the center."""
        parts = [(entry.arrived(), entry.center) for entry in entries]
        estimate = merged_estimate(self.policy, parts)
        pending = sum(
            (entry.outstanding() for entry in entries), Information.zero(self.policy.shape)
        )
        learner = _MergedLearner(self.policy)
        arrived = sum((sums for sums, _ in parts), FrozenSums.zero(self.policy.shape))
        learner.take(estimate, arrived, pending, sum(entry.decisions for entry in entries))
        self._move_center(estimate)
        return learner.model

    def go_on_from(self, model: PublishedModel) -> None:
        """Continue from the center of a model that another learner published."""
        self.center = Center.read(model, self.policy.shape) or self.center

    def _move_center(self, estimate: Estimate) -> None:
        """Move the center if there are enough new rewards or a partition used its own estimate."""
        number, n = self.center.number, self.center.n
        alone = any(entry.expanded_at == 0 for entry in self._all())
        grown = estimate.n >= Laplace().next_fit(n, self.policy.shape)
        if isinstance(self.policy.family, Gaussian) or not estimate.n:
            return
        if grown or (alone and estimate.n > n) or not estimate.converged:
            self.center = Center(estimate.theta, number + 1, estimate.n)

    def _all(self) -> list[PartitionSums]:
        return [self.entries[partition] for partition in sorted(self.entries)]

    def _head(self) -> str:
        heads = [entry.head for entry in self._all()]
        return str(Head(tuple(self.positions), join_heads(heads))) if all(heads) else ""


def merged_estimate(policy: Policy, parts: Sequence[tuple[FrozenSums, Vector]]) -> Estimate:
    """Return the estimate from sums, which is one Newton step from the points of expansion.

    If rewards were expected to be rare but many have arrived, the step goes far beyond the maximum;
    for Poisson rewards, e^η may even overflow. A step of more than one standard deviation per
    coefficient is therefore shortened from m to 1 + log m, where m bounds the change of any row's
    linear predictor. For a single Poisson reward, this leads to the maximum. A shortened estimate
    has not converged, and the next step starts from it.

    Args:
        policy: the policy of the model.
        parts: the sums of each partition, with the θ at which they were expanded.
    """
    arrived = sum((sums for sums, _ in parts), FrozenSums.zero(policy.shape))
    if isinstance(policy.family, Gaussian):
        return gaussian_posterior(arrived.moments, policy.family, policy.start)
    estimate = newton_step(arrived.likelihood, family=policy.family, prior=policy.start)
    prior, precision = estimate.prior, estimate.precision
    start = product(prior.precision, prior.mean)
    for sums, theta in parts:
        start = start + product(sums.likelihood.information, theta) / estimate.dispersion
    start = solve(precision, start)  # the weighted mean of the expansion points
    step = estimate.theta - start
    if np.vdot(step, product(precision, step)) <= step.size:
        return estimate
    bound = max(1.0, math.sqrt(np.vdot(step, product(arrived.moments.gram, step))))
    theta = start + step * ((1.0 + math.log(bound)) / bound)
    return replace(estimate, theta=theta, mean=theta, converged=bound == 1.0)


class _MergedLearner(Learner):
    """Computes the roots of a model from sums collected by other processes."""

    def take(
        self, estimate: Estimate, arrived: FrozenSums, pending: Information, decisions: int
    ) -> Model:
        model, weighting = self.model, self.weighting
        weighting.pending = pending
        weighting.counted = self.policy.start.precision + arrived.moments.gram
        weighting.go_on_from(estimate, arrived)
        model.n, model.pending, model.decisions = arrived.n, pending.count, decisions
        return model
