r"""Families of rewards: exponential families with their canonical links.

Given the linear predictor :math:`\eta = x^\top\theta`, a reward has the density

.. math:: \exp\bigl((y\,\eta - m(\eta))/\varphi + A(y, \varphi)\bigr)

with cumulant :math:`m`, mean :math:`g = m'`, slope :math:`g' = m''`, curvature :math:`g''` and
dispersion :math:`\varphi`, so that :math:`\operatorname{Var} y = \varphi\,g'(\eta)`. (The paper's
:math:`h(\eta)` is our :math:`\varphi`; its "m'' = Var" holds only for :math:`\varphi = 1`.)
With the canonical link, the score of a reward is :math:`(y - g(\eta))\,x/\varphi`. The information
:math:`g'(\eta)\,x x^\top/\varphi` does not depend on the reward, so it is known before the reward
arrives.

Unless stated otherwise, functions accept and return arrays. All are stable for
:math:`|\eta| \le 700`.
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
    """The interface of a reward family. The built-in families are immutable."""

    @property
    def support(self) -> Interval:
        """Range of possible rewards."""

    @property
    def dispersion(self) -> float | None:
        """The dispersion φ, or None if it is estimated from the rewards."""

    @property
    def number(self) -> int | None:
        """Number that identifies a built-in family in compiled kernels; None for other families."""

    def cumulant(self, eta: Vector) -> Vector:
        """Return m(η)."""

    def mean(self, eta: Vector) -> Vector:
        """Return g(η) = m'(η)."""

    def slope(self, eta: Vector) -> Vector:
        """Return g'(η), the variance of a reward divided by its dispersion."""

    def curvature(self, eta: Vector) -> Vector:
        """Return g''(η)."""

    def cumulant_mean_slope(self, eta: Vector) -> tuple[Vector, Vector, Vector]:
        """Return m, g and g' together, because they share exponentials."""

    def mean_and_slope(self, eta: float) -> tuple[float, float]:
        """Return g(η) and g'(η) for a single number, without array overhead."""

    def slope_at(self, mean: float) -> float:
        """Return the variance function: g'(η) where g(η) = mean."""

    def log_likelihood(self, y: Vector, eta: Vector, dispersion: float = 1.0) -> Vector:
        """Return the log density of rewards."""

    def sample(self, eta: Vector, rng: np.random.Generator, dispersion: float = 1.0) -> Vector:
        """Draw rewards for these linear predictors."""


@dataclass(frozen=True)
class Gaussian:
    """Real rewards with constant variance and the identity link.

    Args:
        variance: variance of a reward around its mean. "estimate" computes it from the residuals,
            so the unit of rewards does not matter. ``ridge`` is then a precision in
            units of the noise: the prior applies to θ/√φ, not to θ.

    >>> Gaussian(0.25).log_likelihood(np.array([1.0]), np.array([1.0]), dispersion=0.25).round(4)
    array([-0.2258])
    """

    #: All real numbers.
    support = Interval(-math.inf, math.inf)
    number = 0

    variance: float | Literal["estimate"] = "estimate"

    def __post_init__(self) -> None:
        if self.variance != "estimate":
            object.__setattr__(self, "variance", as_positive(self.variance, "variance"))

    @property
    def dispersion(self) -> float | None:
        """The variance, or None if it is estimated."""
        return None if isinstance(self.variance, str) else self.variance

    def cumulant(self, eta: Vector) -> Vector:
        """Return η²/2."""
        return 0.5 * np.square(eta)

    def mean(self, eta: Vector) -> Vector:
        """Return η."""
        return np.asarray(eta, dtype=np.float64)

    def slope(self, eta: Vector) -> Vector:
        """Return ones."""
        return np.ones_like(eta, dtype=np.float64)

    def curvature(self, eta: Vector) -> Vector:
        """Return zeros."""
        return np.zeros_like(eta, dtype=np.float64)

    def cumulant_mean_slope(self, eta: Vector) -> tuple[Vector, Vector, Vector]:
        """Return the cumulant, the mean and the slope."""
        return self.cumulant(eta), self.mean(eta), self.slope(eta)

    mean_and_slope = staticmethod(kernels.gaussian_link)

    def slope_at(self, mean: float) -> float:
        """Return 1."""
        return 1.0

    def log_likelihood(self, y: Vector, eta: Vector, dispersion: float = 1.0) -> Vector:
        """Return the log density of a normal distribution with variance ``dispersion``."""
        residual = np.square(np.subtract(y, eta)) / dispersion
        return -0.5 * (residual + math.log(2.0 * math.pi * dispersion))

    def sample(self, eta: Vector, rng: np.random.Generator, dispersion: float = 1.0) -> Vector:
        """Draw normal rewards."""
        return np.asarray(rng.normal(eta, math.sqrt(dispersion)))


@dataclass(frozen=True)
class Bernoulli:
    """Rewards in [0, 1], usually 0 or 1, with the logit link.

    >>> Bernoulli().mean(np.array([-700.0, 0.0, 700.0]))
    array([9.85967654e-305, 5.00000000e-001, 1.00000000e+000])
    """

    #: From 0 to 1; values in between count as fractions of a success.
    support = Interval(0.0, 1.0)
    dispersion = 1.0
    number = 1

    def cumulant(self, eta: Vector) -> Vector:
        """Return log(1 + e^η)."""
        return np.maximum(eta, 0.0) + np.log1p(np.exp(-np.abs(eta)))

    def mean(self, eta: Vector) -> Vector:
        """Return 1 / (1 + e^-η)."""
        # The numerator is 1 above zero and e^η below, to avoid overflow and cancellation.
        return np.asarray(np.exp(np.minimum(eta, 0.0)) / (1.0 + np.exp(-np.abs(eta))))

    def slope(self, eta: Vector) -> Vector:
        """Return p (1 - p), without cancellation in 1 - p."""
        decay = np.exp(-np.abs(eta))
        return np.asarray(decay / np.square(1.0 + decay))

    def curvature(self, eta: Vector) -> Vector:
        """Return p (1 - p) (1 - 2 p)."""
        return np.asarray(-self.slope(eta) * np.tanh(0.5 * np.asarray(eta)))

    def cumulant_mean_slope(self, eta: Vector) -> tuple[Vector, Vector, Vector]:
        """Return the cumulant, the mean and the slope, from one exponential."""
        decay = np.exp(-np.abs(eta))
        total = 1.0 + decay
        upper = np.maximum(eta, 0.0)
        mean = np.where(upper > 0.0, 1.0, decay) / total
        return upper + np.log(total), mean, decay / np.square(total)

    mean_and_slope = staticmethod(kernels.bernoulli_link)

    def slope_at(self, mean: float) -> float:
        """Return p (1 - p)."""
        return mean * (1.0 - mean)

    def log_likelihood(self, y: Vector, eta: Vector, dispersion: float = 1.0) -> Vector:
        """Return y log p + (1 - y) log(1 - p)."""
        return np.asarray(np.multiply(y, eta) - self.cumulant(eta))

    def sample(self, eta: Vector, rng: np.random.Generator, dispersion: float = 1.0) -> Vector:
        """Draw zeros and ones."""
        p = self.mean(eta)
        return np.asarray(rng.random(np.shape(p)) < p, dtype=np.float64)


@dataclass(frozen=True)
class Poisson:
    """Counts, with the log link.

    Counts are not sub-Gaussian, so the paper's bounds are only heuristics for them.

    >>> Poisson().mean(np.array([0.0, 2.0])).round(3)
    array([1.   , 7.389])
    """

    #: At least 0; counts need not be integers.
    support = Interval(0.0, math.inf)
    dispersion = 1.0
    number = 2

    def cumulant(self, eta: Vector) -> Vector:
        """Return e^η, with η limited to ±700."""
        return np.exp(np.clip(eta, -MAX_ETA, MAX_ETA))

    mean = cumulant
    slope = cumulant
    curvature = cumulant

    def cumulant_mean_slope(self, eta: Vector) -> tuple[Vector, Vector, Vector]:
        """Return e^η three times."""
        mean = self.mean(eta)
        return mean, mean, mean

    mean_and_slope = staticmethod(kernels.poisson_link)

    def slope_at(self, mean: float) -> float:
        """Return the mean."""
        return mean

    def log_likelihood(self, y: Vector, eta: Vector, dispersion: float = 1.0) -> Vector:
        """Return y η - e^η - log y!."""
        constant = special.gammaln(np.asarray(y, dtype=np.float64) + 1.0)
        return np.asarray(np.multiply(y, eta) - self.cumulant(eta) - constant)

    def sample(self, eta: Vector, rng: np.random.Generator, dispersion: float = 1.0) -> Vector:
        """Draw counts, using the normal approximation for means above 1e15."""
        mean = self.mean(eta)
        small = np.asarray(rng.poisson(np.minimum(mean, 1e15)), dtype=np.float64)
        large = mean + np.sqrt(mean) * rng.standard_normal(np.shape(mean))
        return np.where(mean <= 1e15, small, large)
