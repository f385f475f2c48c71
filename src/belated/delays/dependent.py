"""Delays that depend on earlier rounds, on the row, or on the reward."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence, Sized
from dataclasses import KW_ONLY, dataclass, field, replace
from functools import cached_property
from typing import Any, ClassVar, NoReturn

import numpy as np
from numpy.typing import NDArray

from belated.core.inputs import Vector, as_positive, must_be
from belated.core.results import Shortened
from belated.delays.process import (
    Atoms,
    Law,
    Parameters,
    as_delays,
    as_law,
    as_rounds,
    as_share,
    as_transition,
    as_uniforms,
    rounded_up,
    set_checked,
    tail_at,
)
from belated.exceptions import InvalidInput


class _OfOneLaw(ABC):
    """Base class of dependent delays that each have the distribution of ``base``."""

    base: Law

    @property
    @abstractmethod
    def independent(self) -> bool:
        """Whether the delays are independent for these arguments."""

    @property
    def mean(self) -> float:
        """The mean of the base distribution."""
        return self.base.mean

    def tail(self, i: Any) -> Vector:
        """Return the tail of the base distribution."""
        return self.base.tail(i)

    def _params(self, spectral: float | None) -> Parameters:
        """Return the base distribution's parameters that still hold for dependent delays."""
        params = self.base.params()
        if self.independent:
            return params
        return replace(params, M=None, sigma=None, q=None, spectral=spectral)


@dataclass(frozen=True)
class LazyMarkov(_OfOneLaw):
    r"""A Markov chain that repeats the last delay with probability ρ and otherwise draws a new one.

    The chain is stationary and reversible, each delay has the distribution of ``base``, and
    :math:`\lambda` is exactly ρ.

    Args:
        rho: the probability of repeating the last delay; must be below 1.
        base: the distribution of new delays.

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
        set_checked(self, as_share, "rho")
        as_law(self.base, "base")

    @property
    def independent(self) -> bool:
        """True if ρ is 0."""
        return self.rho == 0.0

    def params(self) -> Parameters:
        """Return λ = ρ, and the mean and bounds of the base distribution."""
        return self._params(self.rho)

    def sample(self, horizon: int, rng: np.random.Generator) -> NDArray[np.int64]:
        """Draw the delays from two random numbers per round: whether to repeat, and the delay."""
        u = rng.random((as_rounds(horizon, "horizon"), 2))
        fresh = np.where(u[:, 0] >= self.rho, np.arange(horizon), 0)
        return self.base.quantile(u[:, 1])[np.maximum.accumulate(fresh)]


@dataclass(frozen=True)
class BlockDependent(_OfOneLaw):
    """The same delay in all rounds of a block; blocks are independent of each other.

    Args:
        base: the distribution of a block's delay.
        length: number of rounds per block; the first block begins in round 1.

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
    def independent(self) -> bool:
        """True if a block is a single round."""
        return self.length == 1

    def params(self) -> Parameters:
        """Return the base distribution's mean and bounds; Assumption 4 holds for any dependence."""
        return self._params(None)

    def sample(self, horizon: int, rng: np.random.Generator) -> NDArray[np.int64]:
        """Draw the delays from one uniform number per block."""
        block = np.arange(as_rounds(horizon, "horizon")) // self.length
        return self.base.sample(-(-horizon // self.length), rng)[block]


@dataclass(frozen=True)
class Batched:
    r"""All rewards of a period arrive at its end: :math:`D_t = P - 1 - ((t - 1) \bmod P)`.

    At the start of round t, :math:`(t - 1) \bmod P` rewards are outstanding. The delays are
    deterministic; the mean and the tail are averages over the rounds of a period.

    Args:
        period: number of rounds P between arrivals.
        offset: number of rounds of the first period that elapsed before round 1.

    >>> Batched(4).sample(6, np.random.default_rng())
    array([3, 2, 1, 0, 3, 2])
    >>> Batched(4, offset=3).sample(6, np.random.default_rng())
    array([0, 3, 2, 1, 0, 3])
    """

    independent: ClassVar[bool] = False  # the number of the round determines the delay

    period: int
    _: KW_ONLY
    offset: int = 0

    def __post_init__(self) -> None:
        object.__setattr__(self, "period", as_rounds(self.period, "period", least=1))
        set_checked(self, as_rounds, "offset")
        if self.offset >= self.period:
            raise must_be("offset", f"less than the period of {self.period}", self.offset)

    @property
    def mean(self) -> float:
        """The mean delay, (P - 1)/2."""
        return 0.5 * (self.period - 1)

    def tail(self, i: Any) -> Vector:
        """Return 1 - i/P."""
        return tail_at(i, lambda i: np.maximum(self.period - i, 0.0) / self.period)

    def params(self) -> Parameters:
        """Return the bound P - 1; no other assumption holds, because delays are deterministic."""
        return Parameters(mu=self.mean, bound=self.period - 1)

    def sample(self, horizon: int, rng: np.random.Generator) -> NDArray[np.int64]:
        """Return the delays, which do not depend on the generator."""
        rounds = np.arange(as_rounds(horizon, "horizon"))
        return self.period - 1 - (rounds + self.offset) % self.period


#: Distance from 1 within which λ counts as 1: the chain is periodic, or almost never moves.
NO_GAP = 1e-12


@dataclass(frozen=True, eq=False)
class Chain:
    """A stationary Markov chain on the states 0 to n - 1.

    Args:
        transition: for each state (row), the probabilities of the next state.
    """

    transition: Any

    def __post_init__(self) -> None:
        object.__setattr__(self, "transition", as_transition(self.transition))
        _ = self.stationary  # raise now if the stationary distribution is not unique

    @property
    def independent(self) -> bool:
        """Whether the next state is independent of the last one."""
        return bool((self.transition == self.transition[0]).all())

    @cached_property
    def stationary(self) -> Vector:
        """The stationary distribution π, from the Grassmann–Taksar–Heyman algorithm.

        The elimination has no subtractions, so even tiny entries have full relative accuracy.
        """
        recurrent = self._recurrent()
        p = self.transition[np.ix_(recurrent, recurrent)].copy()
        for k in range(len(p) - 1, 0, -1):
            p[:k, k] /= p[k, :k].sum()
            p[:k, :k] += np.outer(p[:k, k], p[k, :k])
        pi = np.ones(len(p))
        for k in range(1, len(p)):
            pi[k] = pi[:k] @ p[:k, k]
        stationary = np.zeros(len(self.transition))
        stationary[recurrent] = pi / pi.sum()
        return stationary

    def _recurrent(self) -> NDArray[np.intp]:
        n = len(self.transition)
        reach = np.eye(n) + (self.transition > 0.0)
        for _ in range(n.bit_length()):
            reach = np.minimum(reach @ reach, 1.0)
        recurrent = (reach <= reach.T).all(axis=1)  # every state it reaches leads back to it
        states = np.flatnonzero(recurrent)
        if not reach[np.ix_(states, states)].all():
            message = (
                "transition has several stationary distributions: some states cannot reach each"
                " other"
            )
            raise InvalidInput(message, self.transition)
        return states

    @property
    def spectral(self) -> float | None:
        """The norm ‖diag(√π) P diag(1/√π) - √π √πᵀ‖; None if it is 1 (no spectral gap)."""
        used = self.stationary > 0.0
        root = np.sqrt(self.stationary[used])
        p = self.transition[np.ix_(used, used)]
        norm = float(np.linalg.norm(root[:, None] * p / root - np.outer(root, root), 2))
        return norm if norm < 1.0 - NO_GAP else None

    def walk(self, u: Vector) -> NDArray[np.intp]:
        """Return a path of the stationary chain, generated from one uniform number per state."""
        # The last row is the distribution of the first state.
        rows = np.cumsum(np.vstack([self.transition, self.stationary]), axis=1)
        edges, state, path = (rows / rows[:, -1:]).tolist(), -1, []
        for number in u.tolist():
            state = bisect_right(edges[state], number)
            path.append(state)
        return np.array(path, dtype=np.intp)

    def _set_states(self, name: str, by_state: Sized) -> None:
        """Set a field of a subclass that has one item per state."""
        if len(by_state) != (states := len(self.transition)):
            message = (
                f"{len(by_state)} {name} for {states} states of the chain: pass one entry per state"
            )
            raise InvalidInput(message, by_state)
        object.__setattr__(self, name, by_state)

    def _params(
        self, mean: float, bound: int | None, sigma: float = 0.0, sigma_r: float = 0.0
    ) -> Parameters:
        """Return the chain's λ; for bounded delays also σ_R, and σ if they are independent."""
        iid, finite = self.independent, math.isfinite(mean)
        params: dict[str, Any] = {
            "mu": mean if finite else None,
            "M": 0.0 if iid and finite else None,
        }
        spectral = self.spectral
        if bound is None:
            return Parameters(**params, spectral=spectral)
        if iid:
            params |= {"sigma": sigma, "q": 1.0}
        return Parameters(**params, bound=bound, spectral=spectral, sigma_r=sigma_r, q_r=1.0)


@dataclass(frozen=True, eq=False, repr=False)
class FiniteChain(Shortened, Chain):
    r"""A Markov chain with a fixed delay in each state.

    :math:`\lambda` is computed as the second singular value of
    :math:`\operatorname{diag}(\sqrt\pi)\,P\operatorname{diag}(1/\sqrt\pi)`. For a reversible chain,
    this is the second largest eigenvalue in absolute value.

    Args:
        transition: the matrix P: for each state (row), the probabilities of the next state.
        values: the delay in each state; fractions are rounded up, and infinity is :data:`NEVER`.

    >>> chain = FiniteChain([[0.9, 0.1], [0.3, 0.7]], values=[1, 10])
    >>> chain.mean, chain.params().spectral
    (3.25, 0.6)
    """

    _: KW_ONLY
    values: Any
    _atoms: Atoms = field(init=False, repr=False)

    def __post_init__(self) -> None:
        super().__post_init__()
        self._set_states("values", as_delays(self.values, "values"))
        object.__setattr__(self, "_atoms", Atoms.of(self.values, self.stationary))

    @property
    def mean(self) -> float:
        """The mean of the stationary distribution; infinite if a recurrent state is NEVER."""
        return self._atoms.mean

    def tail(self, i: Any) -> Vector:
        """Return the stationary probability of the states with a delay of at least i."""
        return tail_at(i, self._atoms.tail)

    def params(self) -> Parameters:
        """Return λ; for bounded delays also the smallest σ_R for q = 1, and σ if independent."""
        atoms = self._atoms
        return self._params(atoms.mean, atoms.bound, atoms.sigma(1.0), atoms.sigma(3.0))

    def sample(self, horizon: int, rng: np.random.Generator) -> NDArray[np.int64]:
        """Draw the delays from one uniform number per round, which determines the next state."""
        path = self.walk(rng.random(as_rounds(horizon, "horizon")))
        return np.asarray(self.values[path])


@dataclass(frozen=True, eq=False)
class RegimeSwitch(Chain):
    r"""Regimes that follow a Markov chain, each with its own delay distribution.

    The pair of regime and delay is a Markov chain. The next pair depends only on the regime, so
    :math:`\lambda` is that of the regimes, regardless of the distributions. For two regimes that
    persist with probabilities a and b, it is :math:`|a + b - 1|`.

    Args:
        transition: for each regime (row), the probabilities of the next regime.
        laws: the delay distribution of each regime.

    >>> from belated.delays import Constant, Geometric
    >>> laws = [Constant(0), Geometric(mean=100)]
    >>> process = RegimeSwitch([[0.99, 0.01], [0.03, 0.97]], laws=laws)
    >>> process.mean, process.params().spectral
    (25.0, 0.96)
    """

    _: KW_ONLY
    laws: Sequence[Law]

    def __post_init__(self) -> None:
        super().__post_init__()
        laws = tuple(as_law(law, f"laws[{k}]") for k, law in enumerate(self.laws))
        self._set_states("laws", laws)

    def _shares(self) -> Iterator[tuple[float, Law]]:
        """Yield the stationary share and the distribution of each regime that occurs."""
        for share, law in zip(self.stationary, self.laws, strict=True):
            if share > 0.0:
                yield float(share), law

    @property
    def mean(self) -> float:
        """The average of the regimes' means, weighted by their shares."""
        return math.fsum(share * law.mean for share, law in self._shares())

    def tail(self, i: Any) -> Vector:
        """Return the average of the regimes' tails, weighted by their shares."""
        shares = tuple(self._shares())
        return tail_at(i, lambda i: np.minimum(sum(p * law.tail(i) for p, law in shares), 1.0))

    def params(self) -> Parameters:
        """Return the regimes' λ, and σ_R by Hoeffding's inequality if all regimes are bounded."""
        all_bounds = [law.params().bound for _, law in self._shares()]
        bounds = [bound for bound in all_bounds if bound is not None]
        if len(bounds) < len(all_bounds):
            return self._params(self.mean, None)
        # P(D - μ ≥ x) ≤ exp(-2x²/b²) and x ≤ b - μ, so x² may be replaced by x⁴/(b - μ)².
        bound = max(bounds)
        sigma = 0.5 * bound
        return self._params(self.mean, bound, sigma, sigma * (bound - self.mean))

    def sample(self, horizon: int, rng: np.random.Generator) -> NDArray[np.int64]:
        """Draw the delays; each round uses two random numbers, for its regime and for its delay."""
        u = rng.random((as_rounds(horizon, "horizon"), 2))
        regimes = self.walk(u[:, 0])
        delays = np.empty(horizon, dtype=np.int64)
        for regime, law in enumerate(self.laws):
            rounds = regimes == regime
            delays[rounds] = law.quantile(u[rounds, 1])
        return delays


class Conditional(ABC):
    """Base class of delays whose distribution depends on the row or the reward."""

    #: The mean is unknown without the rows and rewards of a run.
    mean: ClassVar[float] = math.nan
    #: The delays have no common distribution.
    independent: ClassVar[bool] = False
    _what: ClassVar[str]

    @abstractmethod
    def given(self, u: float, x: Any, y: float) -> int:
        """Return the delay of a reward y for a row x, given a uniform number u in [0, 1)."""

    def tail(self, i: Any) -> NoReturn:
        """Raise InvalidInput, because the tail is unknown without the rows and rewards."""
        raise InvalidInput(f"the delay depends on {self._what}, so its tail is unknown", self)

    def sample(self, horizon: int, rng: np.random.Generator) -> NoReturn:
        """Raise InvalidInput, because delays cannot be drawn without the rows and rewards."""
        message = f"the delay depends on {self._what}: use simulate, which calls given()"
        raise InvalidInput(message, self)


@dataclass(frozen=True, kw_only=True)
class RewardDependent(Conditional):
    """Different delay distributions for successes and failures.

    The rewards that have arrived are then not a representative sample. An estimate from them is
    biased even if there are many. With ``zero_law=Constant(NEVER)``, only successes are reported.

    Args:
        zero_law: the delay distribution of rewards of 0 or less.
        one_law: the delay distribution of rewards above 0.

    >>> from belated.delays import Constant, Geometric
    >>> process = RewardDependent(zero_law=Constant(0), one_law=Geometric(mean=400))
    >>> process.given(0.5, x=None, y=0.0), process.given(0.5, x=None, y=1.0)
    (0, 277)
    """

    _what: ClassVar[str] = "the reward"

    zero_law: Law
    one_law: Law

    def __post_init__(self) -> None:
        as_law(self.zero_law, "zero_law")
        as_law(self.one_law, "one_law")

    def given(self, u: float, x: Any, y: float) -> int:
        """Return a delay from the distribution that applies to the reward."""
        return int((self.one_law if y > 0.0 else self.zero_law).quantile(u))

    def params(self) -> Parameters:
        """Return the bound if both distributions are bounded."""
        zero_bound, one_bound = self.zero_law.params().bound, self.one_law.params().bound
        return Parameters(
            bound=None if zero_bound is None or one_bound is None else max(zero_bound, one_bound)
        )


@dataclass(frozen=True)
class ContextDependent(Conditional):
    """An exponential time with a rate that depends on the row, rounded up.

    Given the row, the delay is independent of the reward, so an estimate from the rewards that have
    arrived is unbiased. However, a policy first learns about rows whose rewards arrive quickly.

    Args:
        rate: a function that returns the arrival rate per round for the row of the chosen action;
            the rate must be above 0.

    >>> process = ContextDependent(lambda x: 0.01 if x[0] > 0 else 0.1)
    >>> process.given(0.5, np.array([1.0]), 0.0), process.given(0.5, np.array([-1.0]), 0.0)
    (70, 7)
    """

    _what: ClassVar[str] = "the row"

    rate: Callable[[Any], float]

    def __post_init__(self) -> None:
        if not callable(self.rate):
            raise must_be("rate", "a function of the row", self.rate)

    def given(self, u: float, x: Any, y: float) -> int:
        """Return ⌈-log(1 - u)/rate(x)⌉."""
        rate = as_positive(self.rate(x), "rate(x)")
        return int(rounded_up(-np.log1p(-as_uniforms(u)) / rate))

    def params(self) -> Parameters:
        """Return no parameters, because none are known without the rows."""
        return Parameters()
