"""Sums over rows and rewards: they add, and what was added can be taken out."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from belated.core.inputs import Matrix, Row, Vector, as_dim, as_numbers, as_rewards, as_rows
from belated.exceptions import InvalidInput
from belated.model.families import Family, Gaussian
from belated.model.kernels.blocks import gram


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
    def zero(cls, dim: int) -> Moments:
        """The moments of nothing."""
        dim = as_dim(dim)
        return cls(0, np.zeros((dim, dim)), np.zeros(dim), 0.0)

    @classmethod
    def of(cls, rows: Any, y: Any) -> Moments:
        """The moments of these rows and their rewards."""
        given = as_numbers(rows, "rows")
        if given.ndim != 2 or given.shape[1] == 0:
            raise InvalidInput(f"rows has shape {given.shape}: a table was expected", rows)
        table = as_rows(given, given.shape[1])
        rewards = as_rewards(y, len(table))
        exact = table.astype(np.float64)
        return cls(len(table), gram(exact), rewards @ exact, float(rewards @ rewards))

    @property
    def dim(self) -> int:
        """The width of a row."""
        return len(self.cross)

    def __add__(self, other: Moments) -> Moments:
        return self._combined(other, 1)

    def __sub__(self, other: Moments) -> Moments:
        return self._combined(other, -1)

    def _combined(self, other: Moments, sign: int) -> Moments:
        if self.dim != other.dim:
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
    def zero(cls, dim: int) -> Information:
        """The information of nothing."""
        return cls(0, np.zeros((as_dim(dim), dim)))

    @classmethod
    def of(cls, rows: Any, weights: Any) -> Information:
        """The information of these rows with their weights g'(η)/φ."""
        table = as_numbers(rows, "rows").astype(np.float64, copy=False)
        factors = as_numbers(weights, "weights").astype(np.float64, copy=False)
        if table.ndim != 2 or factors.shape != table.shape[:1]:
            message = f"rows of shape {table.shape} do not go with weights of {factors.shape}"
            raise InvalidInput(message, weights)
        matrix = gram(table, factors)
        if not np.isfinite(matrix).all():
            raise InvalidInput("a row or a weight is not finite, or too large to be added", weights)
        return cls(len(table), matrix)

    @property
    def dim(self) -> int:
        """The width of a row."""
        return len(self.matrix)

    def __add__(self, other: Information) -> Information:
        return self._combined(other, 1)

    def __sub__(self, other: Information) -> Information:
        return self._combined(other, -1)

    def _combined(self, other: Information, sign: int) -> Information:
        if self.dim != other.dim:
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
    def zero(cls, dim: int) -> Quadratic:
        """The quadratic of nothing."""
        dim = as_dim(dim)
        return cls(0, np.zeros((dim, dim)), np.zeros(dim))

    @classmethod
    def of(cls, rows: Row | Matrix, y: Vector, family: Family, theta: Vector) -> Quadratic:
        """The expansion of the log-likelihood of these rows at θ."""
        table = rows.astype(np.float64, copy=False)
        eta = table @ theta
        _, mean, slope = family.cumulant_mean_slope(eta)
        return cls(len(table), gram(table, slope), (slope * eta + y - mean) @ table)

    @property
    def dim(self) -> int:
        """The width of a row."""
        return len(self.pull)

    def score(self, theta: Vector) -> Vector:
        """The gradient at θ."""
        score: Vector = self.pull - self.information @ theta
        return score

    def value(self, theta: Vector) -> float:
        """The log-likelihood at θ, but for a constant."""
        return float(theta @ (self.pull - 0.5 * (self.information @ theta)))

    def __add__(self, other: Quadratic) -> Quadratic:
        return self._combined(other, 1)

    def __sub__(self, other: Quadratic) -> Quadratic:
        return self._combined(other, -1)

    def _combined(self, other: Quadratic, sign: int) -> Quadratic:
        if self.dim != other.dim:
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
    def zero(cls, dim: int) -> FrozenSums:
        """The sums of nothing."""
        return cls(Moments.zero(dim), Quadratic.zero(dim), 0.0)

    @classmethod
    def of(cls, rows: Row, y: Vector, family: Family, theta: Vector) -> FrozenSums:
        """The sums of these rows, frozen at θ; for Gaussian rewards it does not matter which."""
        moments = Moments.of(rows, y)
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
        return FrozenSums(
            self.moments + other.moments,
            self.likelihood + other.likelihood,
            self.total + other.total,
        )

    def __sub__(self, other: FrozenSums) -> FrozenSums:
        if self.n == other.n:  # what is left is rounding
            return FrozenSums.zero(self.moments.dim)
        return FrozenSums(
            self.moments - other.moments,
            self.likelihood - other.likelihood,
            self.total - other.total,
        )

    def revised(self, x: Row, before: float, after: float) -> FrozenSums:
        """The reward of one row is another: wherever it was frozen, its score moves by Δy x."""
        n, gram, cross = self.moments.n, self.moments.gram, self.moments.cross
        change = (after - before) * x.astype(np.float64)
        square = self.moments.square + (after - before) * (after + before)
        pull = self.likelihood.pull + change
        return FrozenSums(
            Moments(n, gram, cross + change, square),
            Quadratic(n, self.likelihood.information, pull),
            self.total + (after - before),
        )

    def moved(self, by: Vector) -> float:
        """How far a change of θ moves a row: the mean of g' (xᵀδ)² over all."""
        return float(by @ self.likelihood.information @ by) / max(self.n, 1)

    def pack(self) -> bytes:
        """As bytes."""
        numbers = [float(self.n), self.moments.square, self.total]
        return np.concatenate(
            [
                numbers,
                self.moments.gram.ravel(),
                self.moments.cross,
                self.likelihood.information.ravel(),
                self.likelihood.pull,
            ]
        ).tobytes()

    @classmethod
    def read(cls, data: bytes, dim: int) -> FrozenSums:
        """What :meth:`pack` gave.

        Raises:
            ValueError: these are no sums of rows of this width.
        """
        numbers = np.frombuffer(data).copy()
        head, sums = numbers[:3], numbers[3:].reshape(2, dim * dim + dim)
        (gram, cross), (information, pull) = (
            (one[: dim * dim].reshape(dim, dim), one[dim * dim :]) for one in sums
        )
        n = int(head[0])
        return cls(
            Moments(n, gram, cross, float(head[1])),
            Quadratic(n, information, pull),
            float(head[2]),
        )
