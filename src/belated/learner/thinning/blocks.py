"""Sums of decisions by age: a few dozen blocks stand for all of them."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from belated.estimators.conversion_law import ConversionLaw
from belated.families import Family
from belated.inputs import Matrix, Row, Vector
from belated.kernels.blocks import gram

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
    """

    mean: Vector
    seen: Matrix
    all: Matrix
    n: float


class AgeBlocks:
    """Decisions in the order of their times, all taken at one θ.

    A block has decisions of about one age. It grows older as it is, so rows never move: neighbours
    are merged once both are in what a bucket of their age may span.

    Args:
        window: in microseconds.
        family: of the rewards.
        theta: at which means and slopes are taken.

    >>> from belated import Bernoulli
    >>> blocks = AgeBlocks(1_000, Bernoulli(), np.zeros(1))
    >>> blocks.add(np.array([0, 900]), np.ones((2, 1)), now=1_000)
    >>> sums = blocks.sums(ConversionLaw.exponential(3.0), now=1_000)
    >>> sums.mean.round(3), sums.all, len(blocks)
    (array([0.636]), array([[0.5]]), 2)
    """

    def __init__(self, window: int, family: Family, theta: Vector) -> None:
        self._window, self._family = window, family
        self.theta = theta
        dim = len(theta)
        self._first = np.empty(0, dtype=np.int64)
        self._last = np.empty(0, dtype=np.int64)
        self._n = np.empty(0)
        self._mean: Matrix = np.empty((0, dim))
        self._slope: NDArray[np.float64] = np.empty((0, dim, dim))

    def __len__(self) -> int:
        return len(self._n)

    def add(self, times: NDArray[np.int64], rows: Row | Matrix, now: int) -> None:
        """Count decisions of these times."""
        if not len(times):
            return
        bucket = self._bucket(times, now)
        made = []
        for one in sorted(set(bucket.tolist()), reverse=True):  # the oldest first
            here = bucket == one
            made.append((times[here], *self._sums(rows[here])))
        self._first = np.append(self._first, [one[0].min() for one in made])
        self._last = np.append(self._last, [one[0].max() for one in made])
        self._n = np.append(self._n, [float(len(one[0])) for one in made])
        self._mean = np.concatenate([self._mean, [one[1] for one in made]])
        self._slope = np.concatenate([self._slope, [one[2] for one in made]])
        if len(self) > MANY:
            self._merge(now)

    def remove(self, time: int, row: Vector) -> bool:
        """Count a decision no longer; returns False if no block can have it."""
        here = np.flatnonzero((self._first <= time) & (time <= self._last))
        if not len(here):
            return False
        mean, slope = self._sums(row[None, :])
        self._n[here[0]] -= 1.0
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
        )

    def _sums(self, rows: Row | Matrix) -> tuple[Vector, Matrix]:
        table = rows.astype(np.float64, copy=False)
        _, mean, slope = self._family.cumulant_mean_slope(table @ self.theta)
        return mean @ table, gram(table, slope)

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
