"""Distributions of independent delays."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from belated.core.inputs import Vector, as_positive, must_be
from belated.core.results import Shortened
from belated.delays.process import (
    NEVER,
    Atoms,
    Independent,
    Law,
    Parameters,
    as_delays,
    as_law,
    as_rounds,
    as_share,
    as_uniforms,
    mean_of,
    rounded_down,
    rounded_up,
    set_checked,
    tail_at,
)
from belated.model.kernels import special

#: The largest number that `Generator.random` returns.
LAST_UNIFORM = 1.0 - 2.0**-53


@dataclass(frozen=True)
class Constant(Independent):
    """The same delay in every round.

    ``Constant(0)`` is the classical bandit; with ``Constant(NEVER)``, no reward ever arrives.

    Args:
        c: the delay.

    >>> Constant(3).tail([3, 4])
    array([1., 0.])
    """

    c: int

    def __post_init__(self) -> None:
        set_checked(self, as_rounds, "c")

    @property
    def mean(self) -> float:
        """The delay itself, or infinity for NEVER."""
        return math.inf if self.c == NEVER else float(self.c)

    def tail(self, i: Any) -> Vector:
        """Return 1 up to the delay and 0 beyond."""
        return tail_at(i, lambda i: (i <= self.c).astype(np.float64))

    def quantile(self, u: Any) -> NDArray[np.int64]:
        """Return the delay for every u."""
        return np.full(as_uniforms(u).shape, self.c, dtype=np.int64)

    def params(self) -> Parameters:
        """Return the parameters of bounded delays; σ is 0, because every σ > 0 is valid."""
        if self.c == NEVER:
            return Parameters.iid(math.inf)
        return Parameters.bounded(self.mean, self.c, 0.0, 0.0)


@dataclass(frozen=True)
class Uniform(Independent):
    r"""Delays from 0 to u = ``high``, equally likely: :math:`P(D \ge i) = 1 - i/(u + 1)`.

    Args:
        high: the largest delay.

    >>> Uniform(9).quantile([0.0, 0.55, 0.99])
    array([0, 5, 9])
    """

    high: int

    def __post_init__(self) -> None:
        set_checked(self, as_rounds, "high")

    @property
    def mean(self) -> float:
        """Half the largest delay."""
        return 0.5 * self.high

    def tail(self, i: Any) -> Vector:
        """Return the share of delays that are at least i."""
        return tail_at(i, lambda i: np.maximum(self.high + 1.0 - i, 0.0) / (self.high + 1.0))

    def quantile(self, u: Any) -> NDArray[np.int64]:
        """Return ⌊u (high + 1)⌋."""
        return np.minimum(rounded_down(as_uniforms(u) * (self.high + 1.0)), self.high)

    def params(self) -> Parameters:
        """Return a Gaussian tail by Hoeffding's inequality, where σ is half the range."""
        half = self.mean
        return Parameters.bounded(half, self.high, half, half**2)


@dataclass(frozen=True, kw_only=True)
class Geometric(Independent):
    r"""Number of failures before a success: :math:`P(D \ge i) = r^i`, :math:`r = \mu/(1 + \mu)`.

    In every round, a pending reward arrives with the same probability :math:`1/(1 + \mu)`.

    Args:
        mean: the mean delay :math:`\mu`.

    >>> Geometric(mean=1).tail([0, 1, 2, 3])
    array([1.   , 0.5  , 0.25 , 0.125])
    """

    mean: float

    def __post_init__(self) -> None:
        set_checked(self, as_positive, "mean")

    @property
    def _log_ratio(self) -> float:
        return -math.log1p(1.0 / self.mean)

    def tail(self, i: Any) -> Vector:
        """Return r^i."""
        return tail_at(i, lambda i: np.exp(i * self._log_ratio))

    def quantile(self, u: Any) -> NDArray[np.int64]:
        """Return ⌊log(1 - u)/log r⌋."""
        return rounded_down(np.log1p(-as_uniforms(u)) / self._log_ratio)

    def params(self) -> Parameters:
        """Return an exponential tail: q = 0 and 2σ² = -1/log r."""
        return Parameters.iid(self.mean, sigma=math.sqrt(-0.5 / self._log_ratio), q=0.0)


@dataclass(frozen=True, kw_only=True)
class Mixture(Independent):
    r"""Rewards that may be lost: :data:`NEVER` with probability p, otherwise a delay from ``base``.

    :math:`P(D \ge i) = p + (1 - p) P(B \ge i)`, where B is a delay from ``base``. The number of
    outstanding rewards grows without limit, by about p per round.

    Args:
        never: the probability p that a reward never arrives.
        base: the delay distribution of rewards that arrive.

    >>> law = Mixture(never=0.3, base=Geometric(mean=100))
    >>> law.quantile([0.35, 0.69]), law.mean
    (array([ 69, 426]), inf)
    >>> bool(law.quantile(0.7) == NEVER)
    True
    """

    never: float
    base: Law

    def __post_init__(self) -> None:
        set_checked(self, as_share, "never")
        as_law(self.base, "base")

    @property
    def mean(self) -> float:
        """The mean of the base distribution if no reward is lost, otherwise infinity."""
        return math.inf if self.never > 0.0 else self.base.mean

    def tail(self, i: Any) -> Vector:
        """Return p + (1 - p) times the tail of the base distribution."""
        return tail_at(i, lambda i: self.never + (1.0 - self.never) * self.base.tail(i))

    def quantile(self, u: Any) -> NDArray[np.int64]:
        """Return a quantile of the base distribution if u is below 1 - p, otherwise NEVER."""
        v = as_uniforms(u)
        scaled = np.minimum(v / (1.0 - self.never), LAST_UNIFORM)
        return np.where(v < 1.0 - self.never, self.base.quantile(scaled), NEVER)

    def params(self) -> Parameters:
        """Return the base's parameters if no reward is lost; otherwise, no assumption holds."""
        return Parameters.iid(math.inf) if self.never > 0.0 else self.base.params()


@dataclass(frozen=True, eq=False, repr=False)
class Empirical(Shortened, Independent):
    """The empirical distribution of observed delays, each equally likely.

    Args:
        samples: delays; fractions are rounded up, and infinity is :data:`NEVER`.

    >>> law = Empirical([0, 0, 2, 5.5])
    >>> law.mean, law.tail([0, 1, 2, 3, 6, 7])
    (2.0, array([1.  , 0.5 , 0.5 , 0.25, 0.25, 0.  ]))
    """

    samples: Any

    def __post_init__(self) -> None:
        ordered = np.sort(as_delays(self.samples, "samples"))
        ordered.flags.writeable = False
        object.__setattr__(self, "samples", ordered)

    @cached_property
    def _atoms(self) -> Atoms:
        return Atoms.of(self.samples, np.ones(len(self.samples)))

    @property
    def mean(self) -> float:
        """The mean of the samples; infinite if one of them is NEVER."""
        return self._atoms.mean

    def tail(self, i: Any) -> Vector:
        """Return the share of samples that are at least i."""
        return tail_at(i, self._atoms.tail)

    def quantile(self, u: Any) -> NDArray[np.int64]:
        """Return the sample at this quantile."""
        return np.asarray(self.samples[rounded_down(as_uniforms(u) * len(self.samples))])

    def params(self) -> Parameters:
        """Return the bound and the smallest σ and σ_R for q = 1, unless a sample is NEVER."""
        atoms = self._atoms
        if atoms.bound is None:
            return Parameters.iid(math.inf)
        return Parameters.bounded(self.mean, atoms.bound, atoms.sigma(1.0), atoms.sigma(3.0))


@dataclass(frozen=True, kw_only=True)
class Exponential(Independent):
    r"""An exponential time, rounded up: :math:`P(D \ge i) = e^{-(i-1)/b}` for i ≥ 1.

    Args:
        mean: the mean μ of the delay after rounding; must be above 1. Before rounding, the mean
            time is :math:`b = -1/\log(1 - 1/\mu)`, which is between μ - 1 and μ - 1/2.

    >>> law = Exponential(mean=2)
    >>> law.tail([0, 1, 2, 3]), law.scale
    (array([1.  , 1.  , 0.5 , 0.25]), 1.4427)
    """

    mean: float

    def __post_init__(self) -> None:
        mean = as_positive(self.mean, "mean")
        if mean <= 1.0:
            raise must_be("mean", "above 1, because times are rounded up to at least 1", mean)
        object.__setattr__(self, "mean", mean)

    @property
    def scale(self) -> float:
        """The mean time b before rounding."""
        return -1.0 / math.log1p(-1.0 / self.mean)

    def tail(self, i: Any) -> Vector:
        """Return e^(-(i - 1)/b)."""
        return tail_at(i, lambda i: np.exp((1.0 - i) / self.scale))

    def quantile(self, u: Any) -> NDArray[np.int64]:
        """Return ⌈-b log(1 - u)⌉."""
        return rounded_up(-self.scale * np.log1p(-as_uniforms(u)))

    def params(self) -> Parameters:
        """Return an exponential tail: q = 0 and 2σ² = b."""
        return Parameters.iid(self.mean, sigma=math.sqrt(0.5 * self.scale), q=0.0)


@dataclass(frozen=True, kw_only=True)
class Weibull(Independent):
    r"""A Weibull time, rounded up: :math:`P(D \ge i) = \exp(-((i-1)/b)^k)` for i ≥ 1.

    The larger the shape, the lighter the tail: it is exponential for shape 1 and Gaussian for
    shape 2. Below 1, the tail is heavier than Assumption 2 allows; above 2, it is light enough for
    Assumption 4.

    Args:
        shape: the shape k.
        scale: the scale b; 37 % of the times exceed it.

    >>> law = Weibull(shape=4, scale=40)
    >>> law.mean, law.params().q, law.params().q_r
    (36.76, 3.0, 1.0)
    """

    shape: float
    scale: float

    def __post_init__(self) -> None:
        set_checked(self, as_positive, "shape", "scale")

    @cached_property
    def mean(self) -> float:
        """The mean delay, computed as the sum of the tail."""
        k, b = self.shape, self.scale
        whole = b * special.gamma(1.0 + 1.0 / k)
        with np.errstate(over="ignore"):
            return mean_of(
                self.tail,
                lambda i: whole * special.gammaincc(1.0 / k, np.power((i - 1.0) / b, k)),
            )

    def tail(self, i: Any) -> Vector:
        """Return exp(-((i - 1)/b)^k)."""
        return tail_at(i, lambda i: np.exp(-(((i - 1.0) / self.scale) ** self.shape)))

    @np.errstate(over="ignore")
    def quantile(self, u: Any) -> NDArray[np.int64]:
        """Return ⌈b (-log(1 - u))^(1/k)⌉."""
        return rounded_up(self.scale * (-np.log1p(-as_uniforms(u))) ** (1.0 / self.shape))

    @np.errstate(over="ignore")
    def params(self) -> Parameters:
        """Return q = k - 1 and 2σ² = b^k if k ≥ 1, and q_R = k/2 - 1 and 2σ_R² = b^k if k > 2."""
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
    r"""The absolute value of a normal variable, rounded up.

    :math:`P(D \ge i) = 2 Q((i-1)/s)` for i ≥ 1, with Q the upper tail of the standard normal.

    Args:
        scale: the standard deviation s of the normal variable.

    >>> HalfNormal(scale=20).mean
    16.461
    """

    scale: float

    def __post_init__(self) -> None:
        set_checked(self, as_positive, "scale")

    @cached_property
    def mean(self) -> float:
        """The mean delay, computed as the sum of the tail."""
        root = self.scale * math.sqrt(2.0)

        def integral(i: float) -> float:
            z = (i - 1.0) / root
            return root * (math.exp(-(z**2)) / math.sqrt(math.pi) - z * math.erfc(z))

        return mean_of(self.tail, integral)

    def tail(self, i: Any) -> Vector:
        """Return 2 Q((i - 1)/s), with Q the upper tail of the standard normal."""
        return tail_at(i, lambda i: special.erfc((i - 1.0) / (self.scale * math.sqrt(2.0))))

    def quantile(self, u: Any) -> NDArray[np.int64]:
        """Return ⌈s Q⁻¹((1 - u)/2)⌉."""
        return rounded_up(self.scale * math.sqrt(2.0) * special.erfcinv(1.0 - as_uniforms(u)))

    def params(self) -> Parameters:
        """Return a Gaussian tail: q = 1 and σ = s."""
        return Parameters.iid(self.mean, sigma=self.scale, q=1.0)


@dataclass(frozen=True, kw_only=True)
class Lognormal(Independent):
    r"""The exponential of a normal variable, rounded up.

    :math:`P(D \ge i) = Q(\log((i-1)/m)/s)` for i ≥ 1, with Q the upper tail of the standard normal.
    The mean is finite, but the tail is heavier than Assumption 2 allows.

    Args:
        median: the median m of the time before rounding.
        sigma: the standard deviation s of the logarithm.

    >>> Lognormal(median=30, sigma=1.5).quantile([0.025, 0.5, 0.975])
    array([  2,  30, 568])
    """

    median: float
    sigma: float

    def __post_init__(self) -> None:
        set_checked(self, as_positive, "median", "sigma")

    @cached_property
    def mean(self) -> float:
        """The mean delay, computed as the sum of the tail; infinite if it overflows."""
        if (logarithm := math.log(self.median) + 0.5 * self.sigma**2) > 700.0:
            return math.inf

        def integral(i: float) -> float:
            x = i - 1.0
            z = math.log(x / self.median) / self.sigma
            return float(math.exp(logarithm) * special.ndtr(self.sigma - z) - x * special.ndtr(-z))

        return mean_of(self.tail, integral)

    def tail(self, i: Any) -> Vector:
        """Return Q(log((i - 1)/m)/s), with Q the upper tail of the standard normal."""
        return tail_at(i, lambda i: special.ndtr(-np.log((i - 1.0) / self.median) / self.sigma))

    @np.errstate(over="ignore")
    def quantile(self, u: Any) -> NDArray[np.int64]:
        """Return ⌈m e^(s Q⁻¹(1 - u))⌉."""
        return rounded_up(self.median * np.exp(-self.sigma * special.ndtri(1.0 - as_uniforms(u))))

    def params(self) -> Parameters:
        """Return the mean only: none of the paper's assumptions on the tail holds."""
        return Parameters.iid(self.mean)


@dataclass(frozen=True, kw_only=True)
class Lomax(Independent):
    r"""A time with a power tail, rounded down: :math:`P(D \ge i) = (1 + i/c)^{-a}`.

    The mean is finite for a > 1 and the variance for a > 2; Assumption 2 does not hold for any a.
    With shape 1.2 and scale 100, :math:`D = \lfloor 100\,(U^{-1/1.2} - 1) \rfloor` for a uniform U.

    Args:
        shape: the shape a.
        scale: the scale c.

    >>> Lomax(shape=1.2, scale=100).mean, Lomax(shape=0.8, scale=20).mean
    (499.501, inf)
    """

    shape: float
    scale: float

    def __post_init__(self) -> None:
        set_checked(self, as_positive, "shape", "scale")

    @cached_property
    def mean(self) -> float:
        """The mean delay, computed as the sum of the tail; infinite for shapes up to 1."""
        a, c = self.shape, self.scale
        if a <= 1.0:
            return math.inf
        return mean_of(self.tail, lambda i: c / (a - 1.0) * (1.0 + i / c) ** (1.0 - a))

    def tail(self, i: Any) -> Vector:
        """Return (1 + i/c)^-a."""
        return tail_at(i, lambda i: np.exp(-self.shape * np.log1p(i / self.scale)))

    @np.errstate(over="ignore")
    def quantile(self, u: Any) -> NDArray[np.int64]:
        """Return ⌊c ((1 - u)^(-1/a) - 1)⌋."""
        return rounded_down(self.scale * np.expm1(-np.log1p(-as_uniforms(u)) / self.shape))

    def params(self) -> Parameters:
        """Return the mean only: none of the paper's assumptions on the tail holds."""
        return Parameters.iid(self.mean)
