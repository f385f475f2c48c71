"""Sums over rows and rewards: they add, and what was added can be taken out."""

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
    """All that Gaussian rewards say: n, Σ x xᵀ, Σ x y and Σ y².

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
        """The moments of nothing."""
        shape = as_shape(shape)
        return cls(0, no_sum(shape), np.zeros(shape), 0.0)

    @classmethod
    def of(cls, rows: Any, y: Any, shape: Shape | None = None) -> Moments:
        """The moments of these rows and their rewards; without a shape there are no blocks."""
        given = as_numbers(rows, "rows")
        if given.ndim != 2 or given.shape[1] == 0:
            raise InvalidInput(f"rows has shape {given.shape}: a table was expected", rows)
        shape = (given.shape[1],) if shape is None else shape
        table = as_rows(given, width_of(shape))
        y = as_rewards(y, len(table))
        exact = table.astype(np.float64)
        return cls(len(table), gram(exact, None, shape), cross(y, exact, shape), float(y @ y))

    @property
    def dim(self) -> int:
        """How many coefficients there are."""
        return self.cross.size

    def __add__(self, other: Moments) -> Moments:
        return self._combined(other, 1)

    def __sub__(self, other: Moments) -> Moments:
        return self._combined(other, -1)

    def _combined(self, other: Moments, sign: int) -> Moments:
        if self.cross.shape != other.cross.shape:
            raise InvalidInput(
                f"moments of {self.dim} and of {other.dim} numbers do not add", other
            )
        return Moments(
            self.n + sign * other.n,
            self.gram + sign * other.gram,
            self.cross + sign * other.cross,
            self.square + sign * other.square,
        )


@dataclass(frozen=True, eq=False)
class Information:
    """Σ w x xᵀ: what a set of rows tells about θ, whether or not their rewards came.

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
        """The information of nothing."""
        shape = as_shape(shape)
        return cls(0, no_sum(shape))

    @classmethod
    def of(cls, rows: Any, weights: Any, shape: Shape | None = None) -> Information:
        """The information of these rows with their weights g'(η)/φ; without a shape, no blocks."""
        table = as_numbers(rows, "rows").astype(np.float64, copy=False)
        factors = as_numbers(weights, "weights").astype(np.float64, copy=False)
        if table.ndim != 2 or factors.shape != table.shape[:1]:
            message = f"rows of shape {table.shape} do not go with weights of {factors.shape}"
            raise InvalidInput(message, weights)
        matrix = gram(table, factors, table.shape[1:] if shape is None else shape)
        if not np.isfinite(matrix).all():
            raise InvalidInput("a row or a weight is not finite, or too large to be added", weights)
        return cls(len(table), matrix)

    @property
    def dim(self) -> int:
        """How many coefficients there are."""
        return int(self.matrix.size // self.matrix.shape[-1])

    def __add__(self, other: Information) -> Information:
        return self._combined(other, 1)

    def __sub__(self, other: Information) -> Information:
        return self._combined(other, -1)

    def _combined(self, other: Information, sign: int) -> Information:
        if self.matrix.shape != other.matrix.shape:
            message = f"information of {self.dim} and of {other.dim} numbers does not add"
            raise InvalidInput(message, other)
        return Information(self.count + sign * other.count, self.matrix + sign * other.matrix)


@dataclass(frozen=True, eq=False)
class Quadratic:
    r"""A log-likelihood as :math:`\eta^\top\theta - \frac12 \theta^\top\Lambda\,\theta`, but for φ.

    Of rows at some θ₀ it is the expansion to second order there: Λ is their information and
    η = Λ θ₀ + score. Quadratics add whatever their θ₀, for η does not depend on where one looks
    from. All are for φ = 1: divide by the dispersion.

    Attributes:
        n: rewards in it.
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
        """The quadratic of nothing."""
        shape = as_shape(shape)
        return cls(0, no_sum(shape), np.zeros(shape))

    @classmethod
    def of(cls, rows: Row | Matrix, y: Vector, family: Family, theta: Vector) -> Quadratic:
        """The expansion of the log-likelihood of these rows at θ."""
        table = rows.astype(np.float64, copy=False)
        eta = predictors(table, theta)
        _, mean, slope = family.cumulant_mean_slope(eta)
        pull = cross(slope * eta + y - mean, table, theta.shape)
        return cls(len(table), gram(table, slope, theta.shape), pull)

    @property
    def dim(self) -> int:
        """How many coefficients there are."""
        return self.pull.size

    def score(self, theta: Vector) -> Vector:
        """The gradient at θ."""
        return self.pull - product(self.information, theta)

    def value(self, theta: Vector) -> float:
        """The log-likelihood at θ, but for a constant."""
        return float(np.vdot(theta, self.pull - 0.5 * product(self.information, theta)))

    def __add__(self, other: Quadratic) -> Quadratic:
        return self._combined(other, 1)

    def __sub__(self, other: Quadratic) -> Quadratic:
        return self._combined(other, -1)

    def _combined(self, other: Quadratic, sign: int) -> Quadratic:
        if self.pull.shape != other.pull.shape:
            message = f"quadratics of {self.dim} and of {other.dim} numbers do not add"
            raise InvalidInput(message, other)
        return Quadratic(
            self.n + sign * other.n,
            self.information + sign * other.information,
            self.pull + sign * other.pull,
        )


@dataclass(frozen=True, eq=False)
class FrozenSums:
    """All that is known of frozen rows: what a row added can be taken out again.

    Attributes:
        moments: of all rows, whatever they were frozen at.
        likelihood: a quadratic, each row at the θ it was frozen at.
        total: Σ y.
    """

    moments: Moments
    likelihood: Quadratic
    total: float

    @classmethod
    def zero(cls, shape: int | Shape) -> FrozenSums:
        """The sums of nothing."""
        return cls(Moments.zero(shape), Quadratic.zero(shape), 0.0)

    @classmethod
    def of(cls, rows: Row, y: Vector, family: Family, theta: Vector) -> FrozenSums:
        """The sums of these rows, frozen at θ; for Gaussian rewards it does not matter which."""
        moments = Moments.of(rows, y, theta.shape)
        if isinstance(family, Gaussian):
            likelihood = Quadratic(moments.n, moments.gram, moments.cross)
        else:
            likelihood = Quadratic.of(rows, y, family, theta)
        return cls(moments, likelihood, float(y.sum()))

    @property
    def n(self) -> int:
        """Rows in it."""
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
        if self.n == other.n:  # what is left is rounding
            return FrozenSums.zero(self.moments.cross.shape)
        return FrozenSums(
            self.moments - other.moments,
            self.likelihood - other.likelihood,
            self.total - other.total,
        )

    def revised(self, x: Row, before: float, after: float) -> FrozenSums:
        """The reward of one row is another: wherever it was frozen, its score moves by Δy x."""
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
        """How far a change of θ moves a row: the mean of g' (xᵀδ)² over all."""
        return float(np.vdot(by, product(self.likelihood.information, by))) / max(self.n, 1)

    def pack(self) -> bytes:
        """As bytes; none if there are no rows."""
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
        """What :meth:`pack` gave.

        Raises:
            ValueError: these are no sums of this shape.
        """
        if not data:
            return cls.zero(shape)
        numbers = np.frombuffer(data).copy()
        dim, size = math.prod(shape), shape[-1]
        head, sums = numbers[:3], numbers[3:].reshape(2, dim * size + dim)
        (gram, cross), (information, pull) = (
            (one[: dim * size].reshape(*shape, size), one[dim * size :].reshape(shape))
            for one in sums
        )
        n = int(head[0])
        return cls(
            Moments(n, gram, cross, float(head[1])),
            Quadratic(n, information, pull),
            float(head[2]),
        )
