"""Optimism that knows what is still outstanding."""

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

#: The share of decisions that explore, in a bandit for which nothing else is said.
FLOOR = 0.02


@dataclass(frozen=True)
class DelayedUCB(Policy):
    """Choose the greatest upper bound xᵀθ̂ + width · sd, pending decisions counted as explored.

    The deviation is that of the posterior once all that is outstanding has arrived, so a row that
    was chosen a moment ago is not chosen again and again while its reward is out. The width is
    α √log(2 + n) with n the rewards arrived, by what they still count for if the policy has a
    half-life: about two deviations, whatever the dimension. Without a floor and not randomized it
    is random only where bounds tie; then the probabilities of the other actions are not kept with
    a decision's request.

    Args:
        alpha: of the width; .95, or .85 if randomized.
        randomized: draw the width from a Rayleigh law, one draw a choice; propensities between 0
            and 1 in closed form.

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
        """How many deviations are added (β_t, Alg. 1, l. 5)."""
        assert self.alpha is not None  # set above
        n = model.n if model.effective_n is None else model.effective_n
        return self.alpha if self.randomized else width_log(n, self.alpha)

    def choose(self, model: Model, rows: Any, rng: np.random.Generator) -> Choice:
        """The row with the greatest upper bound (Alg. 1, l. 6)."""
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
        """As :meth:`Policy.choose_all`; in one kernel if pending decisions leave β_t alone."""
        if len(ends) == 1:
            return [self._choose_one(model, rows, counted[0], rng)]
        if not self.greatest_bound:
            return super().choose_all(model, rows, ends, counted, rng)
        found = model.argmax_ucb_all(
            rows, ends, self.width(model), rng.random(len(ends)), counted, self.pending_weight,
            self.metric == "gram",
        )  # fmt: skip
        return [Choice(index, 1.0 / ties, mean, weight) for index, ties, mean, weight in found]

    @property
    def greatest_bound(self) -> bool:
        """Whether it takes the greatest bound, by a width that pending decisions leave alone."""
        mine = type(self)
        if mine.choose is not DelayedUCB.choose or mine.width is not DelayedUCB.width:
            return False  # that of a subclass may do anything
        return not (self.randomized or self.floor)


def default_policy(family: Family | None = None, floor: float | None = None) -> DelayedUCB:
    """Return the policy of a bandit that names none.

    Args:
        family: of the rewards; Bernoulli if None.
        floor: the share of decisions that explore; :data:`FLOOR` if None.
    """
    return DelayedUCB(
        family=Bernoulli() if family is None else family, floor=FLOOR if floor is None else floor
    )


def greatest_shares(scores: Vector) -> Vector:
    """Probabilities of the greatest score, split evenly among ties.

    >>> greatest_shares(np.array([1.0, 2.0, 2.0]))
    array([0. , 0.5, 0.5])
    """
    best = scores[scores.argmax()]
    tied = scores >= best - TIE * (1.0 + abs(best))
    return np.asarray(tied / np.count_nonzero(tied), dtype=np.float64)


def rayleigh_shares(means: Vector, deviations: Vector) -> Vector:
    """Probabilities that m + B s is the greatest, for one B = √(-2 log U) over all rows.

    Row a wins for B in one interval [lo, hi] of the upper envelope of the lines m + b s, which has
    probability exp(-lo²/2) - exp(-hi²/2).

    >>> rayleigh_shares(np.array([1.0, 0.0]), np.array([0.0, 1.0])).round(4)
    array([0.3935, 0.6065])
    """
    higher = means[None, :] - means[:, None]  # by how much the column's line starts higher
    steeper = deviations[None, :] - deviations[:, None]
    size = 1.0 + np.abs(means).max() + deviations.max()
    same = np.abs(steeper) <= TIE * size
    with np.errstate(divide="ignore", invalid="ignore"):
        crossing = -higher / steeper
    # Against a flatter line a row wins beyond the crossing, against a steeper one before it.
    low = np.where(~same & (steeper < 0), crossing, 0.0).max(axis=1)
    high = np.where(~same & (steeper > 0), crossing, np.inf).min(axis=1)
    beaten = (same & (higher > TIE * size)).any(axis=1)
    low = np.maximum(low, 0.0)
    shares = np.exp(-0.5 * np.square(low)) - np.exp(-0.5 * np.square(np.maximum(high, low)))
    shares = np.where(beaten, 0.0, shares)
    twins = (same & (np.abs(higher) <= TIE * size)).sum(axis=1)  # equal lines share evenly
    shares = shares / twins
    return np.asarray(shares / shares.sum())
