"""The sums of all partitions, merged into one model."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

import msgspec
import numpy as np

from belated.advice.issues import Noticed, of_counters
from belated.core.inputs import Vector
from belated.fold.learner import Learner
from belated.fold.partitioned.learner import check_mergeable
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


class Center(NamedTuple):
    """The θ at which all partitions expand, its number, and how many rewards it knows."""

    theta: Vector
    number: int
    n: int


class Merging:
    """Holds one entry for each partition, and makes the model of their sum.

    The estimate is one Newton step from the :attr:`center`: the θ that was published last, and at
    which the partitions expanded their log-likelihoods. θ̂, the roots, the dispersion and an
    estimated ridge do not add: they are made here.

    Args:
        policy: whose model it is.
        partitions: of the journal.
        fingerprint: of the folds; what others made is ignored.

    Attributes:
        entries: by partition, the one that counts.
        center: where the partitions are to expand.
    """

    def __init__(self, policy: Policy, partitions: int, fingerprint: str) -> None:
        check_mergeable(policy)
        self.policy = policy
        self._partitions = partitions
        self._fingerprint = fingerprint
        self.entries: dict[int, PartitionSums] = {}
        self.center = Center(policy.start.mean, 0, 0)

    def take(self, entry: PartitionSums) -> bool:
        """Let an entry count, unless one of a later epoch or position does; returns whether."""
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
        """Of the last record in the entry of each partition."""
        return [entry.position for entry in self._all()]

    @property
    def counts(self) -> dict[str, int]:
        """Decisions by state, over all partitions."""
        total: Counter[str] = Counter()
        for entry in self._all():
            total.update(entry.counts)
        return dict(total)

    @property
    def counters(self) -> dict[str, int]:
        """Events by what they meant, over all partitions."""
        total: Counter[str] = Counter()
        for entry in self._all():
            total.update(entry.counters)
        return dict(sorted(total.items()))

    @property
    def unmatched(self) -> dict[str, int]:
        """Number of ids whose decision is not known, by the reporter of their first event."""
        total: Counter[str] = Counter()
        for entry in self._all():
            total.update(entry.unmatched)
        return dict(total)

    @property
    def noticed(self) -> dict[str, Noticed]:
        """The issues among the events of the journal."""
        return of_counters(self.counters)

    @property
    def oldest(self) -> int | None:
        """When the journal took the oldest pending decision; None if there is none."""
        return min((one.oldest for one in self._all() if one.oldest is not None), default=None)

    def estimate(self) -> Estimate:
        """Return the estimate of all partitions: a function of their sums."""
        return merged_estimate(self.policy, self._parts())

    def export_model(self, at: int) -> PublishedModel:
        """Return the model of all partitions; the center moves there if it is time to.

        Args:
            at: the time, in microseconds since 1970.
        """
        entries, parts = self._all(), self._parts()
        estimate = merged_estimate(self.policy, parts)
        pending = sum(
            (entry.outstanding() for entry in entries), Information.zero(self.policy.shape)
        )
        learner = _MergedLearner(self.policy)
        arrived = sum((sums for sums, _ in parts), FrozenSums.zero(self.policy.shape))
        learner.take(estimate, arrived, pending, sum(entry.decisions for entry in entries))
        self._move_center(estimate)
        return msgspec.structs.replace(
            PublishedModel.of(
                learner.model,
                self.policy,
                positions=self.positions,
                version=sum(entry.version for entry in entries),
                at=at,
                head=self._head(),
                unmatched=self.unmatched,
                issues=self.noticed,
            ),
            center=self.center.theta.astype("<f8").tobytes(),
            center_number=self.center.number,
            center_n=self.center.n,
        )

    def go_on_from(self, model: PublishedModel) -> None:
        """Take over the center of a model that another has published."""
        if len(model.center) == 8 * self.policy.dim:
            theta = np.frombuffer(model.center, dtype="<f8").reshape(self.policy.shape).copy()
            self.center = Center(theta, model.center_number, model.center_n)

    def _move_center(self, estimate: Estimate) -> None:
        """When what is known has grown enough, or some partition had no center to expand at."""
        _, number, n = self.center
        alone = any(entry.expanded_at == 0 for entry in self._all())
        grown = estimate.n >= Laplace().next_fit(n, self.policy.shape)
        if isinstance(self.policy.family, Gaussian) or not estimate.n:
            return
        if grown or (alone and estimate.n > n) or not estimate.converged:
            self.center = Center(estimate.theta, number + 1, estimate.n)

    def _all(self) -> list[PartitionSums]:
        return [self.entries[partition] for partition in sorted(self.entries)]

    def _parts(self) -> list[tuple[FrozenSums, Vector]]:
        return [(entry.arrived(), entry.center) for entry in self._all()]

    def _head(self) -> str:
        heads = [entry.head for entry in self._all()]
        return str(Head(tuple(self.positions), join_heads(heads))) if all(heads) else ""


def merged_estimate(policy: Policy, parts: Sequence[tuple[FrozenSums, Vector]]) -> Estimate:
    """Return the estimate of some sums: one Newton step from where they were expanded.

    Where rewards were expected to be rare and many came, the step goes far beyond the maximum, for
    Poisson rewards to where e^η overflows. A step of more than a standard deviation per coefficient
    is therefore shortened, from m to 1 + log m, where m bounds the change of the linear predictor
    of any row: for one Poisson reward this leads to the maximum. The estimate has then not
    converged, and the next step begins from it.

    Args:
        policy: whose model is learned.
        parts: sums, each with the θ at which it was expanded.
    """
    arrived = sum((sums for sums, _ in parts), FrozenSums.zero(policy.shape))
    if isinstance(policy.family, Gaussian):
        return gaussian_posterior(arrived.moments, policy.family, policy.start)
    estimate = newton_step(arrived.likelihood, family=policy.family, prior=policy.start)
    prior, precision = estimate.prior, estimate.precision
    start = product(prior.precision, prior.mean)
    for sums, theta in parts:
        start = start + product(sums.likelihood.information, theta) / estimate.dispersion
    start = solve(precision, start)  # the mean of where they were expanded
    step = estimate.theta - start
    if np.vdot(step, product(precision, step)) <= step.size:
        return estimate
    bound = max(1.0, math.sqrt(np.vdot(step, product(arrived.moments.gram, step))))
    theta = start + step * ((1.0 + math.log(bound)) / bound)
    return replace(estimate, theta=theta, mean=theta, converged=bound == 1.0)


class _MergedLearner(Learner):
    """Makes the roots of sums that others have kept."""

    def take(
        self, estimate: Estimate, arrived: FrozenSums, pending: Information, decisions: int
    ) -> Model:
        model, weighting = self.model, self.weighting
        weighting.pending = pending
        weighting.counted = self.policy.start.precision + arrived.moments.gram
        weighting.go_on_from(estimate, arrived)
        model.n, model.pending, model.decisions = arrived.n, pending.count, decisions
        return model
