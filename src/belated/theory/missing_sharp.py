r"""Bounds on missing rewards that are close to the truth.

They are not in the paper. All are short consequences of

.. math:: G_t = \sum_{i=1}^{t-1} 1\{D_{t-i} \ge i\},

need no parameters but the tail :math:`P(D \ge i)`, or a sum of it, and hold for heavy tails too,
even where the mean delay is infinite. Delays must be independent of the rewards.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from belated.core.inputs import Vector, as_nonnegative, as_probability
from belated.delays.whole import as_rounds
from belated.exceptions import InvalidInput
from belated.model.kernels import special
from belated.theory.levels import log_level, per_round

#: P(D ≥ i) of a delay, for an array of whole numbers i, such as ``Geometric(mean=5).tail``.
Tail = Callable[[Vector], Vector]

#: A mean below this is taken for this: the bound is still right, and nothing overflows.
TINY = 1e-300


def missing_bennett(mean: float, *, delta: float) -> float:
    r"""Rewards missing in one round, where delays are independent: the one to use then.

    The number is then a sum of independent 0s and 1s. If m is its mean,
    P(G_t ≥ m + x) ≤ exp(-m h(x/m)) with h(u) = (1 + u) log(1 + u) - u, Bennett's inequality. It is
    typically 10 % to 50 % above the true quantile, where Proposition 1, whose authors hold its
    stopping times to be essential, is ten times to thousands of times above.

    It assumes delays that are independent of one another, of any laws.

    Args:
        mean: m, the expected number missing, or any number above it: the mean delay, or
            :func:`belated.delays.expected_missing`, which is finite for every law.
        delta: δ.

    >>> missing_bennett(100, delta=0.05)
    125.5
    >>> from belated.delays import Lomax, expected_missing
    >>> missing_bennett(float(expected_missing(Lomax(shape=0.8, scale=50), 3000)), delta=0.05)
    363.0
    """
    m, log = as_nonnegative(mean, "mean"), log_level(delta)
    if m == 0.0:
        return 0.0
    m = max(m, TINY)
    # v = 1 + u solves v (log v - 1) = L/m - 1, which is W(z) e^W(z) = z for v = e^(1 + W).
    return m * math.exp(1.0 + float(special.lambertw((log / m - 1.0) / math.e).real))


def missing_max_bennett(mean: float, *, horizon: int, delta: float) -> float:
    r"""The most rewards missing at once, where delays are independent: the one to use then.

    :func:`missing_bennett` with δ/T for every round.

    Args:
        mean: the expected number missing in the last round, or any number above it.
        horizon: T, the number of rounds.
        delta: δ.

    >>> missing_max_bennett(100, horizon=3000, delta=0.05)
    150.4
    """
    return missing_bennett(mean, delta=per_round(delta, horizon))


def missing_union(tail: Tail, t: int, *, delta: float) -> float:
    r"""Rewards missing in one round, however delays depend on one another: the one to use then.

    If more than k are missing, one of them is more than k rounds old. So
    P(G_t > k) ≤ Σ P(D ≥ i) over the ages i from k + 1 to t - 1, and this is the least k for which
    that is at most δ. The paper's bound for any dependence asks for tails lighter than Gaussian;
    this one asks for nothing.

    It assumes that ``tail`` bounds that of every delay.

    Args:
        tail: P(D ≥ i).
        t: the round; what is missing earlier is bounded too.
        delta: δ.

    >>> from belated.delays import Geometric
    >>> missing_union(Geometric(mean=20).tail, 3000, delta=0.05)
    123.0
    """
    return _first(_sums_beyond(tail, t, "t") <= as_probability(delta, "delta"))


def missing_max_union(tail: Tail, horizon: int, *, delta: float) -> float:
    r"""The most rewards missing at once, however delays depend on one another.

    If more than k are missing in any round, one of the first T - 1 - k delays exceeds k. So this is
    the least k with (T - 1 - k) P(D ≥ k + 1) ≤ δ: less than :func:`missing_union` with δ/T, which
    would count the same late reward in every round in which it is missing.

    Args:
        tail: P(D ≥ i), a bound on that of every delay.
        horizon: T, the number of rounds.
        delta: δ.

    >>> from belated.delays import Geometric
    >>> missing_max_union(Geometric(mean=20).tail, 3000, delta=0.05)
    223.0
    """
    tails = _tails(tail, horizon, "horizon")
    exceeded = np.arange(horizon - 1, -1, -1) * np.append(tails, 0.0)
    return _first(exceeded <= as_probability(delta, "delta"))


def missing_stopping(tail: Tail, t: int, *, delta: float) -> float:
    r"""Rewards missing in one round, where delays are independent, by the paper's stopping times.

    P(G_t ≥ j) ≤ Π min(1, Σ P(D ≥ i)), the product over k from 1 to j and the sums over i from k
    to t - 1: this is the largest number that this does not rule out. It is the proof of
    Proposition 1 with the tail as it is, the number not centred, and what q > 0 gains kept. It is
    never above :func:`missing_union`, and above :func:`missing_bennett` unless delays are short.

    It assumes independent delays, and that ``tail`` bounds that of every delay.

    Args:
        tail: P(D ≥ i).
        t: the round; what is missing earlier is bounded too.
        delta: δ.

    >>> from belated.delays import HalfNormal
    >>> missing_stopping(HalfNormal(scale=50).tail, 3000, delta=0.05)
    108.0
    """
    return _stopping(tail, t, "t", as_probability(delta, "delta"))


def missing_max_stopping(tail: Tail, horizon: int, *, delta: float) -> float:
    r"""The most rewards missing at once, under the assumptions of :func:`missing_stopping`.

    The same with δ/T for every round.

    Args:
        tail: P(D ≥ i).
        horizon: T, the number of rounds.
        delta: δ.

    >>> from belated.delays import HalfNormal
    >>> missing_max_stopping(HalfNormal(scale=50).tail, 3000, delta=0.05)
    117.0
    """
    return _stopping(tail, horizon, "horizon", per_round(delta, horizon))


def _stopping(tail: Tail, t: int, name: str, delta: float) -> float:
    factors = np.minimum(_sums_beyond(tail, t, name), 1.0)
    with np.errstate(divide="ignore"):
        return _first(np.cumsum(np.log(factors)) <= math.log(delta))


def _sums_beyond(tail: Tail, t: int, name: str) -> Vector:
    """Σ P(D ≥ i) over i from k + 1 to t - 1, for k from 0 to t - 1."""
    return np.append(np.cumsum(_tails(tail, t, name)[::-1])[::-1], 0.0)


def _tails(tail: Tail, t: int, name: str) -> Vector:
    """P(D ≥ i) for i from 1 to t - 1."""
    ages = np.arange(1.0, as_rounds(t, name, least=1))
    tails = np.asarray(tail(ages), dtype=np.float64)
    if tails.shape != ages.shape or not ((tails >= 0.0) & (tails <= 1.0)).all():
        message = "tail does not give a probability P(D ≥ i) for each i of an array"
        raise InvalidInput(message, tail)
    return tails


def _first(holds: np.ndarray[tuple[int, ...], np.dtype[np.bool]]) -> float:
    """The least number of which it is true; the last of them always is."""
    return float(np.argmax(holds))
