"""Laws of delays that are whole numbers to begin with."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from belated.core.inputs import Vector, as_positive
from belated.delays.atoms import Atoms
from belated.delays.checks import as_delays, as_law, as_share
from belated.delays.process import Independent, Law, Parameters
from belated.delays.whole import NEVER, as_rounds, as_uniforms, rounded_down, tail_at

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
        object.__setattr__(self, "c", as_rounds(self.c, "c"))

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
        return Parameters.iid(self.mean, sigma=0.0, q=1.0, bound=self.c, sigma_r=0.0, q_r=1.0)


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
        object.__setattr__(self, "upto", as_rounds(self.upto, "upto"))

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
        return Parameters.iid(
            self.mean, sigma=half, q=1.0, bound=self.upto, sigma_r=half**2, q_r=1.0
        )


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
        object.__setattr__(self, "mean", as_positive(self.mean, "mean"))

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
        object.__setattr__(self, "never", as_share(self.never, "never"))
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


@dataclass(frozen=True, eq=False)
class Empirical(Independent):
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
        return Parameters.iid(
            self.mean,
            sigma=atoms.sigma(1.0),
            q=1.0,
            bound=atoms.bound,
            sigma_r=atoms.sigma(3.0),
            q_r=1.0,
        )
