"""Let several learners share a bandit whose observations are weighted by age.

Observations are weighted by age under ``ConversionsOnly`` and with a half-life. All partitions
expand the log-likelihood at the same point, the center: a θ and, under ``ConversionsOnly``, a delay
distribution F. The leader merges the sums into a Newton step from the center. When there is enough
new data, the leader publishes new centers until neither θ nor F changes noticeably.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple, Self

import numpy as np

from belated.core.inputs import Matrix, Vector
from belated.core.rewards import ConversionsOnly, Rewards
from belated.core.tuning import USUAL, Tuning
from belated.fold.learner import Learner
from belated.fold.partitioned.center import Center
from belated.fold.partitioned.learner import check_mergeable
from belated.fold.partitioned.merging import Merging
from belated.fold.partitioned.sums import PartitionSums
from belated.fold.times import REMOVED
from belated.fold.weighting import ExpectedConversions, HalfLife
from belated.fold.weighting.age_blocks import TICK, AgeBlocks, Thinned as ThinnedSums
from belated.fold.weighting.conversions import (
    GROWTH,
    LONGEST,
    SOONEST,
    conversions_in,
    deliveries,
)
from belated.fold.weighting.half_life import REACH, USED
from belated.model.blocks import Shape, product, root_of
from belated.model.estimators import newton_step
from belated.model.estimators.conversion_law import (
    EDGES,
    ConversionLaw,
    Conversions,
    DelaySums,
    fitted_law,
    merged_law,
)
from belated.model.estimators.thinned import Thinned, prior_precision, sandwich, spread_sums
from belated.model.kernels import Kernels
from belated.model.model import Model
from belated.model.statistics import Information, Quadratic
from belated.policies import Policy

#: A center is final if a step from it is at most this many standard deviations long, and F changes
#: by at most SETTLED_SHARE. After PASSES steps, a center is final in any case.
SETTLED, SETTLED_SHARE, PASSES = 0.05, 0.005, 8
#: Delay distribution of outcomes that are known immediately.
_KNOWN = ConversionLaw(np.ones(len(EDGES)), np.zeros(len(EDGES)))


def starting_center(policy: Policy, rewards: Rewards) -> Center:
    """Return the center without any data."""
    law = fitted_law(Conversions.none()) if isinstance(rewards, ConversionsOnly) else None
    return Center(policy.start.mean, law=law)


class AgedSums(NamedTuple):
    """Additive sums over the observations of a partition.

    Attributes:
        counts: number of rewards; under ``ConversionsOnly``, of decisions with a known outcome.
        effective: the effective number of rewards, and of decisions.
        pull: the score at θ = 0, as in :class:`~belated.model.statistics.Quadratic`.
        moved: the effect of F's uncertainty on the score, when the center was adopted.
        seen: the information of the observations.
        whole: the same information, with pending decisions at full weight.
        bread: the same as ``seen``, but when the center was adopted.
        filling: the spread of the score, when the center was adopted.
        delays: sums for the delay distribution, when the center was adopted.
    """

    counts: Vector
    effective: Vector
    pull: Vector
    moved: Vector
    seen: Matrix
    whole: Matrix
    bread: Matrix
    filling: Matrix
    delays: Vector

    def __add__(self, other: Self) -> Self:  # type: ignore[override]
        return type(self)(*(left + right for left, right in zip(self, other, strict=True)))

    def faded(self, policy: Policy, since: int) -> Self:
        """Return the sums with the weights that apply ``since`` microseconds later."""
        if policy.half_life_us is None:
            return self
        factor = 2.0 ** (-since / policy.half_life_us)
        return type(self)(self.counts, *(factor * numbers for numbers in self[1:]))

    def pack(self) -> bytes:
        """Return the sums as bytes."""
        return np.concatenate([numbers.ravel() for numbers in self]).astype("<f8").tobytes()

    @classmethod
    def read(cls, data: bytes, shape: Shape) -> Self:
        """Restore the sums from the result of :meth:`pack`."""
        matrix = *shape, shape[-1]
        shapes = [(1,), (2,), shape, shape, matrix, matrix, matrix, matrix, (3 * len(EDGES) + 2,)]
        stops = np.cumsum([math.prod(shape) for shape in shapes])[:-1]
        pieces = np.split(np.frombuffer(data, dtype="<f8"), stops)
        return cls(*(piece.reshape(shape) for piece, shape in zip(pieces, shapes, strict=True)))

    def law(self, window: int, estimator: Thinned) -> ConversionLaw:
        """Return the delay distribution that fits the sums."""
        silent, arrived, reached = self.delays[:-2].reshape(3, len(EDGES))
        sums = DelaySums(silent, arrived, reached, self.delays[-2:])
        return merged_law(sums, tick=TICK / window, shrinkage=estimator.shrinkage)


class AgedLearner(Learner):
    """Maintains sums over the observations of one partition, expanded at the center.

    Args:
        policy: the policy whose model is trained.
        rewards: what a missing reward means.
        kernels: kernels to use instead of the fastest available.
        tuning: internal sizes.

    Attributes:
        in_batches: whether conversions appear to arrive in batches. They are treated as arriving
            one by one, because no partition sees whole deliveries.
    """

    def __init__(
        self,
        policy: Policy,
        rewards: Rewards,
        *,
        kernels: Kernels | None = None,
        tuning: Tuning = USUAL,
    ) -> None:
        check_mergeable(policy, rewards)
        self.center = starting_center(policy, rewards)
        self.in_batches = False
        self._adopted: AgedSums | None = None
        self._adopted_at = 0
        if isinstance(rewards, ConversionsOnly):
            rewards = replace(rewards, delivery="single")
        super().__init__(policy, rewards, kernels=kernels, tuning=tuning)
        self.defers = True

    @property
    def theta(self) -> Vector:
        """The θ at which the log-likelihood is expanded."""
        return self.center.theta

    @property
    def expanded_at(self) -> int:
        """The number of the center."""
        return self.center.number

    @property
    def pending_information(self) -> Information:
        """Zero, because the sums include all decisions."""
        return Information.zero(self.policy.shape)

    def adopt(self, center: Center) -> None:
        """Expand at this center from now on."""
        if center.number != self.center.number:
            self.center, self._adopted = center, None

    def sums(self) -> AgedSums:
        """Return the sums of this partition, at the time of its latest record."""
        self.fold_in()
        if self._adopted is None:
            self._adopted, self._adopted_at = self._adopt(), self.now
        current = self._current()
        adopted = self._adopted.faded(self.policy, self.now - self._adopted_at)
        return current._replace(
            moved=adopted.moved,
            bread=adopted.bread,
            filling=adopted.filling,
            delays=adopted.delays,
        )

    def _adopt(self) -> AgedSums:
        """Sum all observations at the center."""
        raise NotImplementedError

    def _current(self) -> AgedSums:
        """Return the current sums, except those computed when the center was adopted."""
        raise NotImplementedError

    def _at_center(self, converted: Vector, sums: ThinnedSums, whole: Matrix) -> AgedSums:
        """Return sums computed at the center, as if the center had just been adopted."""
        return AgedSums(
            counts=np.array([float(self.model.n)]),
            effective=np.array([sums.n, sums.decisions]),
            pull=product(sums.seen, self.theta) + converted - sums.mean,
            moved=np.zeros(self.policy.shape),
            seen=sums.seen,
            whole=whole,
            bread=sums.seen,
            filling=sums.seen,
            delays=np.zeros(3 * len(EDGES) + 2),
        )

    def fit(self) -> None:
        """Sum all observations again when the sums are next used; there is no model to fit."""
        self._adopted = None

    def retract(self, handle: int, recorded: int = 0, partition: int = 0) -> Vector:
        """Remove a reward without making its decision pending again; return its row."""
        self._adopted = None
        return super().retract(handle, recorded, partition)

    def restart(self, handle: int, began: int, partition: int = 0) -> None:
        """Change the time at which a rewarded decision took effect."""
        self._adopted = None
        super().restart(handle, began, partition)


class ConversionLearner(AgedLearner):
    """Sums all decisions, weighted by the share of conversions that arrive by their age."""

    weighting: ExpectedConversions

    def _adopt(self) -> AgedSums:
        law, family = self.center.law, self.policy.family
        assert law is not None
        data = self.weighting.expand_at(self.theta, law)
        shares = [law.at(part.age) for part in data.parts]
        bread, filling, moved = spread_sums(data, shares, law, family, self.theta)
        reported, _ = conversions_in(self.times)
        self.in_batches = deliveries(reported, self.weighting.window).are_batches
        delays = np.concatenate(DelaySums.of(data.conversions, data.silent_ages))
        return self._current()._replace(moved=moved, bread=bread, filling=filling, delays=delays)

    def _current(self) -> AgedSums:
        converted, sums = self.weighting.sums()
        return self._at_center(converted, sums, sums.all)


class HalfLifeLearner(AgedLearner):
    """Sums all rewards, weighted by their age."""

    weighting: HalfLife

    def _adopt(self) -> AgedSums:
        family, half_life = self.policy.family, self.policy.half_life_us
        assert half_life is not None
        self._blocks = AgeBlocks(1, family, self.theta, _KNOWN, self.now, half_life)
        self._blocks.fade(self.now)
        self._next = self.times[0].first_after(self.now - REACH * half_life)
        return self._current()

    def _current(self) -> AgedSums:
        self._blocks.fade(self.now)
        began = self.times[0].began[self._next :]
        began, (rows, y) = began[began != REMOVED], self.observations[0].since(self._next)
        self._blocks.add(began, rows, self.now)
        if len(began):
            self._blocks.convert(began, rows, y)
        self._next = self.next_handle(0)
        sums = self._blocks.sums(self.now)
        phi = self.policy.family.dispersion or 1.0
        whole = sums.seen + phi * self.weighting.pending_at(self.now)  # weights are divided by φ
        return self._at_center(self._blocks.converted, sums, whole)

    def revise(self, handle: int, y: float, recorded: int = 0, partition: int = 0) -> None:
        """Change a reward."""
        self._adopted = None
        super().revise(handle, y, recorded, partition)


class AgedMerging(Merging):
    """Holds the sums of all partitions of a bandit whose observations are weighted by age.

    Args:
        policy: the policy of the model.
        rewards: what a missing reward means.
        partitions: number of partitions of the journal.
        fingerprint: the fingerprint of the folds; entries from other folds are ignored.
    """

    def __init__(self, policy: Policy, rewards: Rewards, partitions: int, fingerprint: str) -> None:
        super().__init__(policy, partitions, fingerprint)
        self._window = rewards.window_us
        estimator: object = policy.estimator
        self._estimator = estimator if isinstance(estimator, Thinned) else Thinned()
        self.center = starting_center(policy, rewards)
        self._passes = 0  # number of steps since the center was last final

    def _merge(self, entries: Sequence[PartitionSums]) -> Model:
        policy, family = self.policy, self.policy.family
        at, phi = max(entry.at for entry in entries), family.dispersion or 1.0
        parts = [
            AgedSums.read(entry.rows, policy.shape).faded(policy, at - entry.at)
            for entry in entries
        ]
        total = sum(parts[1:], parts[0])
        n = int(total.counts[0])
        likelihood = Quadratic(n, total.seen, total.pull)
        estimate = newton_step(likelihood, family=family, prior=policy.start)
        # As for a single learner, an estimated prior does not widen exploration with a half-life.
        prior = policy.start if self.center.law is None else estimate.prior
        base = prior_precision(prior, family, phi)
        precision = sandwich(base, total.bread / phi, total.filling / phi, total.moved)
        step = estimate.theta - self.center.theta
        theta = self.center.theta + min(1.0, LONGEST / (np.linalg.norm(step) or 1.0)) * step
        share = policy.pending_weight
        counted = (share * total.whole + (1.0 - share) * total.seen) / phi
        model = Model(policy.start, family)
        model.restart(theta, phi)
        model.observed = root_of(precision)
        model.decided = root_of(counted + prior_precision(policy.start, family, phi))
        model.n, model.effective_n = n, float(total.effective[0])
        model.pending = sum(entry.pending for entry in entries)
        model.decisions = sum(entry.decisions for entry in entries)
        if all(entry.expanded_at == self.center.number for entry in entries):
            length = float(np.sqrt(np.vdot(step, product(precision, step))))
            self._move_to(
                Center(theta, self.center.number + 1, n, None, model.decisions, at), total, length
            )
        return model

    def _move_to(self, new: Center, total: AgedSums, length: float) -> None:
        """Move the center if there is enough new data, or if it is not final yet."""
        center, half_life = self.center, self.policy.half_life_us
        change = 0.0
        if center.law is not None:
            assert self._window is not None  # checked by ConversionsOnly
            law = total.law(self._window, self._estimator)
            change = float(np.abs(law.shares - center.law.shares).max())
            new = new._replace(law=law)
        due = (
            new.n >= self._estimator.next_fit(center.n, self.policy.shape)
            or new.decisions >= center.decisions + max(SOONEST, GROWTH * center.decisions)
            or (half_life is not None and new.at - center.at >= USED * half_life)
        )
        settled = length <= SETTLED and change <= SETTLED_SHARE
        if not due and (self._passes == 0 or settled or self._passes >= PASSES):
            self._passes = 0
        else:
            self._passes += 1
            self.center = new
