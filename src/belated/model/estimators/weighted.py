"""Observations with weights, for fits that discount some of them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple, TypeGuard

import numpy as np
from numpy.typing import NDArray

from belated.core.inputs import Matrix, Row, Vector
from belated.model.blocks import Shape, as_shape, cross, gram, width_of
from belated.model.statistics import Joined, Moments


class WeightedRows(NamedTuple):
    """Rows with their rewards and weights."""

    rows: Row
    rewards: Vector
    weights: Vector


class Weighted(Joined):
    """A copy of observations with weights, which has the same interface as other observations.

    >>> half = WeightedRows(np.ones((2, 1), np.float32), np.array([1.0, 3.0]), np.array([1.0, 0.5]))
    >>> data = Weighted(1, [half])
    >>> data.n, data.effective_n, data.moments().cross
    (2, 1.5, array([2.5]))
    """

    def __init__(self, shape: int | Shape, parts: Sequence[WeightedRows], now: int = 0) -> None:
        self.shape = as_shape(shape)
        #: The time to which the weights refer.
        self.now = now
        self.stores = []
        self.parts = parts
        #: The sum of all weights.
        self.effective_n = float(sum(part.weights.sum() for part in parts))

    @property
    def n(self) -> int:
        """Number of observations, regardless of their weights."""
        return sum(len(part.weights) for part in self.parts)

    def chunks(self, size: int) -> Iterator[tuple[Matrix, Vector, NDArray[Any] | None]]:
        """Yield rows as float64 (in a reused buffer), rewards, and weights."""
        longest = max((len(part.rows) for part in self.parts), default=0)
        buffer = np.empty((min(size, longest), width_of(self.shape)))
        for rows, rewards, weights in self.parts:
            for start in range(0, len(rows), size):
                stop = min(len(rows), start + size)
                table = buffer[: stop - start]
                table[:] = rows[start:stop]
                yield table, rewards[start:stop], weights[start:stop]

    def moments(self) -> Moments:
        """Return the weighted moments; n is the sum of the weights."""
        total = Moments.zero(self.shape)
        for rows, y, weights in self.parts:
            table, weighted = rows.astype(np.float64), weights * y
            n: Any = float(weights.sum())
            total += Moments(
                n,
                gram(table, weights, self.shape),
                cross(weighted, table, self.shape),
                float(weighted @ y),
            )
        return total


def is_weighted(counted: NDArray[Any] | None) -> TypeGuard[Vector]:
    """Return whether the third item of a chunk contains weights instead of a mask."""
    return counted is not None and counted.dtype == np.float64
