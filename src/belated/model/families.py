r"""Families of rewards: exponential families with their canonical links.

A reward given the linear predictor :math:`\eta = x^\top\theta` has the density

.. math:: \exp\bigl((y\,\eta - m(\eta))/\varphi + A(y, \varphi)\bigr)

with cumulant :math:`m`, mean :math:`g = m'`, slope :math:`g' = m''`, curvature :math:`g''` and
dispersion :math:`\varphi`, so that :math:`\operatorname{Var} y = \varphi\,g'(\eta)`. (The paper's
:math:`h(\eta)` is our :math:`\varphi`; its "m'' = Var" holds for :math:`\varphi = 1` only.)
With the canonical link the score of a reward is :math:`(y - g(\eta))\,x/\varphi`, and its
information :math:`g'(\eta)\,x x^\top/\varphi` does not depend on the reward: it is known before
the reward comes.

All functions take and give arrays, and are stable for :math:`|\eta| \le 700`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal, Protocol

import numpy as np

from belated.core.inputs import Interval, Vector, as_positive
from belated.model import kernels
from belated.model.kernels import MAX_ETA, special


class Family(Protocol):
    """What an estimator needs to know of a reward. The built-in ones are frozen values."""

    @property
    def support(self) -> Interval:
        """The rewards that are possible."""

    @property
    def dispersion(self) -> float | None:
        """The dispersion φ, or None where it is estimated from the rewards."""

    @property
    def number(self) -> int | None:
        """By which compiled kernels know a built-in family; None for any other."""

    def cumulant(self, eta: Vector) -> Vector:
        """m(η)."""

    def mean(self, eta: Vector) -> Vector:
        """g(η) = m'(η)."""

    def slope(self, eta: Vector) -> Vector:
        """g'(η), the variance of a reward over its dispersion."""

    def curvature(self, eta: Vector) -> Vector:
        """g''(η)."""

    def cumulant_mean_slope(self, eta: Vector) -> tuple[Vector, Vector, Vector]:
        """m, g and g' at once: they share their exponentials."""

    def mean_and_slope(self, eta: float) -> tuple[float, float]:
        """g(η) and g'(η) of one number, without the cost of arrays."""

    def slope_at(self, mean: float) -> float:
        """g'(η) where g(η) = mean: the variance function."""

    def log_likelihood(self, y: Vector, eta: Vector, dispersion: float = 1.0) -> Vector:
        """The log density of rewards."""

    def sample(self, eta: Vector, rng: np.random.Generator, dispersion: float = 1.0) -> Vector:
        """Rewards drawn at these linear predictors."""


@dataclass(frozen=True)
class Gaussian:
    """Real rewards with constant variance; the identity link.

    Args:
        variance: of a reward around its mean; "estimate" learns it from the residuals, so that
            rewards may be in cents or in euros. Then ``ridge`` is a precision in units of the
            noise: θ/√φ has the prior, not θ.

    >>> Gaussian(0.25).log_likelihood(np.array([1.0]), np.array([1.0]), dispersion=0.25).round(4)
    array([-0.2258])
    """

    #: Every real number.
    support = Interval(-math.inf, math.inf)
    number = 0

    variance: float | Literal["estimate"] = "estimate"

    def __post_init__(self) -> None:
        if self.variance != "estimate":
            object.__setattr__(self, "variance", as_positive(self.variance, "variance"))

    @property
    def dispersion(self) -> float | None:
        """The variance, or None where it is estimated."""
        return None if isinstance(self.variance, str) else self.variance

    def cumulant(self, eta: Vector) -> Vector:
        """η²/2."""
        return 0.5 * np.square(eta)

    def mean(self, eta: Vector) -> Vector:
        """η itself."""
        return np.asarray(eta, dtype=np.float64)

    def slope(self, eta: Vector) -> Vector:
        """1 everywhere."""
        return np.ones_like(eta, dtype=np.float64)

    def curvature(self, eta: Vector) -> Vector:
        """0 everywhere."""
        return np.zeros_like(eta, dtype=np.float64)

    def cumulant_mean_slope(self, eta: Vector) -> tuple[Vector, Vector, Vector]:
        """All three."""
        return self.cumulant(eta), self.mean(eta), self.slope(eta)

    mean_and_slope = staticmethod(kernels.gaussian_link)

    def slope_at(self, mean: float) -> float:
        """1, whatever the mean."""
        return 1.0

    def log_likelihood(self, y: Vector, eta: Vector, dispersion: float = 1.0) -> Vector:
        """The log density of a normal with variance ``dispersion``."""
        residual = np.square(np.subtract(y, eta)) / dispersion
        return -0.5 * (residual + math.log(2.0 * math.pi * dispersion))

    def sample(self, eta: Vector, rng: np.random.Generator, dispersion: float = 1.0) -> Vector:
        """Normal rewards."""
        return np.asarray(rng.normal(eta, math.sqrt(dispersion)))


@dataclass(frozen=True)
class Bernoulli:
    """Rewards in [0, 1], mostly 0 or 1; the logit link.

    >>> Bernoulli().mean(np.array([-700.0, 0.0, 700.0]))
    array([9.85967654e-305, 5.00000000e-001, 1.00000000e+000])
    """

    #: From 0 to 1; a share of a success counts as such.
    support = Interval(0.0, 1.0)
    dispersion = 1.0
    number = 1

    def cumulant(self, eta: Vector) -> Vector:
        """log(1 + e^η)."""
        return np.maximum(eta, 0.0) + np.log1p(np.exp(-np.abs(eta)))

    def mean(self, eta: Vector) -> Vector:
        """1 / (1 + e^-η)."""
        # The numerator is 1 above zero and e^η below: no overflow, no cancellation.
        return np.asarray(np.exp(np.minimum(eta, 0.0)) / (1.0 + np.exp(-np.abs(eta))))

    def slope(self, eta: Vector) -> Vector:
        """p (1 - p), without the cancellation in 1 - p."""
        decay = np.exp(-np.abs(eta))
        return np.asarray(decay / np.square(1.0 + decay))

    def curvature(self, eta: Vector) -> Vector:
        """p (1 - p) (1 - 2 p)."""
        return np.asarray(-self.slope(eta) * np.tanh(0.5 * np.asarray(eta)))

    def cumulant_mean_slope(self, eta: Vector) -> tuple[Vector, Vector, Vector]:
        """All three, from one exponential."""
        decay = np.exp(-np.abs(eta))
        total = 1.0 + decay
        upper = np.maximum(eta, 0.0)
        mean = np.where(upper > 0.0, 1.0, decay) / total
        return upper + np.log(total), mean, decay / np.square(total)

    mean_and_slope = staticmethod(kernels.bernoulli_link)

    def slope_at(self, mean: float) -> float:
        """p (1 - p)."""
        return mean * (1.0 - mean)

    def log_likelihood(self, y: Vector, eta: Vector, dispersion: float = 1.0) -> Vector:
        """Y log p + (1 - y) log(1 - p)."""
        return np.asarray(np.multiply(y, eta) - self.cumulant(eta))

    def sample(self, eta: Vector, rng: np.random.Generator, dispersion: float = 1.0) -> Vector:
        """Zeros and ones."""
        p = self.mean(eta)
        return np.asarray(rng.random(np.shape(p)) < p, dtype=np.float64)


@dataclass(frozen=True)
class Poisson:
    """Counts; the log link.

    Not sub-Gaussian, so the paper's bounds do not cover it: they are heuristics here.

    >>> Poisson().mean(np.array([0.0, 2.0])).round(3)
    array([1.   , 7.389])
    """

    #: From 0 up; a count need not be whole.
    support = Interval(0.0, math.inf)
    dispersion = 1.0
    number = 2

    def cumulant(self, eta: Vector) -> Vector:
        """e^η, held at ±700."""
        return np.exp(np.clip(eta, -MAX_ETA, MAX_ETA))

    mean = cumulant
    slope = cumulant
    curvature = cumulant

    def cumulant_mean_slope(self, eta: Vector) -> tuple[Vector, Vector, Vector]:
        """All three are e^η."""
        mean = self.mean(eta)
        return mean, mean, mean

    mean_and_slope = staticmethod(kernels.poisson_link)

    def slope_at(self, mean: float) -> float:
        """The mean itself."""
        return mean

    def log_likelihood(self, y: Vector, eta: Vector, dispersion: float = 1.0) -> Vector:
        """Y η - e^η - log y!."""
        constant = special.gammaln(np.asarray(y, dtype=np.float64) + 1.0)
        return np.asarray(np.multiply(y, eta) - self.cumulant(eta) - constant)

    def sample(self, eta: Vector, rng: np.random.Generator, dispersion: float = 1.0) -> Vector:
        """Counts; above 1e15, where a float64 counts no longer one by one, their normal limit."""
        mean = self.mean(eta)
        small = np.asarray(rng.poisson(np.minimum(mean, 1e15)), dtype=np.float64)
        large = mean + np.sqrt(mean) * rng.standard_normal(np.shape(mean))
        return np.where(mean <= 1e15, small, large)
