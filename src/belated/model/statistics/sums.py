"""Sums over rows and rewards, which can be added and subtracted."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from belated.core.inputs import Matrix, Row, Vector, as_numbers, as_rewards, as_rows
from belated.exceptions import InvalidInput
from belated.model.blocks import Shape, as_shape, cross, gram, no_sum, predictors, product, width_of
from belated.model.families import Family, Gaussian


@dataclass(frozen=True, eq=False)
class Moments:
    """Sufficient statistics of Gaussian rewards: n, Σ x xᵀ, Σ x y and Σ y².

    >>> a = Moments.of([[1.0, 0.0], [1.0, 1.0]], [2.0, 3.0])
    >>> (a + a - a).n
    2
    >>> a.gram
    array([[2., 1.],
           [1., 1.]])
    """

    n: int
    gram: Matrix
    cross: Vector
    square: float

    @classmethod
    def zero(cls, shape: int | Shape) -> Moments:
        """Return empty moments."""
        shape = as_shape(shape)
        return cls(0, no_sum(shape), np.zeros(shape), 0.0)

    @classmethod
    def of(cls, rows: Any, y: Any, shape: Shape | None = None) -> Moments:
        """Return the moments of rows and their rewards; blocks require a ``shape``."""
        matrix = as_numbers(rows, "rows")
        if matrix.ndim != 2 or matrix.shape[1] == 0:
            raise InvalidInput(f"`rows` must be a matrix, got shape {matrix.shape}", rows)
        shape = (matrix.shape[1],) if shape is None else shape
        table = as_rows(matrix, width_of(shape))
        y = as_rewards(y, len(table))
        exact = table.astype(np.float64)
        return cls(len(table), gram(exact, None, shape), cross(y, exact, shape), float(y @ y))

    @property
    def dim(self) -> int:
        """Number of coefficients."""
        return self.cross.size

    def __add__(self, other: Moments) -> Moments:
        return self._combined(other, 1)

    def __sub__(self, other: Moments) -> Moments:
        return self._combined(other, -1)

    def _combined(self, other: Moments, sign: int) -> Moments:
        if self.cross.shape != other.cross.shape:
            message = f"cannot add moments of {self.dim} and {other.dim} coefficients"
            raise InvalidInput(message, other)
        return Moments(
            self.n + sign * other.n,
            self.gram + sign * other.gram,
            self.cross + sign * other.cross,
            self.square + sign * other.square,
        )


@dataclass(frozen=True, eq=False)
class Information:
    """Σ w x xᵀ, the information about θ in a set of rows, with or without rewards.

    >>> a = Information.of([[1.0, 2.0]], [0.25])
    >>> a.matrix
    array([[0.25, 0.5 ],
           [0.5 , 1.  ]])
    >>> (a + a - a).count
    1
    """

    count: int
    matrix: Matrix

    @classmethod
    def zero(cls, shape: int | Shape) -> Information:
        """Return zero information."""
        shape = as_shape(shape)
        return cls(0, no_sum(shape))

    @classmethod
    def of(cls, rows: Any, weights: Any, shape: Shape | None = None) -> Information:
        """Return the information in rows, with weights g'(η)/φ; blocks require a ``shape``."""
        table = as_numbers(rows, "rows").astype(np.float64, copy=False)
        factors = as_numbers(weights, "weights").astype(np.float64, copy=False)
        if table.ndim != 2 or factors.shape != table.shape[:1]:
            message = f"`rows` has shape {table.shape}, but `weights` has {factors.shape}"
            raise InvalidInput(f"{message}: pass one weight per row", weights)
        matrix = gram(table, factors, table.shape[1:] if shape is None else shape)
        if not np.isfinite(matrix).all():
            raise InvalidInput("a row or a weight is not finite, or too large to be added", weights)
        return cls(len(table), matrix)

    @property
    def dim(self) -> int:
        """Number of coefficients."""
        return int(self.matrix.size // self.matrix.shape[-1])

    def __add__(self, other: Information) -> Information:
        return self._combined(other, 1)

    def __sub__(self, other: Information) -> Information:
        return self._combined(other, -1)

    def _combined(self, other: Information, sign: int) -> Information:
        if self.matrix.shape != other.matrix.shape:
            message = f"cannot add information about {self.dim} and {other.dim} coefficients"
            raise InvalidInput(message, other)
        return Information(self.count + sign * other.count, self.matrix + sign * other.matrix)


@dataclass(frozen=True, eq=False)
class Quadratic:
    r"""A log-likelihood :math:`\eta^\top\theta - \frac12 \theta^\top\Lambda\,\theta` for φ = 1.

    For rows, this is the second-order expansion at some θ₀, where Λ is the information in the rows
    and η = Λ θ₀ + score. Quadratics with different θ₀ can be added, because η is the score at zero.
    For any other φ, divide by φ.

    Attributes:
        n: number of rewards.
        information: Λ.
        pull: η, the score at θ = 0.

    >>> from belated import Bernoulli
    >>> a = Quadratic.of(np.array([[1.0]]), np.array([1.0]), Bernoulli(), np.zeros(1))
    >>> a.information, a.pull
    (array([[0.25]]), array([0.5]))
    >>> (a + a - a).score(np.ones(1))
    array([0.25])
    """

    n: int
    information: Matrix
    pull: Vector

    @classmethod
    def zero(cls, shape: int | Shape) -> Quadratic:
        """Return an empty quadratic."""
        shape = as_shape(shape)
        return cls(0, no_sum(shape), np.zeros(shape))

    @classmethod
    def of(cls, rows: Row | Matrix, y: Vector, family: Family, theta: Vector) -> Quadratic:
        """Expand the log-likelihood of rows at θ."""
        table = rows.astype(np.float64, copy=False)
        eta = predictors(table, theta)
        _, mean, slope = family.cumulant_mean_slope(eta)
        pull = cross(slope * eta + y - mean, table, theta.shape)
        return cls(len(table), gram(table, slope, theta.shape), pull)

    @property
    def dim(self) -> int:
        """Number of coefficients."""
        return self.pull.size

    def score(self, theta: Vector) -> Vector:
        """Return the gradient at θ."""
        return self.pull - product(self.information, theta)

    def value(self, theta: Vector) -> float:
        """Return the log-likelihood at θ, up to a constant."""
        return float(np.vdot(theta, self.pull - 0.5 * product(self.information, theta)))

    def __add__(self, other: Quadratic) -> Quadratic:
        return self._combined(other, 1)

    def __sub__(self, other: Quadratic) -> Quadratic:
        return self._combined(other, -1)

    def _combined(self, other: Quadratic, sign: int) -> Quadratic:
        if self.pull.shape != other.pull.shape:
            message = f"cannot add quadratics of {self.dim} and {other.dim} coefficients"
            raise InvalidInput(message, other)
        return Quadratic(
            self.n + sign * other.n,
            self.information + sign * other.information,
            self.pull + sign * other.pull,
        )


@dataclass(frozen=True, eq=False)
class FrozenSums:
    """The sums of frozen rows, from which rows can be subtracted.

    Attributes:
        moments: moments of all rows, independent of θ.
        likelihood: the quadratic, with each row expanded at the θ at which it was frozen.
        total: sum of the rewards, Σ y.
    """

    moments: Moments
    likelihood: Quadratic
    total: float

    @classmethod
    def zero(cls, shape: int | Shape) -> FrozenSums:
        """Return empty sums."""
        return cls(Moments.zero(shape), Quadratic.zero(shape), 0.0)

    @classmethod
    def of(cls, rows: Row, y: Vector, family: Family, theta: Vector) -> FrozenSums:
        """Return the sums of rows frozen at θ; for Gaussian rewards, θ has no effect."""
        moments = Moments.of(rows, y, theta.shape)
        if isinstance(family, Gaussian):
            likelihood = Quadratic(moments.n, moments.gram, moments.cross)
        else:
            likelihood = Quadratic.of(rows, y, family, theta)
        return cls(moments, likelihood, float(y.sum()))

    @property
    def n(self) -> int:
        """Number of rows."""
        return self.moments.n

    def __add__(self, other: FrozenSums) -> FrozenSums:
        if not (self.n and other.n):
            return self if self.n else other
        return FrozenSums(
            self.moments + other.moments,
            self.likelihood + other.likelihood,
            self.total + other.total,
        )

    def __sub__(self, other: FrozenSums) -> FrozenSums:
        if self.n == other.n:  # only rounding errors would remain
            return FrozenSums.zero(self.moments.cross.shape)
        return FrozenSums(
            self.moments - other.moments,
            self.likelihood - other.likelihood,
            self.total - other.total,
        )

    def revised(self, x: Row, before: float, after: float) -> FrozenSums:
        """Return the sums with one reward changed; the score changes by Δy·x at every θ."""
        n, gram_, cross_ = self.moments.n, self.moments.gram, self.moments.cross
        change = (after - before) * cross(np.ones(1), x[None, :].astype(np.float64), cross_.shape)
        square = self.moments.square + (after - before) * (after + before)
        pull = self.likelihood.pull + change
        return FrozenSums(
            Moments(n, gram_, cross_ + change, square),
            Quadratic(n, self.likelihood.information, pull),
            self.total + (after - before),
        )

    def moved(self, by: Vector) -> float:
        """Return the effect of changing θ by δ: the mean of g' (xᵀδ)² over all rows."""
        return float(np.vdot(by, product(self.likelihood.information, by))) / max(self.n, 1)

    def pack(self) -> bytes:
        """Return the sums as bytes; empty if there are no rows."""
        if not self.n:
            return b""
        numbers = [float(self.n), self.moments.square, self.total]
        return np.concatenate(
            [
                numbers,
                self.moments.gram.ravel(),
                self.moments.cross.ravel(),
                self.likelihood.information.ravel(),
                self.likelihood.pull.ravel(),
            ]
        ).tobytes()

    @classmethod
    def read(cls, data: bytes, shape: Shape) -> FrozenSums:
        """Restore the sums from the result of :meth:`pack`.

        Raises:
            ValueError: the data has a different shape.
        """
        if not data:
            return cls.zero(shape)
        numbers = np.frombuffer(data).copy()
        dim, size = math.prod(shape), shape[-1]
        head, sums = numbers[:3], numbers[3:].reshape(2, dim * size + dim)
        (gram, cross), (information, pull) = (
            (line[: dim * size].reshape(*shape, size), line[dim * size :].reshape(shape))
            for line in sums
        )
        n = int(head[0])
        return cls(
            Moments(n, gram, cross, float(head[1])),
            Quadratic(n, information, pull),
            float(head[2]),
        )
