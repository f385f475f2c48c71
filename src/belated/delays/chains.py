"""Delays driven by a Markov chain of finitely many states."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence, Sized
from dataclasses import KW_ONLY, dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from belated.core.inputs import Vector
from belated.delays.atoms import Atoms
from belated.delays.checks import as_delays, as_law, as_transition
from belated.delays.process import Law, Parameters
from belated.delays.whole import as_rounds, tail_at
from belated.exceptions import InvalidInput

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
        """A stationary path, one uniform number for each of its states.

        Blocks of rounds advance side by side, once from every state that they may begin in, and
        once more from the one they do: as many steps as a block is long. Paths of a block that have
        met go on as one.
        """
        n = len(self.transition)
        # The last row is the law of the first state; the block of round 1 begins in it.
        rows = np.cumsum(np.vstack([self.transition, self.stationary]), axis=1)
        edges = (rows / rows[:, -1:] + np.arange(n + 1)[:, None]).ravel()

        def step(state: NDArray[np.intp], u: Vector) -> NDArray[np.intp]:
            place = np.minimum(state + u, np.nextafter(state + 1.0, 0.0))
            return np.asarray(np.searchsorted(edges, place, side="right") - n * state)

        length = max(math.isqrt(len(u)), 1)
        blocks = -(-len(u) // length)
        table = np.zeros((blocks, length))
        table.ravel()[: len(u)] = u
        block, state = np.divmod(np.arange(blocks * (n + 1)), n + 1)
        begun = np.arange(blocks * (n + 1)).reshape(blocks, n + 1)
        for j in range(length):
            state = step(state, table[block, j])
            if j & (j + 1) == 0:
                met, place = np.unique(n * block + state, return_inverse=True)
                block, state = np.divmod(met, n)
                begun = place[begun]
        first = np.full(blocks, n)
        for k in range(1, blocks):
            first[k] = state[begun[k - 1, first[k - 1]]]
        path = np.empty((blocks, length), dtype=np.intp)
        state = first
        for j in range(length):
            path[:, j] = state = step(state, table[:, j])
        return path.ravel()[: len(u)]


@dataclass(frozen=True, eq=False)
class FiniteChain:
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

    transition: Any
    _: KW_ONLY
    values: Any
    _chain: Chain = field(init=False, repr=False)
    _atoms: Atoms = field(init=False, repr=False)

    def __post_init__(self) -> None:
        chain = Chain(self.transition)
        values = as_delays(self.values, "values")
        _check_number(values, "values", chain)
        object.__setattr__(self, "transition", chain.transition)
        object.__setattr__(self, "values", values)
        object.__setattr__(self, "_chain", chain)
        object.__setattr__(self, "_atoms", Atoms.of(values, chain.stationary))

    @property
    def mean(self) -> float:
        """Of the stationary law; infinite if a state is NEVER."""
        return self._atoms.mean

    @property
    def independent(self) -> bool:
        """Only if all rows of the transition are the same."""
        return self._chain.independent

    def tail(self, i: Any) -> Vector:
        """The stationary probability of the states from i up."""
        return tail_at(i, self._atoms.tail)

    def params(self) -> Parameters:
        """λ of the chain; the least σ_R for q = 1, and the least σ too if it is independent."""
        atoms, iid = self._atoms, self.independent
        if atoms.bound is None:
            return Parameters(spectral=self._chain.spectral)
        return Parameters(
            mu=self.mean,
            M=0.0 if iid else None,
            sigma=atoms.sigma(1.0) if iid else None,
            q=1.0 if iid else None,
            bound=atoms.bound,
            spectral=self._chain.spectral,
            sigma_r=atoms.sigma(3.0),
            q_r=1.0,
        )

    def sample(self, horizon: int, rng: np.random.Generator) -> NDArray[np.int64]:
        """One uniform number a round: the next state."""
        path = self._chain.walk(rng.random(as_rounds(horizon, "horizon")))
        return np.asarray(self.values[path])


@dataclass(frozen=True, eq=False)
class RegimeSwitch:
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

    transition: Any
    _: KW_ONLY
    laws: Sequence[Law]
    _chain: Chain = field(init=False, repr=False)

    def __post_init__(self) -> None:
        chain = Chain(self.transition)
        laws = tuple(as_law(law, f"laws[{k}]") for k, law in enumerate(self.laws))
        _check_number(laws, "laws", chain)
        object.__setattr__(self, "transition", chain.transition)
        object.__setattr__(self, "laws", laws)
        object.__setattr__(self, "_chain", chain)

    def _shares(self) -> Iterator[tuple[float, Law]]:
        """The regimes that occur, each with its stationary share."""
        for share, law in zip(self._chain.stationary, self.laws, strict=True):
            if share > 0.0:
                yield float(share), law

    @property
    def mean(self) -> float:
        """Of the laws, by the share of their regimes."""
        return math.fsum(share * law.mean for share, law in self._shares())

    @property
    def independent(self) -> bool:
        """Only if all rows of the transition are the same."""
        return self._chain.independent

    def tail(self, i: Any) -> Vector:
        """Of the laws, by the share of their regimes."""
        shares = tuple(self._shares())
        return tail_at(i, lambda i: np.minimum(sum(p * law.tail(i) for p, law in shares), 1.0))

    def params(self) -> Parameters:
        """λ of the regimes; σ_R by Hoeffding where all laws are bounded."""
        mean, spectral = self.mean, self._chain.spectral
        mu = mean if math.isfinite(mean) else None
        M = 0.0 if self.independent and mu is not None else None
        bounds = [law.params().bound for _, law in self._shares()]
        known = [bound for bound in bounds if bound is not None]
        if len(known) < len(bounds):
            return Parameters(mu=mu, M=M, spectral=spectral)
        # P(D - μ ≥ x) ≤ exp(-2x²/b²) and x ≤ b - μ, so x² may be replaced by x⁴/(b - μ)².
        bound = max(known)
        sigma = 0.5 * bound
        return Parameters(
            mu=mu,
            M=M,
            sigma=sigma if self.independent else None,
            q=1.0 if self.independent else None,
            bound=bound,
            spectral=spectral,
            sigma_r=sigma * (bound - mean),
            q_r=1.0,
        )

    def sample(self, horizon: int, rng: np.random.Generator) -> NDArray[np.int64]:
        """Two uniform numbers a round: the next regime, and the delay in it."""
        u = rng.random((as_rounds(horizon, "horizon"), 2))
        regimes = self._chain.walk(u[:, 0])
        delays = np.empty(horizon, dtype=np.int64)
        for regime, law in enumerate(self.laws):
            here = regimes == regime
            delays[here] = law.quantile(u[here, 1])
        return delays


def _check_number(items: Sized, name: str, chain: Chain) -> None:
    states = len(chain.transition)
    if len(items) != states:
        raise InvalidInput(f"{len(items)} {name} for {states} states of the chain", items)
