"""Freeze old rows if there are many: replace their log-likelihood with a quadratic function."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from belated.core.inputs import Vector
from belated.model.statistics import Observations

#: Maximum total error of frozen rows that are still stored, in posterior standard deviations. The
#: error grows as the estimate moves away from the point at which rows were frozen.
MOVED = 0.1


class Freezer:
    """Freezes rows in the observations of all partitions.

    Args:
        observations: the observations of each partition.
        most: maximum number of rows that are not frozen.
        batch: number of rows that are dropped together.

    >>> from belated import Bernoulli
    >>> seen = Observations(1, Bernoulli(), block=2)
    >>> handles = seen.extend([[1.0]] * 5, [1.0] * 5)
    >>> freezer = Freezer([seen], most=3, batch=10)
    >>> freezer.is_full
    True
    >>> freezer.freeze(np.zeros(1))
    >>> seen.exact, seen.n
    (3, 5)
    """

    def __init__(self, observations: Sequence[Observations], most: int, batch: int) -> None:
        self._observations = observations
        self._most = self._full = most
        self._batch = batch
        self._forgotten: list[list[int]] = [[] for _ in observations]

    def forget(self, handle: int, partition: int) -> None:
        """Mark a reward as final: it will never be revised or retracted."""
        self._forgotten[partition].append(handle)

    @property
    def is_full(self) -> bool:
        """Whether there are more unfrozen rows than allowed."""
        return self._exact > self._full

    @property
    def is_due(self) -> bool:
        """Whether rows must be frozen or dropped."""
        return self.is_full or any(len(handles) >= self._batch for handles in self._forgotten)

    @property
    def _exact(self) -> int:
        return sum(store.exact for store in self._observations)

    def freeze(self, theta: Vector, *, half: bool = False) -> None:
        """Freeze excess rows at θ, and refreeze rows if θ has moved far since they were frozen.

        A frozen row is exact to second order. The remaining error of the score is
        ½ Σ g'' (xᵀδ)² x, where δ is the change of θ since the row was frozen. In posterior standard
        deviations, this is at most ½ √(dn) times the mean of g' (xᵀδ)², if g'' ≤ g' and rows are
        similar.

        Args:
            theta: the current estimate.
            half: whether to freeze down to half of the allowed rows, so that rows need not be
                frozen again soon.
        """
        keep = self._most // 2 if half else self._most
        dim, n = theta.size, sum(store.n for store in self._observations)
        for store in self._observations:
            moved = 2.0 * MOVED / math.sqrt(dim * n)
            store.freeze(theta, keep // len(self._observations), moved)
        self._full = max(self._most, self._exact + self._most - keep)

    def drop(self) -> None:
        """Drop frozen rows whose rewards were marked as final; all rows must have been stored."""
        for store, handles in zip(self._observations, self._forgotten, strict=True):
            store.forget(np.array(handles, dtype=np.int64))
            store.drop_forgotten()
            handles.clear()
