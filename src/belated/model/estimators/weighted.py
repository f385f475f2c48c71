"""Observations that count by weights: what a fit that forgets is of."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple, TypeGuard

import numpy as np
from numpy.typing import NDArray

from belated.core.inputs import Matrix, Row, Vector
from belated.model.blocks import Shape, as_shape, cross, gram, width_of
from belated.model.statistics import Joined, Moments


class WeightedRows(NamedTuple):
    """Rows, their rewards, and how much each counts."""

    rows: Row
    rewards: Vector
    weights: Vector


class Weighted(Joined):
    """A copy of some observations, each with a weight; read like any others.

    >>> half = WeightedRows(np.ones((2, 1), np.float32), np.array([1.0, 3.0]), np.array([1.0, 0.5]))
    >>> data = Weighted(1, [half])
    >>> data.n, data.effective_n, data.moments().cross
    (2, 1.5, array([2.5]))
    """

    def __init__(self, shape: int | Shape, parts: Sequence[WeightedRows], now: int = 0) -> None:
        self.shape = as_shape(shape)
        #: The time by which they are weighted.
        self.now = now
        self.stores = []
        self.parts = parts
        #: The sum of all weights.
        self.effective_n = float(sum(part.weights.sum() for part in parts))

    @property
    def n(self) -> int:
        """How many observations there are, whatever they count for."""
        return sum(len(part.weights) for part in self.parts)

    def chunks(self, size: int) -> Iterator[tuple[Matrix, Vector, NDArray[Any] | None]]:
        """Rows in float64 (one buffer, used again), rewards, and their weights."""
        longest = max((len(part.rows) for part in self.parts), default=0)
        buffer = np.empty((min(size, longest), width_of(self.shape)))
        for rows, rewards, weights in self.parts:
            for start in range(0, len(rows), size):
                stop = min(len(rows), start + size)
                table = buffer[: stop - start]
                table[:] = rows[start:stop]
                yield table, rewards[start:stop], weights[start:stop]

    def moments(self) -> Moments:
        """The moments, each observation by its weight; n is the sum of the weights."""
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
    """Whether what comes with a chunk of rows is their weights, not which of them count."""
    return counted is not None and counted.dtype == np.float64
