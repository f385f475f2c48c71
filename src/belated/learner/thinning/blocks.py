"""Sums of decisions by age: a few dozen blocks stand for all of them."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from belated.estimators.conversion_law import ConversionLaw
from belated.estimators.thinned import AgedDecisions
from belated.families import Family
from belated.inputs import Matrix, Row, Vector
from belated.kernels.blocks import gram
from belated.learner.forgetting.sums import shares_at

#: The youngest bucket ends at this share of the window, and each next one this much later.
YOUNGEST, RATIO = 1 / 500, 1.25
#: Blocks before neighbours are merged; some thirty are left then.
MANY = 64


class Thinned(NamedTuple):
    """What all decisions come to at one time.

    Attributes:
        mean: Σ F g x.
        seen: Σ F g' x xᵀ.
        all: Σ g' x xᵀ.
        n: Σ F.
        decisions: all of them, by what they count for.
    """

    mean: Vector
    seen: Matrix
    all: Matrix
    n: float
    decisions: float


class AgeBlocks:
    """Decisions in the order of their times, all taken at one θ.

    A block has decisions of about one age. It grows older as it is, so rows never move: neighbours
    are merged once both are in what a bucket of their age may span. With a half-life a decision
    counts for 2^(-age/h): all sums are of one time, to which :meth:`fade` moves them.

    Args:
        window: in microseconds.
        family: of the rewards.
        theta: at which means and slopes are taken.
        half_life: after which a decision counts for half, in microseconds; None: in full for ever.

    Attributes:
        converted: Σ y x.

    >>> from belated import Bernoulli
    >>> blocks = AgeBlocks(1_000, Bernoulli(), np.zeros(1))
    >>> blocks.add(np.array([0, 900]), np.ones((2, 1)), now=1_000)
    >>> sums = blocks.sums(ConversionLaw.exponential(3.0), now=1_000)
    >>> sums.mean.round(3), sums.all, len(blocks)
    (array([0.636]), array([[0.5]]), 2)
    """

    def __init__(
        self, window: int, family: Family, theta: Vector, half_life: int | None = None
    ) -> None:
        self._window, self._family, self._half_life = window, family, half_life
        self.theta = theta
        self._time = 0  # by which decisions count
        dim = len(theta)
        self.converted: Vector = np.zeros(dim)
        self._first = np.empty(0, dtype=np.int64)
        self._last = np.empty(0, dtype=np.int64)
        self._n = np.empty(0)
        self._mean: Matrix = np.empty((0, dim))
        self._slope: NDArray[np.float64] = np.empty((0, dim, dim))

    def __len__(self) -> int:
        return len(self._n)

    def fade(self, now: int) -> None:
        """Let decisions count for what they do by now; before anything else of that time."""
        if self._half_life is None or now <= self._time:
            return
        left = 2.0 ** ((self._time - now) / self._half_life)
        self._n *= left
        self._mean *= left
        self._slope *= left
        self.converted *= left
        self._time = now

    def convert(self, times: NDArray[np.int64], rows: Row | Matrix, y: Vector) -> None:
        """Count conversions of these values, of decisions of these times."""
        self.converted += (y * self._weights(times)) @ rows.astype(np.float64, copy=False)

    def add_all(self, data: AgedDecisions, until: int) -> None:
        """Count decisions and their conversions; their ages are up to a time."""
        for part in data.parts:
            times = until - np.rint(part.age * self._window).astype(np.int64)
            self.add(times, part.rows, until)
            self.convert(times, part.rows, part.y)

    def add(self, times: NDArray[np.int64], rows: Row | Matrix, now: int) -> None:
        """Count decisions of these times."""
        if not len(times):
            return
        bucket = self._bucket(times, now)
        made = []
        for one in sorted(set(bucket.tolist()), reverse=True):  # the oldest first
            here = bucket == one
            made.append((times[here], *self._sums(times[here], rows[here])))
        self._first = np.append(self._first, [one[0].min() for one in made])
        self._last = np.append(self._last, [one[0].max() for one in made])
        self._n = np.append(self._n, [one[1] for one in made])
        self._mean = np.concatenate([self._mean, [one[2] for one in made]])
        self._slope = np.concatenate([self._slope, [one[3] for one in made]])
        if len(self) > MANY:
            self._merge(now)

    def remove(self, time: int, row: Vector) -> bool:
        """Count a decision no longer; returns False if no block can have it."""
        here = np.flatnonzero((self._first <= time) & (time <= self._last))
        if not len(here):
            return False
        n, mean, slope = self._sums(np.array([time]), row[None, :])
        self._n[here[0]] -= n
        self._mean[here[0]] -= mean
        self._slope[here[0]] -= slope
        return True

    def sums(self, law: ConversionLaw, now: int) -> Thinned:
        """What they come to by a law, their ages as they are now."""
        low, high = (now - self._last) / self._window, (now - self._first) / self._window
        share = law.over(low, high)
        return Thinned(
            share @ self._mean,
            np.tensordot(share, self._slope, 1),
            self._slope.sum(axis=0),
            float(share @ self._n),
            float(self._n.sum()),
        )

    def _sums(self, times: NDArray[np.int64], rows: Row | Matrix) -> tuple[float, Vector, Matrix]:
        table, weights = rows.astype(np.float64, copy=False), self._weights(times)
        _, mean, slope = self._family.cumulant_mean_slope(table @ self.theta)
        return float(weights.sum()), (weights * mean) @ table, gram(table, weights * slope)

    def _weights(self, times: NDArray[np.int64]) -> Vector:
        if self._half_life is None:
            return np.ones(len(times))
        return shares_at(times, self._time, self._half_life)

    def _bucket(self, times: NDArray[np.int64], now: int) -> NDArray[np.int64]:
        age = np.maximum((now - times) / (YOUNGEST * self._window), 1.0)
        last = math.ceil(-math.log(YOUNGEST) / math.log(RATIO)) + 1
        found = np.ceil(np.log(age) / math.log(RATIO)).astype(np.int64)
        return np.where(times <= now - self._window, last, found)

    def _merge(self, now: int) -> None:
        """Merge neighbours, from the oldest on."""
        order = np.argsort(self._first, kind="stable")
        first, last = self._first[order], self._last[order]
        young, ended = YOUNGEST * self._window, now - self._window
        starts, until = [0], int(last[0])
        for n in range(1, len(order)):
            oldest = int(first[starts[-1]])
            until = max(until, int(last[n]))
            together = (
                until <= ended or now - oldest <= young or now - oldest <= RATIO * (now - until)
            )
            if not together:
                starts.append(n)
                until = int(last[n])
        self._first = np.minimum.reduceat(first, starts)
        self._last = np.maximum.reduceat(last, starts)
        self._n = np.add.reduceat(self._n[order], starts)
        self._mean = np.add.reduceat(self._mean[order], starts)
        self._slope = np.add.reduceat(self._slope[order], starts)
