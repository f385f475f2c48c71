"""Which half-life has predicted best, by the predictions that were journaled with decisions."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from belated.families import Family
from belated.inputs import Matrix, Vector
from belated.learner.forgetting.sums import GONE, DecayedSum, shares_at

#: Moments in microseconds since 1970.
Times = NDArray[np.int64]
#: How much worse than the best, in nats, the longest half-life may have predicted.
MARGIN = 2.0
#: Probabilities nearer to 0 or 1, and means of counts nearer to 0, count as these.
LEAST = 1e-6


class Evidence:
    """The log-likelihood of rewards under several predictions of each, old rewards counting less.

    The clock is that of decisions: the newest that has a reward is of age 0.

    Args:
        family: of the rewards.
        rivals: how many predictions there are of each.
        half_life: of a reward, in microseconds.

    >>> from belated import Bernoulli
    >>> evidence = Evidence(Bernoulli(), 2, half_life=1000)
    >>> evidence.add(np.arange(5), np.ones(5), np.tile([0.2, 0.8], (5, 1)))
    >>> evidence.best([True, True])
    1
    """

    def __init__(self, family: Family, rivals: int, half_life: int) -> None:
        self.family = family
        self.rivals = rivals
        self.newest: int | None = None
        self._sum = DecayedSum(half_life, (rivals + 1,))

    @property
    def half_life(self) -> int:
        """In microseconds."""
        return self._sum.half_life

    def add(self, made: Times, y: Vector, means: Matrix, sign: float = 1.0) -> None:
        """Count what was predicted for rewards, a line of means each; with a sign of -1, no longer.

        Those without predictions have a nan, and do not count.
        """
        predicted = means[:, 0] == means[:, 0]
        if not predicted.all():
            made, y, means = made[predicted], y[predicted], means[predicted]
        if not len(made):
            return
        newest = int(made.max())
        shares = shares_at(np.maximum(made, newest - GONE * self.half_life), newest, self.half_life)
        sums = shares @ self._logs(y[:, None], means)
        self._sum.add(newest, np.array([shares.sum(), *sums]), sign)
        self.newest = newest if self.newest is None else max(self.newest, newest)

    @property
    def scores(self) -> list[float]:
        """Log-likelihoods, but for what all have in common."""
        if self.newest is None:
            return [0.0] * self.rivals
        found: list[float] = self._sum.at(self.newest).tolist()
        weight, sums = found[0], found[1:]
        if self.family.dispersion is not None:
            return sums
        # Of a variance that is not known: its likelihood at the greatest.
        if weight <= 0.0:
            return [0.0] * self.rivals
        return [-0.5 * weight * math.log(max(-2.0 * one / weight, LEAST**2)) for one in sums]

    def best(self, allowed: Sequence[bool]) -> int:
        """The first of those allowed that is nearly as good as the best of them."""
        scores = self.scores
        best = max(score for score, may in zip(scores, allowed, strict=True) if may)
        return next(n for n, may in enumerate(allowed) if may and scores[n] >= best - MARGIN)

    def _logs(self, y: Matrix, means: Matrix) -> Matrix:
        number = self.family.number
        if number == 1:
            p = np.clip(means, LEAST, 1.0 - LEAST)
            return y * np.log(p) + (1.0 - y) * np.log1p(-p)
        if number == 2:
            return y * np.log(np.maximum(means, LEAST)) - means
        errors = np.square(y - means) / (self.family.dispersion or 1.0)
        if number == 0:
            return -0.5 * errors
        slope_at = np.vectorize(self.family.slope_at, otypes=[np.float64])
        slopes = np.maximum(slope_at(means), LEAST)
        return np.asarray(-0.5 * (errors / slopes + np.log(slopes)))
