"""The delay process protocol, the parameters of the paper's assumptions, and validation."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Protocol

import numpy as np
from numpy.typing import NDArray

from belated.core.inputs import Matrix, Vector, must_be
from belated.exceptions import InvalidInput

#: The delay of a reward that never arrives. It exceeds any horizon, but t + NEVER fits in an int64.
NEVER: int = 2**62

#: Number of terms of a mean that are summed individually; the rest is approximated by an integral.
HEAD = 1 << 16


@dataclass(frozen=True, kw_only=True)
class Parameters:
    r"""Parameters of the paper's assumptions on delays; None if they do not hold or are unknown.

    Attributes:
        mu: the mean delay, if it is finite.
        M: the point from which ``mu``, ``sigma`` and ``q`` bound the tail of every delay
            (Assumption 2); 0 if all delays have the same distribution.
        sigma: with ``q``, the scale of the tail of independent delays (Assumption 2):
            :math:`P(D - \mu \ge x) \le \exp(-x^{1+q}/(2\sigma^2))` for all :math:`x > 0`.
            A value of 0 means that the bound holds for every positive scale.
        q: 0 for an exponential tail, 1 for a Gaussian tail.
        bound: the largest possible delay.
        spectral: :math:`\lambda < 1` of the stationary Markov chain that generates the delays
            (Assumption 3): the norm of its transition operator on functions with mean zero, in
            :math:`L_2` of its stationary distribution. The spectral gap is :math:`1 - \lambda`;
            :math:`\lambda = 0` for independent delays. Bounds that use ``spectral`` require only
            the mean of the tail.
        sigma_r: with ``q_r``, the scale of the tail under any dependence (Assumption 4):
            :math:`P(D - \mu \ge x) \le \exp(-x^{2(1+q)}/(2\sigma_R^2))`. The paper states the
            assumption with :math:`\sigma_R^2`, but its proofs use :math:`2\sigma_R^2`, as here.
        q_r: the :math:`q > 0` that belongs to ``sigma_r``.
    """

    mu: float | None = None
    M: float | None = None
    sigma: float | None = None
    q: float | None = None
    bound: int | None = None
    spectral: float | None = None
    sigma_r: float | None = None
    q_r: float | None = None

    @classmethod
    def iid(cls, mean: float, **known: Any) -> Parameters:
        """Return the parameters of independent, identically distributed delays."""
        finite = math.isfinite(mean)
        mu, M = (mean, 0.0) if finite else (None, None)
        return cls(mu=mu, M=M, spectral=0.0, **known)

    @classmethod
    def bounded(cls, mean: float, bound: int, sigma: float, sigma_r: float) -> Parameters:
        """Return the parameters of bounded i.i.d. delays, whose tails are at most Gaussian."""
        return cls.iid(mean, bound=bound, sigma=sigma, q=1.0, sigma_r=sigma_r, q_r=1.0)


class DelayProcess(Protocol):
    """The interface of delay processes. The built-in processes are frozen dataclasses."""

    @property
    def mean(self) -> float:
        """The mean delay; infinity if the tail's sum diverges, NaN if the mean is unknown."""

    @property
    def independent(self) -> bool:
        """Whether delays are independent and have the distribution given by `tail`."""

    def tail(self, i: Any) -> Vector:
        """Return P(D ≥ i) for a delay D of the stationary process and whole numbers i."""

    def params(self) -> Parameters:
        """Return the parameters of the paper's assumptions that hold."""

    def sample(self, horizon: int, rng: np.random.Generator) -> NDArray[np.int64]:
        """Draw the delays of rounds 1 to ``horizon``; a shorter run is a prefix of a longer one."""


class Law(DelayProcess, Protocol):
    """Independent delays, each computed from a uniform number."""

    def quantile(self, u: Any) -> NDArray[np.int64]:
        """Return the delay for a uniform u in [0, 1); it increases with u."""


class Independent(ABC):
    """Base class of i.i.d. delays; each round's delay is computed from a uniform number."""

    #: The delays of all rounds are independent.
    independent: ClassVar[bool] = True

    if TYPE_CHECKING:  # at run time, this would hide the field of the same name in a subclass

        @property
        def mean(self) -> float:
            """The mean delay."""

    @abstractmethod
    def tail(self, i: Any) -> Vector:
        """Return P(D ≥ i)."""

    @abstractmethod
    def params(self) -> Parameters:
        """Return the parameters of the paper's assumptions."""

    @abstractmethod
    def quantile(self, u: Any) -> NDArray[np.int64]:
        """Return the delay for a uniform u in [0, 1)."""

    def sample(self, horizon: int, rng: np.random.Generator) -> NDArray[np.int64]:
        """Draw the delays of rounds 1 to ``horizon``."""
        return self.quantile(rng.random(as_rounds(horizon, "horizon")))


def expected_missing(process: DelayProcess, t: Any) -> Vector:
    r"""Return the expected number of pending rewards at the start of round t.

    The number is :math:`m_t = \sum_{i=1}^{t-1} P(D \ge i)`. It is finite even if the mean delay is
    infinite, and tends to :math:`E D` if the mean is finite. Time and memory are proportional to
    the largest t. For :class:`~belated.delays.Batched`, the result is the average over all phases
    of the period.

    >>> from belated.delays import Constant, Lomax, Mixture
    >>> expected_missing(Constant(3), [1, 2, 3, 4, 5])
    array([0., 1., 2., 3., 3.])
    >>> expected_missing(Mixture(never=0.3, base=Constant(0)), [11, 101])
    array([ 3., 30.])
    """
    rounds = np.asarray(t)
    if rounds.dtype.kind not in "iu" or (rounds < 1).any():
        raise must_be("t", "an array of positive whole numbers", t)
    if rounds.size == 0:
        return np.zeros(rounds.shape)
    missing = np.zeros(int(rounds.max()))
    np.cumsum(process.tail(np.arange(1, len(missing))), out=missing[1:])
    return np.asarray(missing[rounds - 1])


def least_sigma(atoms: Vector, tail: Vector, mu: float, q: float) -> float:
    """Return the smallest σ in Assumption 2 for this q, given P(D ≥ i) at each possible delay i."""
    # A tail of 1 above the mean is a rounding error, and a tail of 0 does not restrict σ.
    counts = (atoms > mu) & (tail > 0.0) & (tail < 1.0)
    ratio = (atoms[counts] - mu) ** (1.0 + q) / -np.log(tail[counts])
    return math.sqrt(0.5 * float(ratio.max(initial=0.0)))


@dataclass(frozen=True, eq=False)
class Atoms:
    """A discrete distribution: delays in ascending order, with P(D ≥ delay) for each."""

    delays: Vector
    at_least: Vector
    mean: float

    @classmethod
    def of(cls, delays: NDArray[np.int64], mass: Vector) -> Atoms:
        """Create a distribution from delays in any order and their probabilities."""
        delays, mass = delays[mass > 0.0], mass[mass > 0.0]
        values, index = np.unique(delays, return_inverse=True)
        masses = np.bincount(index, weights=mass)
        at_least = np.cumsum(masses[::-1])[::-1]
        mean = math.inf if values[-1] == NEVER else float(values @ masses) / float(at_least[0])
        return cls(values.astype(np.float64), at_least / at_least[0], mean)

    @property
    def bound(self) -> int | None:
        """The largest delay, or None if it may be NEVER."""
        return int(self.delays[-1]) if math.isfinite(self.mean) else None

    def tail(self, i: Vector) -> Vector:
        """Return P(D ≥ i)."""
        return np.append(self.at_least, 0.0)[np.searchsorted(self.delays, i)]

    def sigma(self, q: float) -> float:
        """Return the smallest σ in Assumption 2 for this q."""
        return least_sigma(self.delays, self.at_least, self.mean, q)


# --- whole numbers of rounds ----------------------------------------------------------------------


def as_rounds(value: Any, name: str, least: int = 0) -> int:
    """Return ``value`` as an integer; raise unless it is from ``least`` to :data:`NEVER`."""
    whole = isinstance(value, int | np.integer) and not isinstance(value, bool)
    if not (whole and least <= value <= NEVER):
        raise must_be(name, f"a whole number from {least} to 2**62", value)
    return int(value)


def rounded_down(time: Any) -> NDArray[np.int64]:
    """Round times down to whole rounds, at most NEVER."""
    return np.asarray(np.minimum(np.floor(time), NEVER), dtype=np.int64)


def rounded_up(time: Any) -> NDArray[np.int64]:
    """Round times up to whole rounds, from 1 (a time of 0 has probability 0) to NEVER."""
    return np.asarray(np.clip(np.ceil(time), 1, NEVER), dtype=np.int64)


def as_uniforms(u: Any) -> Vector:
    """Return ``u`` as an array; raise unless all its numbers are in [0, 1)."""
    values = np.asarray(u, dtype=np.float64)
    outside = ~((values >= 0.0) & (values < 1.0))
    if outside.any():
        value = float(values[outside].flat[0])
        raise must_be("u", "at least 0 and less than 1", value)
    return values


def tail_at(i: Any, tail: Callable[[Vector], Vector]) -> Vector:
    """Evaluate P(D ≥ i) by a formula for i ≥ 1; for smaller i, the result is 1."""
    rounds = np.ceil(np.asarray(i, dtype=np.float64))
    with np.errstate(over="ignore", under="ignore", divide="ignore"):
        return np.where(rounds > 0, tail(np.maximum(rounds, 1.0)), 1.0)


def mean_of(tail: Callable[[Vector], Vector], integral: Callable[[float], float]) -> float:
    """Return the mean Σ P(D ≥ i), given the tail and its integral from any point to infinity.

    The first :data:`HEAD` terms are summed individually. The remaining sum is approximated by an
    integral that starts half a round earlier (midpoint rule). The tail is so flat there that the
    relative error of the mean is less than 1e-10.
    """
    head = np.arange(1.0, HEAD + 1)
    return float(tail(head).sum() + integral(HEAD + 0.5))


def as_share(value: Any, name: str) -> float:
    """Return ``value`` as a float; raise unless it is a probability below 1."""
    try:
        share = float(value)
    except (TypeError, ValueError):
        share = float("nan")
    if not 0.0 <= share < 1.0:
        raise must_be(name, "a probability of at least 0 and less than 1", value)
    return share


def as_law(value: Any, name: str) -> Law:
    """Return ``value``; raise unless it is a distribution with a quantile function."""
    if not callable(getattr(value, "quantile", None)):
        needed = "a distribution with a quantile function, such as Geometric(mean=100)"
        raise must_be(name, needed, value)
    law: Law = value
    return law


def as_delays(values: Any, name: str) -> NDArray[np.int64]:
    """Return ``values`` as an array of delays, rounded up, with infinity replaced by NEVER.

    Raise unless it is a non-empty list of non-negative numbers.
    """
    try:
        array = np.asarray(values, dtype=np.float64)
    except (TypeError, ValueError):
        raise must_be(name, "a list of numbers", values) from None
    if array.ndim != 1 or array.size == 0:
        message = f"`{name}` must be a list of at least one delay, got shape {array.shape}"
        raise InvalidInput(message, values)
    bad = ~(array >= 0.0)
    if bad.any():
        at = int(bad.argmax())
        raise must_be(f"{name}[{at}]", "a non-negative delay", float(array[at]))
    delays = np.minimum(np.ceil(array), NEVER).astype(np.int64)
    delays.flags.writeable = False
    return delays


def as_transition(matrix: Any) -> Matrix:
    """Return ``matrix`` as an array; raise unless it is square and its rows are distributions."""
    try:
        table = np.array(matrix, dtype=np.float64)
    except (TypeError, ValueError):
        raise must_be("transition", "a matrix of numbers", matrix) from None
    if table.ndim != 2 or table.shape[0] != table.shape[1] or table.size == 0:
        message = f"`transition` must be a square matrix, got shape {table.shape}"
        raise InvalidInput(message, matrix)
    bad = ~((table >= 0.0) & (table <= 1.0))
    if bad.any():
        row, column = (int(index) for index in np.argwhere(bad)[0])
        entry = float(table[row, column])
        raise must_be(f"transition[{row}, {column}]", "a probability", entry)
    sums = table.sum(axis=1)
    is_off = np.abs(sums - 1.0) > 1e-9
    if is_off.any():
        row = int(is_off.argmax())
        message = f"row {row} of `transition` must sum to 1, got {sums[row]:.12g}"
        raise InvalidInput(message, matrix)
    table /= sums[:, None]
    table.flags.writeable = False
    return table


def set_checked(frozen: Any, check: Callable[[Any, str], Any], *names: str) -> None:
    """Replace fields of a frozen dataclass with the results of ``check(value, name)``."""
    for name in names:
        object.__setattr__(frozen, name, check(getattr(frozen, name), name))
