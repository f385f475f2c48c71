"""Delays that depend on one another over the rounds."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from belated.core.inputs import Vector
from belated.delays.checks import as_law, as_share
from belated.delays.process import Law, Parameters
from belated.delays.whole import as_rounds, tail_at
from belated.exceptions import InvalidInput


def shared(law: Law, spectral: float | None) -> Parameters:
    """What of a law's parameters holds for delays that have it but depend on one another."""
    known = law.params()
    return Parameters(
        mu=known.mu, bound=known.bound, spectral=spectral, sigma_r=known.sigma_r, q_r=known.q_r
    )


@dataclass(frozen=True)
class LazyMarkov:
    r"""The last delay again with probability ρ, else a new one: a Markov chain.

    It is stationary and reversible with the law of its base, and its :math:`\lambda` is ρ exactly.

    Args:
        rho: the probability to stay, below 1.
        base: the law of new delays.

    >>> from belated.delays import Geometric
    >>> chain = LazyMarkov(0.8, base=Geometric(mean=20))
    >>> chain.sample(10, np.random.default_rng(1))
    array([61, 61, 61, 10, 10, 10, 10, 10, 10, 10])
    >>> chain.params().spectral
    0.8
    """

    rho: float
    _: KW_ONLY
    base: Law

    def __post_init__(self) -> None:
        object.__setattr__(self, "rho", as_share(self.rho, "rho"))
        as_law(self.base, "base")

    @property
    def mean(self) -> float:
        """That of the base."""
        return self.base.mean

    @property
    def independent(self) -> bool:
        """Only if it never stays."""
        return self.rho == 0.0

    def tail(self, i: Any) -> Vector:
        """That of the base."""
        return self.base.tail(i)

    def params(self) -> Parameters:
        """λ = ρ, and what the base says of one delay."""
        return self.base.params() if self.independent else shared(self.base, self.rho)

    def sample(self, horizon: int, rng: np.random.Generator) -> NDArray[np.int64]:
        """Two uniform numbers a round: whether to stay, and the new delay."""
        u = rng.random((as_rounds(horizon, "horizon"), 2))
        fresh = np.where(u[:, 0] >= self.rho, np.arange(horizon), 0)
        return self.base.quantile(u[:, 1])[np.maximum.accumulate(fresh)]


@dataclass(frozen=True)
class BlockDependent:
    """One delay for all rounds of a block, and blocks independent of one another.

    Args:
        base: the law of one delay.
        length: rounds in a block; the first begins in round 1.

    >>> from belated.delays import Uniform
    >>> BlockDependent(Uniform(9), length=3).sample(8, np.random.default_rng(0))
    array([6, 6, 6, 2, 2, 2, 0, 0])
    """

    base: Law
    _: KW_ONLY
    length: int

    def __post_init__(self) -> None:
        as_law(self.base, "base")
        object.__setattr__(self, "length", as_rounds(self.length, "length", least=1))

    @property
    def mean(self) -> float:
        """That of the base."""
        return self.base.mean

    @property
    def independent(self) -> bool:
        """Only if a block is one round."""
        return self.length == 1

    def tail(self, i: Any) -> Vector:
        """That of the base."""
        return self.base.tail(i)

    def params(self) -> Parameters:
        """What the base says of one delay; Assumption 4 does not mind the blocks."""
        return self.base.params() if self.independent else shared(self.base, None)

    def sample(self, horizon: int, rng: np.random.Generator) -> NDArray[np.int64]:
        """One uniform number a block."""
        block = np.arange(as_rounds(horizon, "horizon")) // self.length
        return self.base.sample(-(-horizon // self.length), rng)[block]


@dataclass(frozen=True)
class Batched:
    r"""All rewards of a period arrive at its end: :math:`D_t = P - 1 - ((t - 1) \bmod P)`.

    Then :math:`(t - 1) \bmod P` rewards are outstanding at the start of round t. Nothing is random:
    the mean and the tail are those of a round picked at random.

    Args:
        period: rounds P from one arrival to the next.
        offset: rounds of the first period that have passed before round 1.

    >>> Batched(4).sample(6, np.random.default_rng())
    array([3, 2, 1, 0, 3, 2])
    >>> Batched(4, offset=3).sample(6, np.random.default_rng())
    array([0, 3, 2, 1, 0, 3])
    """

    independent: ClassVar[bool] = False  # not of one law: the round decides

    period: int
    _: KW_ONLY
    offset: int = 0

    def __post_init__(self) -> None:
        object.__setattr__(self, "period", as_rounds(self.period, "period", least=1))
        object.__setattr__(self, "offset", as_rounds(self.offset, "offset"))
        if self.offset >= self.period:
            message = f"offset is {self.offset}: less than the period of {self.period} was expected"
            raise InvalidInput(message, self.offset)

    @property
    def mean(self) -> float:
        """(P - 1)/2."""
        return 0.5 * (self.period - 1)

    def tail(self, i: Any) -> Vector:
        """1 - i/P."""
        return tail_at(i, lambda i: np.maximum(self.period - i, 0.0) / self.period)

    def params(self) -> Parameters:
        """Bounded by P - 1; the round decides the delay, so nothing else of the paper applies."""
        return Parameters(mu=self.mean, bound=self.period - 1)

    def sample(self, horizon: int, rng: np.random.Generator) -> NDArray[np.int64]:
        """The same for every generator."""
        rounds = np.arange(as_rounds(horizon, "horizon"))
        return self.period - 1 - (rounds + self.offset) % self.period
