"""Delays that depend on one another over the rounds, or on the row or the reward."""

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

from belated.core.inputs import Vector, as_positive
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
    """What delays share that have the law of a base, but depend on one another."""

    base: Law

    @property
    @abstractmethod
    def independent(self) -> bool:
        """Whether they do not depend on one another after all."""

    @property
    def mean(self) -> float:
        """That of the base."""
        return self.base.mean

    def tail(self, i: Any) -> Vector:
        """That of the base."""
        return self.base.tail(i)

    def _params(self, spectral: float | None) -> Parameters:
        """What of the base's parameters holds for delays that depend on one another."""
        known = self.base.params()
        if self.independent:
            return known
        return replace(known, M=None, sigma=None, q=None, spectral=spectral)


@dataclass(frozen=True)
class LazyMarkov(_OfOneLaw):
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
        set_checked(self, as_share, "rho")
        as_law(self.base, "base")

    @property
    def independent(self) -> bool:
        """Only if it never stays."""
        return self.rho == 0.0

    def params(self) -> Parameters:
        """λ = ρ, and what the base says of one delay."""
        return self._params(self.rho)

    def sample(self, horizon: int, rng: np.random.Generator) -> NDArray[np.int64]:
        """Two uniform numbers a round: whether to stay, and the new delay."""
        u = rng.random((as_rounds(horizon, "horizon"), 2))
        fresh = np.where(u[:, 0] >= self.rho, np.arange(horizon), 0)
        return self.base.quantile(u[:, 1])[np.maximum.accumulate(fresh)]


@dataclass(frozen=True)
class BlockDependent(_OfOneLaw):
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
    def independent(self) -> bool:
        """Only if a block is one round."""
        return self.length == 1

    def params(self) -> Parameters:
        """What the base says of one delay; Assumption 4 does not mind the blocks."""
        return self._params(None)

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
        set_checked(self, as_rounds, "offset")
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


#: A λ this close to 1 is 1: the chain is periodic, or hardly ever moves.
NO_GAP = 1e-12


@dataclass(frozen=True, eq=False)
class Chain:
    """A stationary Markov chain on the states 0 to n - 1.

    Args:
        transition: row by row, the probabilities of the next state.
    """

    transition: Any

    def __post_init__(self) -> None:
        object.__setattr__(self, "transition", as_transition(self.transition))
        _ = self.stationary  # refused at once if there are several

    @property
    def independent(self) -> bool:
        """Whether the next state does not depend on the last one."""
        return bool((self.transition == self.transition[0]).all())

    @cached_property
    def stationary(self) -> Vector:
        """The stationary law π, by elimination without subtraction (Grassmann, Taksar, Heyman).

        Every entry is accurate to its last digits, however small.
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
        back = (reach <= reach.T).all(axis=1)  # whatever is reached leads back
        states = np.flatnonzero(back)
        if not reach[np.ix_(states, states)].all():
            message = "transition has several stationary laws: its states fall into separate parts"
            raise InvalidInput(message, self.transition)
        return states

    @property
    def spectral(self) -> float | None:
        """The norm ‖diag(√π) P diag(1/√π) - √π √πᵀ‖, or None where it is 1: no spectral gap."""
        used = self.stationary > 0.0
        root = np.sqrt(self.stationary[used])
        p = self.transition[np.ix_(used, used)]
        norm = float(np.linalg.norm(root[:, None] * p / root - np.outer(root, root), 2))
        return norm if norm < 1.0 - NO_GAP else None

    def walk(self, u: Vector) -> NDArray[np.intp]:
        """Return a stationary path, one uniform number for each of its states."""
        # The last row is the law of the first state.
        rows = np.cumsum(np.vstack([self.transition, self.stationary]), axis=1)
        edges, state, path = (rows / rows[:, -1:]).tolist(), -1, []
        for number in u.tolist():
            state = bisect_right(edges[state], number)
            path.append(state)
        return np.array(path, dtype=np.intp)

    def _set_states(self, name: str, by_state: Sized) -> None:
        """Set what a subclass has for each state."""
        if len(by_state) != (states := len(self.transition)):
            message = f"{len(by_state)} {name} for {states} states of the chain"
            raise InvalidInput(message, by_state)
        object.__setattr__(self, name, by_state)

    def _params(
        self, mean: float, bound: int | None, sigma: float = 0.0, sigma_r: float = 0.0
    ) -> Parameters:
        """λ of the chain; σ and σ_R for q = 1 if delays are bounded, σ only if independent."""
        iid, finite = self.independent, math.isfinite(mean)
        known: dict[str, Any] = {
            "mu": mean if finite else None,
            "M": 0.0 if iid and finite else None,
        }
        spectral = self.spectral
        if bound is None:
            return Parameters(**known, spectral=spectral)
        if iid:
            known |= {"sigma": sigma, "q": 1.0}
        return Parameters(**known, bound=bound, spectral=spectral, sigma_r=sigma_r, q_r=1.0)


@dataclass(frozen=True, eq=False, repr=False)
class FiniteChain(Shortened, Chain):
    r"""A delay for each state of a Markov chain.

    Its :math:`\lambda` is computed: the second singular value of
    :math:`\operatorname{diag}(\sqrt\pi)\,P\operatorname{diag}(1/\sqrt\pi)`, which for a reversible
    chain is its second largest eigenvalue in size.

    Args:
        transition: the matrix P; row by row, the probabilities of the next state.
        values: the delay in each state; a fraction is rounded up, and infinity never comes.

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
        """Of the stationary law; infinite if a state is NEVER."""
        return self._atoms.mean

    def tail(self, i: Any) -> Vector:
        """The stationary probability of the states from i up."""
        return tail_at(i, self._atoms.tail)

    def params(self) -> Parameters:
        """λ of the chain; the least σ_R for q = 1, and the least σ too if it is independent."""
        atoms = self._atoms
        return self._params(atoms.mean, atoms.bound, atoms.sigma(1.0), atoms.sigma(3.0))

    def sample(self, horizon: int, rng: np.random.Generator) -> NDArray[np.int64]:
        """One uniform number a round: the next state."""
        path = self.walk(rng.random(as_rounds(horizon, "horizon")))
        return np.asarray(self.values[path])


@dataclass(frozen=True, eq=False)
class RegimeSwitch(Chain):
    r"""A law for each regime, and regimes that follow a Markov chain.

    The pair of regime and delay is a Markov chain. As the next pair depends on the regime alone,
    its :math:`\lambda` is that of the regimes, whatever the laws: with two regimes that stay with
    the probabilities a and b it is :math:`|a + b - 1|`.

    Args:
        transition: of the regimes; row by row, the probabilities of the next one.
        laws: of the delay in each regime.

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
        """The regimes that occur, each with its stationary share."""
        for share, law in zip(self.stationary, self.laws, strict=True):
            if share > 0.0:
                yield float(share), law

    @property
    def mean(self) -> float:
        """Of the laws, by the share of their regimes."""
        return math.fsum(share * law.mean for share, law in self._shares())

    def tail(self, i: Any) -> Vector:
        """Of the laws, by the share of their regimes."""
        shares = tuple(self._shares())
        return tail_at(i, lambda i: np.minimum(sum(p * law.tail(i) for p, law in shares), 1.0))

    def params(self) -> Parameters:
        """λ of the regimes; σ_R by Hoeffding where all laws are bounded."""
        bounds = [law.params().bound for _, law in self._shares()]
        known = [bound for bound in bounds if bound is not None]
        if len(known) < len(bounds):
            return self._params(self.mean, None)
        # P(D - μ ≥ x) ≤ exp(-2x²/b²) and x ≤ b - μ, so x² may be replaced by x⁴/(b - μ)².
        bound = max(known)
        sigma = 0.5 * bound
        return self._params(self.mean, bound, sigma, sigma * (bound - self.mean))

    def sample(self, horizon: int, rng: np.random.Generator) -> NDArray[np.int64]:
        """Two uniform numbers a round: the next regime, and the delay in it."""
        u = rng.random((as_rounds(horizon, "horizon"), 2))
        regimes = self.walk(u[:, 0])
        delays = np.empty(horizon, dtype=np.int64)
        for regime, law in enumerate(self.laws):
            here = regimes == regime
            delays[here] = law.quantile(u[here, 1])
        return delays


class Conditional(ABC):
    """A delay given the row and the reward; alone it has no law."""

    #: Not known without the rows and the rewards of a run.
    mean: ClassVar[float] = math.nan
    #: Not of one law.
    independent: ClassVar[bool] = False
    _what: ClassVar[str]

    @abstractmethod
    def given(self, u: float, x: Any, y: float) -> int:
        """The delay of a reward y for the row x, from a uniform number u in [0, 1)."""

    def tail(self, i: Any) -> NoReturn:
        """Refused."""
        raise InvalidInput(f"the delay depends on {self._what}: it has no tail of its own", self)

    def sample(self, horizon: int, rng: np.random.Generator) -> NoReturn:
        """Refused."""
        message = f"the delay depends on {self._what}: use simulate, which draws it by given()"
        raise InvalidInput(message, self)


@dataclass(frozen=True, kw_only=True)
class RewardDependent(Conditional):
    """Another law for successes than for failures.

    What has arrived is then no fair sample: an estimate from it is biased, however many rewards
    there are. With ``zero_law=Constant(NEVER)`` only successes are ever reported.

    Args:
        zero_law: of the delay of a reward of 0 or less.
        one_law: of the delay of a reward above 0.

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
        """From the law that the reward names."""
        return int((self.one_law if y > 0.0 else self.zero_law).quantile(u))

    def params(self) -> Parameters:
        """The bound, if both laws have one."""
        zero, one = self.zero_law.params().bound, self.one_law.params().bound
        return Parameters(bound=None if zero is None or one is None else max(zero, one))


@dataclass(frozen=True)
class ContextDependent(Conditional):
    """An exponential time with a rate that depends on the row, rounded up.

    Given the row the delay says nothing of the reward, so an estimate from what has arrived is
    sound. But rows with quick rewards are learned first.

    Args:
        rate: of arrival, from the row of the chosen action: above 0, per round.

    >>> process = ContextDependent(lambda x: 0.01 if x[0] > 0 else 0.1)
    >>> process.given(0.5, np.array([1.0]), 0.0), process.given(0.5, np.array([-1.0]), 0.0)
    (70, 7)
    """

    _what: ClassVar[str] = "the row"

    rate: Callable[[Any], float]

    def __post_init__(self) -> None:
        if not callable(self.rate):
            raise InvalidInput(f"rate is {self.rate!r}: a function of the row", self.rate)

    def given(self, u: float, x: Any, y: float) -> int:
        """⌈-log(1 - u)/rate(x)⌉."""
        rate = as_positive(self.rate(x), "rate(x)")
        return int(rounded_up(-np.log1p(-as_uniforms(u)) / rate))

    def params(self) -> Parameters:
        """Nothing is known without the rows."""
        return Parameters()
