"""Old rows are frozen where there are many: a quadratic stands for them."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from belated.core.inputs import Vector
from belated.model.statistics import Observations

#: By how many posterior deviations, at most and in all, frozen rows that are still kept may be off
#: because the estimate has moved since they were frozen.
MOVED = 0.1


class Freezer:
    """Freezes rows of the observations of all partitions.

    Args:
        observations: of each partition.
        most: rows that may be counted one by one.
        batch: rows that are let go together.

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
        """Neither revised nor retracted will be the reward under this handle."""
        self._forgotten[partition].append(handle)

    @property
    def is_full(self) -> bool:
        """Whether there are more rows than there may be."""
        return self._exact > self._full

    @property
    def is_due(self) -> bool:
        """Whether there is anything to do."""
        return self.is_full or any(len(handles) >= self._batch for handles in self._forgotten)

    @property
    def _exact(self) -> int:
        return sum(store.exact for store in self._observations)

    def freeze(self, theta: Vector, *, half: bool = False) -> None:
        """Freeze what is too much, at θ; and anew what was frozen where it has moved far from.

        To second order a frozen row is as good as it was. What is left of the score is
        ½ Σ g'' (xᵀδ)² x, with δ the way that θ has gone since; in posterior deviations that is not
        above ½ √(dn) times the mean of g' (xᵀδ)², if g'' ≤ g' and rows are alike.

        Args:
            theta: the estimate of now.
            half: freeze half of what may be kept, so that it takes a while until there is too much
                again.
        """
        keep = self._most // 2 if half else self._most
        dim, n = theta.size, sum(store.n for store in self._observations)
        for store in self._observations:
            moved = 2.0 * MOVED / math.sqrt(dim * n)
            store.freeze(theta, keep // len(self._observations), moved)
        self._full = max(self._most, self._exact + self._most - keep)

    def drop(self) -> None:
        """Let go of the rows of forgotten rewards, if they are frozen; all are in the stores."""
        for store, handles in zip(self._observations, self._forgotten, strict=True):
            store.forget(np.array(handles, dtype=np.int64))
            store.drop_forgotten()
            handles.clear()
