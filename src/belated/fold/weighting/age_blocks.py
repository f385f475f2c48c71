"""Sums over decisions by age, in a few dozen blocks."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from belated.core.inputs import Matrix, Row, Vector
from belated.fold.weighting.half_life import shares_at
from belated.model.blocks import add_gram, cross, gram, predictors
from belated.model.estimators.conversion_law import ConversionLaw
from belated.model.estimators.thinned import AgedDecisions, thinned_weight
from belated.model.families import Family

#: One microsecond is added to all ages and delays, because the delay of a conversion with the same
#: timestamp as its decision can be up to one microsecond.
TICK = 1
#: The youngest bucket ends, and the oldest bucket begins, at the ages by which these shares of
#: conversions have arrived.
YOUNG, OLD = 0.01, 0.999
#: Ratio of the ages at which successive buckets end.
RATIO = 1.25
#: Neighboring blocks are merged if there are more blocks than this. With exponential delays, about
#: thirty remain.
MANY = 80


class Thinned(NamedTuple):
    """The sums over all decisions at a given time.

    Attributes:
        mean: Σ ω F g x.
        seen: Σ ω F g' x xᵀ.
        all: Σ g' x xᵀ.
        n: Σ F.
        decisions: the effective number of decisions.
    """

    mean: Vector
    seen: Matrix
    all: Matrix
    n: float
    decisions: float


class AgeBlocks:
    """Sums over decisions in blocks of similar age, with means and slopes at a fixed θ.

    A block ages as a whole, so rows never move between blocks. Neighboring blocks are merged once
    they fit into a single age bucket. With a half-life h, a decision has the weight 2^(-age/h), and
    all sums refer to the same time, which :meth:`fade` advances.

    Args:
        window: the window in microseconds.
        family: the reward family.
        theta: the θ at which means and slopes are computed.
        law: the delay distribution.
        until: the time of the fit that estimated ``theta`` and ``law``; ω is computed from the ages
            at this time.
        half_life: half-life of the weights, in microseconds; None if weights do not decay.

    Attributes:
        converted: Σ ω y x.
        theta, law, until: the arguments.

    >>> from belated import Bernoulli
    >>> law = ConversionLaw.exponential(3.0)
    >>> blocks = AgeBlocks(1_000, Bernoulli(), np.zeros(1), law, until=1_000)
    >>> blocks.add(np.array([0, 900]), np.ones((2, 1)), now=1_000)
    >>> sums = blocks.sums(now=1_000)
    >>> sums.mean.round(3), sums.all, len(blocks)
    (array([0.58]), array([[0.5]]), 2)
    """

    def __init__(
        self,
        window: int,
        family: Family,
        theta: Vector,
        law: ConversionLaw,
        until: int,
        half_life: int | None = None,
    ) -> None:
        self._window, self._family, self._half_life = window, family, half_life
        self.theta, self.law, self.until = theta, law, until
        self._young = max(1.0, law.age_of(YOUNG) * window)
        self._old = max(RATIO, law.age_of(OLD) * window)
        self._time = 0  # the time to which all weights refer
        shape = theta.shape
        self.converted: Vector = np.zeros(shape)
        self._first = np.empty(0, dtype=np.int64)
        self._last = np.empty(0, dtype=np.int64)
        self._n = np.empty(0)
        self._mean: Matrix = np.empty((0, *shape))
        self._slope: Matrix = np.empty((0, *shape, shape[-1]))
        self._all: Matrix = np.zeros((*shape, shape[-1]))

    def __len__(self) -> int:
        return len(self._n)

    def fade(self, now: int) -> None:
        """Update the weights of all decisions to ``now``, before any other change at that time."""
        if self._half_life is None or now <= self._time:
            return
        factor = 2.0 ** ((self._time - now) / self._half_life)
        self._n *= factor
        self._mean *= factor
        self._slope *= factor
        self._all *= factor
        self.converted *= factor
        self._time = now

    def convert(self, times: NDArray[np.int64], rows: Row | Matrix, y: Vector) -> None:
        """Add conversions with values ``y``, given the times and rows of their decisions."""
        table = rows.astype(np.float64, copy=False)
        self.converted += cross(self.pulls(times, table, y), table, self.theta.shape)

    def pulls(self, times: NDArray[np.int64], rows: Row | Matrix, y: ArrayLike) -> Vector:
        """Return ω y for each conversion, multiplied by the weight of its decision."""
        omega = self._omega(times, self._family.mean(predictors(rows, self.theta)))
        pulls: Vector = np.asarray(y) * omega * self._weights(times)
        return pulls

    def add_all(self, data: AgedDecisions, until: int) -> None:
        """Add decisions and their conversions; the ages in ``data`` are as of ``until``."""
        for part in data.parts:
            times = until + TICK - np.rint(part.age * self._window).astype(np.int64)
            self.add(times, part.rows, until)
            self.convert(times, part.rows, part.y)

    def add(self, times: NDArray[np.int64], rows: Row | Matrix, now: int) -> None:
        """Add decisions that were made at these times."""
        if not len(times):
            return
        bucket = self._bucket(times, now)
        order = np.argsort(-bucket, kind="stable")  # oldest first
        times = times[order]
        starts = np.append(0, np.flatnonzero(np.diff(bucket[order])) + 1)
        stops = np.append(starts[1:], len(times))
        table, n, mean, slope, whole = self._each(times, rows[order])
        add_gram(self._all, table, whole)
        shape, pieces = self.theta.shape, list(zip(starts, stops, strict=True))
        slopes = [gram(table[i:j], slope[i:j], shape) for i, j in pieces]
        means = [cross(mean[i:j], table[i:j], shape) for i, j in pieces]
        self._first = np.append(self._first, np.minimum.reduceat(times, starts))
        self._last = np.append(self._last, np.maximum.reduceat(times, starts))
        self._n = np.append(self._n, np.add.reduceat(n, starts))
        self._mean = np.concatenate([self._mean, means])
        self._slope = np.concatenate([self._slope, slopes])
        if len(self) > MANY:
            self._merge(now)

    def remove(self, time: int, row: Vector | Row) -> bool:
        """Remove a decision; return False if no block can contain it."""
        candidates = np.flatnonzero((self._first <= time) & (time <= self._last))
        if not len(candidates):
            return False
        block = candidates[0]
        table, n, mean, slope, whole = self._each(np.array([time]), row[None, :])
        self._n[block] -= n[0]
        self._mean[block] -= cross(mean, table, self.theta.shape)
        add_gram(self._slope[block], table, -slope)
        add_gram(self._all, table, -whole)
        return True

    def sums(self, now: int) -> Thinned:
        """Return the sums over all decisions at their current ages."""
        low, high = ((now - time + TICK) / self._window for time in (self._last, self._first))
        share = self.law.over(low, high)
        return Thinned(
            np.tensordot(share, self._mean, 1),
            np.tensordot(share, self._slope, 1),
            self._all,
            float(share @ self._n),
            float(self._n.sum()),
        )

    def _each(
        self, times: NDArray[np.int64], rows: Row | Matrix
    ) -> tuple[Matrix, Vector, Vector, Vector, Vector]:
        """Return rows as float64, their weights, and the weights times ω g, ω g' and g'."""
        table, weights = rows.astype(np.float64, copy=False), self._weights(times)
        _, mean, slope = self._family.cumulant_mean_slope(predictors(table, self.theta))
        weighted = weights * self._omega(times, mean)
        return table, weights, weighted * mean, weighted * slope, weights * slope

    def _omega(self, times: NDArray[np.int64], mean: Vector) -> Vector:
        """Return ω for ages at the last fit, so that a decision and its conversion have equal ω."""
        share = self.law.at((self.until - times + TICK) / self._window)
        return thinned_weight(self._family, share, mean)

    def _weights(self, times: NDArray[np.int64]) -> Vector:
        if self._half_life is None:
            return np.ones(len(times))
        return shares_at(times, self._time, self._half_life)

    def _bucket(self, times: NDArray[np.int64], now: int) -> NDArray[np.int64]:
        age = np.clip(now - times, self._young, self._old) / self._young
        return np.ceil(np.log(age) / math.log(RATIO)).astype(np.int64)

    def _merge(self, now: int) -> None:
        """Merge neighboring blocks, starting with the oldest."""
        order = np.argsort(self._first, kind="stable")
        first, last = self._first[order], self._last[order]
        starts, until = [0], int(last[0])
        for n in range(1, len(order)):
            oldest = int(first[starts[-1]])
            until = max(until, int(last[n]))
            together = (
                now - until >= self._old
                or now - oldest <= self._young
                or now - oldest <= RATIO * (now - until)
            )
            if not together:
                starts.append(n)
                until = int(last[n])
        self._first = np.minimum.reduceat(first, starts)
        self._last = np.maximum.reduceat(last, starts)
        self._n = np.add.reduceat(self._n[order], starts)
        self._mean = np.add.reduceat(self._mean[order], starts)
        self._slope = np.add.reduceat(self._slope[order], starts)
