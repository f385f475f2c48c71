"""UCB that accounts for pending rewards."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass
from typing import Any

import numpy as np

from belated.core.inputs import Matrix, Row, Vector, as_nonnegative
from belated.model.families import Bernoulli, Family
from belated.model.kernels import TIE
from belated.model.model import Model
from belated.policies.policy import Choice, Policy
from belated.theory.confidence import width_log

#: Default share of decisions that explore.
FLOOR = 0.02


@dataclass(frozen=True)
class DelayedUCB(Policy):
    """Choose the largest upper bound xᵀθ̂ + width · sd, counting pending decisions as explored.

    The standard deviation is that of the posterior once all pending rewards have arrived, so the
    policy does not keep choosing the same row while its reward is pending. The width is
    α √log(2 + n), where n is the number of arrived rewards, or the sum of their weights if the
    policy has a half-life. This is about two standard deviations in any dimension. With neither a
    floor nor randomization, only ties are broken at random, and the probabilities of the other
    actions are not stored with the decision's request.

    Args:
        alpha: multiplier of the width; defaults to 0.95, or to 0.85 if randomized.
        randomized: whether to draw the width of each choice from a Rayleigh distribution;
            propensities are then between 0 and 1, and are computed in closed form.

    >>> from belated import Bernoulli
    >>> policy = DelayedUCB(3, Bernoulli())
    >>> model = Model(policy.start, policy.family)
    >>> rng = np.random.default_rng(0)
    >>> chosen = []
    >>> for _ in range(3):
    ...     choice = policy.choose(model, np.eye(3), rng)
    ...     model.add_pending(np.eye(3)[choice.index], choice.weight)
    ...     chosen.append(choice.index)
    >>> sorted(chosen)
    [0, 1, 2]
    """

    _: KW_ONLY
    alpha: float | None = None
    randomized: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.alpha is None:
            object.__setattr__(self, "alpha", 0.85 if self.randomized else 0.95)
        as_nonnegative(self.alpha, "alpha")

    def width(self, model: Model) -> float:
        """Return the width in standard deviations (β_t, Alg. 1, l. 5)."""
        assert self.alpha is not None  # set in __post_init__
        n = model.n if model.effective_n is None else model.effective_n
        return self.alpha if self.randomized else width_log(n, self.alpha)

    def choose(self, model: Model, rows: Any, rng: np.random.Generator) -> Choice:
        """Choose the row with the largest upper bound (Alg. 1, l. 6)."""
        width = self.width(model)
        if self.randomized:
            means, deviations = model.score(rows)
            return self.mixed(model, rows, rng, rayleigh_shares(means, width * deviations))
        if self.floor:
            means, deviations = model.score(rows)
            return self.mixed(model, rows, rng, greatest_shares(means + width * deviations))
        index, ties, mean, weight = model.argmax_ucb(rows, width)
        if ties > 1:
            index, ties, mean, weight = model.argmax_ucb(rows, width, rng.random())
        return Choice(index, 1.0 / ties, mean, weight)

    def choose_all(
        self,
        model: Model,
        rows: Row | Matrix,
        ends: Sequence[int],
        counted: Sequence[bool],
        rng: np.random.Generator,
    ) -> list[Choice]:
        """Choose as :meth:`Policy.choose_all` does, in a single kernel call if β_t is constant."""
        if len(ends) == 1:
            return [self._choose_one(model, rows, counted[0], rng)]
        if not self.maximizes_bound:
            return super().choose_all(model, rows, ends, counted, rng)
        choices = model.argmax_ucb_all(
            rows, ends, self.width(model), rng.random(len(ends)), counted, self.pending_weight,
            self.metric == "gram",
        )  # fmt: skip
        return [Choice(index, 1.0 / ties, mean, weight) for index, ties, mean, weight in choices]

    @property
    def maximizes_bound(self) -> bool:
        """Whether choices maximize a bound whose width does not depend on pending decisions."""
        kind = type(self)
        if kind.choose is not DelayedUCB.choose or kind.width is not DelayedUCB.width:
            return False  # a subclass may use pending decisions
        return not (self.randomized or self.floor)


def default_policy(family: Family | None = None, floor: float | None = None) -> DelayedUCB:
    """Return the default policy of a bandit.

    Args:
        family: family of the rewards; None means Bernoulli.
        floor: share of decisions that explore; None means :data:`FLOOR`.
    """
    return DelayedUCB(
        family=Bernoulli() if family is None else family, floor=FLOOR if floor is None else floor
    )


def greatest_shares(scores: Vector) -> Vector:
    """Return probabilities that select the largest score, divided evenly among ties.

    >>> greatest_shares(np.array([1.0, 2.0, 2.0]))
    array([0. , 0.5, 0.5])
    """
    best = scores[scores.argmax()]
    tied = scores >= best - TIE * (1.0 + abs(best))
    return np.asarray(tied / np.count_nonzero(tied), dtype=np.float64)


def rayleigh_shares(means: Vector, deviations: Vector) -> Vector:
    """Return the probability that m + B s is the largest of all rows, with B = √(-2 log U).

    A row wins if B is in one interval [lo, hi] of the upper envelope of the lines m + b s, which
    has probability exp(-lo²/2) - exp(-hi²/2). All rows share one draw of B.

    >>> rayleigh_shares(np.array([1.0, 0.0]), np.array([0.0, 1.0])).round(4)
    array([0.3935, 0.6065])
    """
    higher = means[None, :] - means[:, None]  # the column's intercept minus the row's
    steeper = deviations[None, :] - deviations[:, None]
    size = 1.0 + np.abs(means).max() + deviations.max()
    parallel = np.abs(steeper) <= TIE * size
    with np.errstate(divide="ignore", invalid="ignore"):
        crossing = -higher / steeper
    # A row beats a flatter line after the crossing, and a steeper line before it.
    low = np.where(~parallel & (steeper < 0), crossing, 0.0).max(axis=1)
    high = np.where(~parallel & (steeper > 0), crossing, np.inf).min(axis=1)
    beaten = (parallel & (higher > TIE * size)).any(axis=1)
    low = np.maximum(low, 0.0)
    shares = np.exp(-0.5 * np.square(low)) - np.exp(-0.5 * np.square(np.maximum(high, low)))
    shares = np.where(beaten, 0.0, shares)
    twins = (parallel & (np.abs(higher) <= TIE * size)).sum(axis=1)  # number of identical lines
    shares = shares / twins
    return np.asarray(shares / shares.sum())
