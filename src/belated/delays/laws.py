"""Laws of delays that are whole numbers to begin with."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from belated.core.inputs import Vector, as_positive
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
from belated.exceptions import InvalidInput
from belated.model.kernels import special

#: The largest number that `Generator.random` gives.
LAST_UNIFORM = 1.0 - 2.0**-53


@dataclass(frozen=True)
class Constant(Independent):
    """The same delay in every round.

    ``Constant(0)`` is the classical bandit, and in ``Constant(NEVER)`` no reward ever comes.

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
        """1 up to the delay, 0 beyond."""
        return tail_at(i, lambda i: (i <= self.c).astype(np.float64))

    def quantile(self, u: Any) -> NDArray[np.int64]:
        """The delay, whatever u is."""
        return np.full(as_uniforms(u).shape, self.c, dtype=np.int64)

    def params(self) -> Parameters:
        """Bounded; every σ > 0 will do, and 0 is their limit."""
        if self.c == NEVER:
            return Parameters.iid(math.inf)
        return Parameters.bounded(self.mean, self.c, 0.0, 0.0)


@dataclass(frozen=True)
class Uniform(Independent):
    r"""Every delay from 0 to ``upto`` alike: :math:`P(D \ge i) = 1 - i/(u + 1)`, u = ``upto``.

    Args:
        upto: the largest delay.

    >>> Uniform(9).quantile([0.0, 0.55, 0.99])
    array([0, 5, 9])
    """

    upto: int

    def __post_init__(self) -> None:
        set_checked(self, as_rounds, "upto")

    @property
    def mean(self) -> float:
        """Half the largest delay."""
        return 0.5 * self.upto

    def tail(self, i: Any) -> Vector:
        """The share of delays from i up."""
        return tail_at(i, lambda i: np.maximum(self.upto + 1.0 - i, 0.0) / (self.upto + 1.0))

    def quantile(self, u: Any) -> NDArray[np.int64]:
        """⌊u (upto + 1)⌋."""
        return np.minimum(rounded_down(as_uniforms(u) * (self.upto + 1.0)), self.upto)

    def params(self) -> Parameters:
        """Bounded, so Gaussian tails by Hoeffding: σ is half the range."""
        half = self.mean
        return Parameters.bounded(half, self.upto, half, half**2)


@dataclass(frozen=True, kw_only=True)
class Geometric(Independent):
    r"""Failures before a success: :math:`P(D \ge i) = r^i` with :math:`r = \mu/(1 + \mu)`.

    In every round an outstanding reward arrives with the same probability :math:`1/(1 + \mu)`.

    Args:
        mean: of the delay, :math:`\mu`.

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
        """r^i."""
        return tail_at(i, lambda i: np.exp(i * self._log_ratio))

    def quantile(self, u: Any) -> NDArray[np.int64]:
        """⌊log(1 - u)/log r⌋."""
        return rounded_down(np.log1p(-as_uniforms(u)) / self._log_ratio)

    def params(self) -> Parameters:
        """An exponential tail: q = 0 and 2σ² = -1/log r."""
        return Parameters.iid(self.mean, sigma=math.sqrt(-0.5 / self._log_ratio), q=0.0)


@dataclass(frozen=True, kw_only=True)
class Mixture(Independent):
    r"""Rewards that may be lost: :data:`NEVER` with probability p, else a delay of another law.

    :math:`P(D \ge i) = p + (1 - p) P(B \ge i)` for a delay B of the base. The number of outstanding
    rewards grows without end, by about p a round.

    Args:
        never: the probability p that a reward never comes.
        base: the law of those that come.

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
        """Infinite, unless nothing is lost."""
        return math.inf if self.never > 0.0 else self.base.mean

    def tail(self, i: Any) -> Vector:
        """P + (1 - p) times the tail of the base."""
        return tail_at(i, lambda i: self.never + (1.0 - self.never) * self.base.tail(i))

    def quantile(self, u: Any) -> NDArray[np.int64]:
        """Those of the base on [0, 1 - p), and NEVER above."""
        v = as_uniforms(u)
        comes = np.minimum(v / (1.0 - self.never), LAST_UNIFORM)
        return np.where(v < 1.0 - self.never, self.base.quantile(comes), NEVER)

    def params(self) -> Parameters:
        """None of the paper's assumptions holds, unless nothing is lost."""
        return Parameters.iid(math.inf) if self.never > 0.0 else self.base.params()


@dataclass(frozen=True, eq=False, repr=False)
class Empirical(Shortened, Independent):
    """One of the delays that were seen, each with the same probability.

    Args:
        samples: delays; a fraction is rounded up, and infinity never comes.

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
        """Of the samples; infinite if one of them never came."""
        return self._atoms.mean

    def tail(self, i: Any) -> Vector:
        """The share of samples from i up."""
        return tail_at(i, self._atoms.tail)

    def quantile(self, u: Any) -> NDArray[np.int64]:
        """The samples in ascending order."""
        return np.asarray(self.samples[rounded_down(as_uniforms(u) * len(self.samples))])

    def params(self) -> Parameters:
        """Bounded: the least σ and σ_R for q = 1."""
        atoms = self._atoms
        if atoms.bound is None:
            return Parameters.iid(math.inf)
        return Parameters.bounded(self.mean, atoms.bound, atoms.sigma(1.0), atoms.sigma(3.0))


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
        set_checked(self, as_positive, "shape", "scale")

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
        set_checked(self, as_positive, "scale")

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
        set_checked(self, as_positive, "median", "sigma")

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
        set_checked(self, as_positive, "shape", "scale")

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
