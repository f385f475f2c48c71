r"""Laws of times, made whole: rounded up, but for :class:`Lomax`.

A time :math:`X` that is rounded up has :math:`P(D \ge i) = P(X > i - 1)`, so its mean lies between
:math:`E X` and :math:`E X + 1`, and all parameters are those of the whole number D.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from belated.core.inputs import Vector, as_positive
from belated.delays.process import Independent, Parameters
from belated.delays.whole import as_uniforms, mean_of, rounded_down, rounded_up, tail_at
from belated.exceptions import InvalidInput
from belated.model.kernels import special


@dataclass(frozen=True, kw_only=True)
class Exponential(Independent):
    r"""An exponential time, rounded up: :math:`P(D \ge i) = e^{-(i-1)/b}` for i ≥ 1.

    Args:
        mean: of the delay as it is, in whole rounds: above 1. The time before it is rounded has
            the mean :math:`b = -1/\log(1 - 1/\mu)`, between μ - 1 and μ - 1/2.

    >>> law = Exponential(mean=2)
    >>> law.tail([0, 1, 2, 3]), law.scale
    (array([1.  , 1.  , 0.5 , 0.25]), 1.4427)
    """

    mean: float

    def __post_init__(self) -> None:
        mean = as_positive(self.mean, "mean")
        if mean <= 1.0:
            message = f"mean is {mean}: a time rounded up is 1 or more, so its mean is above 1"
            raise InvalidInput(message, mean)
        object.__setattr__(self, "mean", mean)

    @property
    def scale(self) -> float:
        """The mean b of the time before it is rounded."""
        return -1.0 / math.log1p(-1.0 / self.mean)

    def tail(self, i: Any) -> Vector:
        """e^(-(i - 1)/b)."""
        return tail_at(i, lambda i: np.exp((1.0 - i) / self.scale))

    def quantile(self, u: Any) -> NDArray[np.int64]:
        """⌈-b log(1 - u)⌉."""
        return rounded_up(-self.scale * np.log1p(-as_uniforms(u)))

    def params(self) -> Parameters:
        """An exponential tail: q = 0 and 2σ² = b."""
        return Parameters.iid(self.mean, sigma=math.sqrt(0.5 * self.scale), q=0.0)


@dataclass(frozen=True, kw_only=True)
class Weibull(Independent):
    r"""A Weibull time, rounded up: :math:`P(D \ge i) = \exp(-((i-1)/b)^k)` for i ≥ 1.

    The larger the shape, the lighter the tail: exponential at 1, Gaussian at 2. Below 1 it is
    heavier than Assumption 2 allows; above 2 it is light enough for Assumption 4.

    Args:
        shape: k.
        scale: b, which 37 % of the times exceed.

    >>> law = Weibull(shape=4, scale=40)
    >>> law.mean, law.params().q, law.params().q_r
    (36.76, 3.0, 1.0)
    """

    shape: float
    scale: float

    def __post_init__(self) -> None:
        object.__setattr__(self, "shape", as_positive(self.shape, "shape"))
        object.__setattr__(self, "scale", as_positive(self.scale, "scale"))

    @cached_property
    def mean(self) -> float:
        """The sum of the tail."""
        k, b = self.shape, self.scale
        whole = b * special.gamma(1.0 + 1.0 / k)
        with np.errstate(over="ignore"):
            return mean_of(
                self.tail,
                lambda i: whole * special.gammaincc(1.0 / k, np.power((i - 1.0) / b, k)),
            )

    def tail(self, i: Any) -> Vector:
        """exp(-((i - 1)/b)^k)."""
        return tail_at(i, lambda i: np.exp(-(((i - 1.0) / self.scale) ** self.shape)))

    @np.errstate(over="ignore")
    def quantile(self, u: Any) -> NDArray[np.int64]:
        """⌈b (-log(1 - u))^(1/k)⌉."""
        return rounded_up(self.scale * (-np.log1p(-as_uniforms(u))) ** (1.0 / self.shape))

    @np.errstate(over="ignore")
    def params(self) -> Parameters:
        """For k ≥ 1: q = k - 1 and 2σ² = b^k. For k > 2 also q_R = k/2 - 1 and 2σ_R² = b^k."""
        sigma = math.sqrt(0.5) * float(np.power(self.scale, 0.5 * self.shape))
        light, lighter = self.shape >= 1.0, self.shape > 2.0
        return Parameters.iid(
            self.mean,
            sigma=sigma if light else None,
            q=self.shape - 1.0 if light else None,
            sigma_r=sigma if lighter else None,
            q_r=0.5 * self.shape - 1.0 if lighter else None,
        )


@dataclass(frozen=True, kw_only=True)
class HalfNormal(Independent):
    r"""The size of a normal variable, rounded up: :math:`P(D \ge i) = 2 Q((i-1)/s)` for i ≥ 1.

    Args:
        scale: the standard deviation s of the normal variable.

    >>> HalfNormal(scale=20).mean
    16.461
    """

    scale: float

    def __post_init__(self) -> None:
        object.__setattr__(self, "scale", as_positive(self.scale, "scale"))

    @cached_property
    def mean(self) -> float:
        """The sum of the tail."""
        root = self.scale * math.sqrt(2.0)

        def integral(i: float) -> float:
            z = (i - 1.0) / root
            return root * (math.exp(-(z**2)) / math.sqrt(math.pi) - z * math.erfc(z))

        return mean_of(self.tail, integral)

    def tail(self, i: Any) -> Vector:
        """2 Q((i - 1)/s), with Q the upper tail of the standard normal."""
        return tail_at(i, lambda i: special.erfc((i - 1.0) / (self.scale * math.sqrt(2.0))))

    def quantile(self, u: Any) -> NDArray[np.int64]:
        """⌈s Q⁻¹((1 - u)/2)⌉."""
        return rounded_up(self.scale * math.sqrt(2.0) * special.erfcinv(1.0 - as_uniforms(u)))

    def params(self) -> Parameters:
        """A Gaussian tail: q = 1 and σ = s."""
        return Parameters.iid(self.mean, sigma=self.scale, q=1.0)


@dataclass(frozen=True, kw_only=True)
class Lognormal(Independent):
    r"""The exponential of a normal variable, rounded up.

    :math:`P(D \ge i) = Q(\log((i-1)/m)/s)` for i ≥ 1. The mean is finite, but the tail is heavier
    than Assumption 2 allows.

    Args:
        median: m, which half of the times exceed.
        sigma: s, the standard deviation of the logarithm.

    >>> Lognormal(median=30, sigma=1.5).quantile([0.025, 0.5, 0.975])
    array([  2,  30, 568])
    """

    median: float
    sigma: float

    def __post_init__(self) -> None:
        object.__setattr__(self, "median", as_positive(self.median, "median"))
        object.__setattr__(self, "sigma", as_positive(self.sigma, "sigma"))

    @cached_property
    def mean(self) -> float:
        """The sum of the tail; infinite if it is beyond the floats."""
        if (logarithm := math.log(self.median) + 0.5 * self.sigma**2) > 700.0:
            return math.inf

        def integral(i: float) -> float:
            x = i - 1.0
            z = math.log(x / self.median) / self.sigma
            return float(math.exp(logarithm) * special.ndtr(self.sigma - z) - x * special.ndtr(-z))

        return mean_of(self.tail, integral)

    def tail(self, i: Any) -> Vector:
        """Q(log((i - 1)/m)/s), with Q the upper tail of the standard normal."""
        return tail_at(i, lambda i: special.ndtr(-np.log((i - 1.0) / self.median) / self.sigma))

    @np.errstate(over="ignore")
    def quantile(self, u: Any) -> NDArray[np.int64]:
        """⌈m e^(s Q⁻¹(1 - u))⌉."""
        return rounded_up(self.median * np.exp(-self.sigma * special.ndtri(1.0 - as_uniforms(u))))

    def params(self) -> Parameters:
        """No assumption of the paper's on the tail holds."""
        return Parameters.iid(self.mean)


@dataclass(frozen=True, kw_only=True)
class Lomax(Independent):
    r"""A time with a power tail, rounded down: :math:`P(D \ge i) = (1 + i/c)^{-a}`.

    The mean is finite for a > 1 and the variance for a > 2; Assumption 2 holds for no a. With
    shape 1.2 and scale 100, :math:`D = \lfloor 100\,(U^{-1/1.2} - 1) \rfloor` for a uniform U.

    Args:
        shape: a.
        scale: c.

    >>> Lomax(shape=1.2, scale=100).mean, Lomax(shape=0.8, scale=20).mean
    (499.501, inf)
    """

    shape: float
    scale: float

    def __post_init__(self) -> None:
        object.__setattr__(self, "shape", as_positive(self.shape, "shape"))
        object.__setattr__(self, "scale", as_positive(self.scale, "scale"))

    @cached_property
    def mean(self) -> float:
        """The sum of the tail, infinite for shapes up to 1."""
        a, c = self.shape, self.scale
        if a <= 1.0:
            return math.inf
        return mean_of(self.tail, lambda i: c / (a - 1.0) * (1.0 + i / c) ** (1.0 - a))

    def tail(self, i: Any) -> Vector:
        """(1 + i/c)^-a."""
        return tail_at(i, lambda i: np.exp(-self.shape * np.log1p(i / self.scale)))

    @np.errstate(over="ignore")
    def quantile(self, u: Any) -> NDArray[np.int64]:
        """⌊c ((1 - u)^(-1/a) - 1)⌋."""
        return rounded_down(self.scale * np.expm1(-np.log1p(-as_uniforms(u)) / self.shape))

    def params(self) -> Parameters:
        """No assumption of the paper's on the tail holds."""
        return Parameters.iid(self.mean)
