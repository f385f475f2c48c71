"""Which half-life has predicted best, by the predictions that were journaled with decisions."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

import numpy as np
from numpy.typing import NDArray

from belated.families import Family
from belated.inputs import Vector
from belated.learner.forgetting.sums import GONE, shares_at

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
    >>> for time in range(5):
    ...     evidence.add(time, 1.0, (0.2, 0.8))
    >>> evidence.best([True, True])
    1
    """

    def __init__(self, family: Family, rivals: int, half_life: int) -> None:
        self.family = family
        self.rivals = rivals
        self.newest: int | None = None
        self.half_life = half_life
        #: Of the weights, then by rival; relative to an epoch in whole half-lives, as a DecayedSum:
        #: in floats, for these few are added at every reward.
        self._sums = [0.0] * (rivals + 1)
        self._epoch = 0
        self._estimated = family.dispersion is None

    def add(self, made: int, y: float, means: Sequence[float], sign: float = 1.0) -> None:
        """Count what was predicted for a reward; with a sign of -1, no longer."""
        self._add(made, [sign, *(sign * self._log(y, mean) for mean in means)])

    def _add(self, made: int, terms: Sequence[float]) -> None:
        whole, rest = divmod(made, self.half_life)
        if self.newest is None:
            self._epoch = whole
        elif whole > self._epoch:
            self._sums = [math.ldexp(one, self._epoch - whole) for one in self._sums]
            self._epoch = whole
        if self.newest is None or made > self.newest:
            self.newest = made
        factor = math.ldexp(2.0 ** (rest / self.half_life), whole - self._epoch)
        self._sums = [one + factor * term for one, term in zip(self._sums, terms, strict=True)]

    def add_all(
        self, parts: Iterable[tuple[NDArray[np.int64], Vector, NDArray[np.float64]]]
    ) -> None:
        """Count many: times, rewards, and a line of means for each; those of nan do not count."""
        for made, y, means in parts:
            predicted = ~np.isnan(means[:, 0])
            if not predicted.any():
                continue
            newest = int(made[predicted].max())
            recent = predicted & (made > newest - GONE * self.half_life)
            shares = shares_at(made[recent], newest, self.half_life)
            terms = np.array([self._log_all(y[recent], column) for column in means[recent].T])
            self._add(newest, [float(shares.sum()), *(terms @ shares).tolist()])

    @property
    def scores(self) -> list[float]:
        """Log-likelihoods, but for what all have in common."""
        if self.newest is None:
            return [0.0] * self.rivals
        # The newest is of the epoch: the scale is between 1/2 and 1.
        scale = 2.0 ** (-(self.newest % self.half_life) / self.half_life)
        weight, *sums = [scale * one for one in self._sums]
        if not self._estimated:
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

    def _log(self, y: float, mean: float) -> float:
        number = self.family.number
        if number == 1:
            p = min(max(mean, LEAST), 1.0 - LEAST)
            return y * math.log(p) + (1.0 - y) * math.log(1.0 - p)
        if number == 2:
            return y * math.log(max(mean, LEAST)) - mean
        error = (y - mean) ** 2 / (self.family.dispersion or 1.0)
        if number == 0:
            return -0.5 * error
        slope = max(self.family.slope_at(mean), LEAST)
        return -0.5 * (error / slope + math.log(slope))

    def _log_all(self, y: Vector, means: Vector) -> Vector:
        pairs = zip(y.tolist(), means.tolist(), strict=True)
        return np.array([self._log(value, mean) for value, mean in pairs])
