"""What a process of delays offers, and what the paper's assumptions call its parameters."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Protocol

import numpy as np
from numpy.typing import NDArray

from belated.core.inputs import Vector
from belated.delays.whole import as_rounds
from belated.exceptions import InvalidInput


@dataclass(frozen=True, kw_only=True)
class Parameters:
    r"""The numbers in the paper's assumptions on delays; None where they fail or are not known.

    Attributes:
        mu: the mean of a delay, where it is finite.
        M: from where the law of ``mu``, ``sigma`` and ``q`` bounds the tail of every delay
            (Assumption 2); 0 where all delays have that law.
        sigma: with ``q`` the scale of the tail of independent delays (Assumption 2):
            :math:`P(D - \mu \ge x) \le \exp(-x^{1+q}/(2\sigma^2))` for all :math:`x > 0`.
            At 0 it is the limit: every positive scale will do.
        q: 0 for an exponential tail, 1 for a Gaussian one.
        bound: the largest delay that is possible.
        spectral: :math:`\lambda < 1` of the stationary Markov chain behind the delays
            (Assumption 3): the norm of its transition on functions of mean zero, in
            :math:`L_2` of its stationary law. The spectral gap is :math:`1 - \lambda`; independent
            delays have 0. The bounds that use it need the mean and no more of the tail.
        sigma_r: with ``q_r`` the scale of the tail under any dependence (Assumption 4):
            :math:`P(D - \mu \ge x) \le \exp(-x^{2(1+q)}/(2\sigma_R^2))`. The paper states it with
            :math:`\sigma_R^2` and proves its bounds with :math:`2\sigma_R^2`; this is the latter.
        q_r: the :math:`q > 0` of ``sigma_r``.
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
    def iid(
        cls,
        mean: float,
        *,
        sigma: float | None = None,
        q: float | None = None,
        bound: int | None = None,
        sigma_r: float | None = None,
        q_r: float | None = None,
    ) -> Parameters:
        """Those of independent delays of one law: M and the spectral norm are 0."""
        finite = math.isfinite(mean)
        return cls(
            mu=mean if finite else None,
            M=0.0 if finite else None,
            sigma=sigma,
            q=q,
            bound=bound,
            spectral=0.0,
            sigma_r=sigma_r,
            q_r=q_r,
        )


class DelayProcess(Protocol):
    """The delays of a run. The built-in ones are frozen values."""

    @property
    def mean(self) -> float:
        """The mean of a delay; infinite where the sum of the tail is, nan where not known."""

    @property
    def independent(self) -> bool:
        """Whether the delays of all rounds are independent and have the law of `tail`."""

    def tail(self, i: Any) -> Vector:
        """P(D ≥ i) of one delay in the stationary process, for whole numbers i."""

    def params(self) -> Parameters:
        """The parameters of the paper's assumptions, as far as they hold."""

    def sample(self, horizon: int, rng: np.random.Generator) -> NDArray[np.int64]:
        """The delays of the rounds 1 to ``horizon``. A longer run begins with a shorter one."""


class Law(DelayProcess, Protocol):
    """Independent delays, one uniform number for each."""

    def quantile(self, u: Any) -> NDArray[np.int64]:
        """The delay that a uniform u in [0, 1) stands for: increasing, with the law of `tail`."""


class Independent(ABC):
    """What all laws share: a delay for each round, from a uniform number of its own."""

    #: The delays of all rounds are independent.
    independent: ClassVar[bool] = True

    if TYPE_CHECKING:  # not at run time, where it would hide the field of that name in a subclass

        @property
        def mean(self) -> float:
            """The mean of a delay."""

    @abstractmethod
    def tail(self, i: Any) -> Vector:
        """P(D ≥ i)."""

    @abstractmethod
    def params(self) -> Parameters:
        """The parameters of the paper's assumptions."""

    @abstractmethod
    def quantile(self, u: Any) -> NDArray[np.int64]:
        """The delay that a uniform u in [0, 1) stands for."""

    def sample(self, horizon: int, rng: np.random.Generator) -> NDArray[np.int64]:
        """The delays of the rounds 1 to ``horizon``."""
        return self.quantile(rng.random(as_rounds(horizon, "horizon")))


def expected_missing(process: DelayProcess, t: Any) -> Vector:
    r"""The expected number of outstanding rewards at the start of round t.

    It is :math:`m_t = \sum_{i=1}^{t-1} P(D \ge i)`: finite even where the mean of a delay is not,
    and with limit :math:`E D` where that is finite. It takes time and memory in proportion to the
    largest t. For :class:`~belated.delays.Batched` it is an average over all phases of the period.

    >>> from belated.delays import Constant, Lomax, Mixture
    >>> expected_missing(Constant(3), [1, 2, 3, 4, 5])
    array([0., 1., 2., 3., 3.])
    >>> expected_missing(Mixture(never=0.3, base=Constant(0)), [11, 101])
    array([ 3., 30.])
    """
    rounds = np.asarray(t)
    if rounds.dtype.kind not in "iu" or (rounds < 1).any():
        raise InvalidInput(f"t is {t!r}: rounds are whole numbers of at least 1", t)
    if rounds.size == 0:
        return np.zeros(rounds.shape)
    missing = np.zeros(int(rounds.max()))
    np.cumsum(process.tail(np.arange(1, len(missing))), out=missing[1:])
    return np.asarray(missing[rounds - 1])


def min_sigma(tail: Callable[[Vector], Vector], mu: float, q: float, upto: int) -> float:
    r"""The least σ with which Assumption 2 holds for a given q, at the delays up to ``upto``.

    :math:`2\sigma^2` is the maximum of :math:`(i - \mu)^{1+q}/(-\log P(D \ge i))` over the whole
    numbers :math:`i > \mu`: between two of them the tail is constant and the bound falls. For
    Assumption 4 with some :math:`q_R` ask for :math:`q = 1 + 2 q_R`.

    Delays that are not bounded need the supremum over all i, which no finite ``upto`` reaches: if
    the result keeps growing with ``upto``, the assumption fails.

    >>> from belated.delays import Uniform
    >>> min_sigma(Uniform(100).tail, mu=50, q=1, upto=100)
    19.099
    """
    if not q >= 0.0:
        raise InvalidInput(f"q is {q!r}: a number of at least 0 was expected", q)
    if not 0.0 <= mu < math.inf:
        raise InvalidInput(f"mu is {mu!r}: a finite mean of at least 0 was expected", mu)
    atoms = np.arange(math.floor(mu) + 1.0, upto + 1.0)
    return least_sigma(atoms, tail(atoms), mu, q)


def least_sigma(atoms: Vector, tail: Vector, mu: float, q: float) -> float:
    """The same from the tail at these atoms alone."""
    # A tail of 1 above the mean is rounding; a tail of 0 asks for nothing.
    counts = (atoms > mu) & (tail > 0.0) & (tail < 1.0)
    ratio = (atoms[counts] - mu) ** (1.0 + q) / -np.log(tail[counts])
    return math.sqrt(0.5 * float(ratio.max(initial=0.0)))
