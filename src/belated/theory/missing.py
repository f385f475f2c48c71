r"""Bounds on missing rewards: the bounds of the paper, and three sharper bounds.

:math:`G_t` is the number of rewards that are missing when the action of round t is chosen. Each
function ``missing_*`` bounds :math:`G_t` in any single round with probability 1 - δ. With
``horizon=T``, it bounds the maximum :math:`G^*_T` up to round T; so do :func:`missing_union` and
:func:`missing_stopping` with ``together=True``. The parameters μ, M, σ, q, λ and σ_R are those of
:class:`belated.delays.Parameters`. Delays must be independent of the rewards, which the paper's
sections on dependent delays also assume.

The paper's bounds are meant for comparison. In practice, use :func:`missing_bennett` for
independent delays and :func:`missing_union` for all other delays. These two bounds and
:func:`missing_stopping` follow from

.. math:: G_t = \sum_{i=1}^{t-1} 1\{D_{t-i} \ge i\},

require only the tail :math:`P(D \ge i)` or a sum over it, and also hold for heavy tails, even if
the mean delay is infinite.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from belated.core.inputs import Vector, as_nonnegative, as_positive, as_probability
from belated.delays.process import as_rounds
from belated.exceptions import InvalidInput
from belated.model.kernels import special

#: A function that returns P(D ≥ i) for an array of integers, such as ``Geometric(mean=5).tail``.
Tail = Callable[[Vector], Vector]

#: Lower limit of means, which avoids overflows; the bound remains valid.
TINY = 1e-300


def log_level(delta: float) -> float:
    """Return log 1/δ."""
    return -math.log(as_probability(delta, "delta"))


def _log_rounds(horizon: int) -> float:
    """Return log T."""
    return math.log(as_rounds(horizon, "horizon", least=1))


def _per_round(delta: float, horizon: int) -> float:
    """Return δ/T, the failure probability per round for at most δ in T rounds."""
    return as_probability(delta, "delta") / as_rounds(horizon, "horizon", least=1)


# --- delays that are independent of one another --------------------------------------------------


def missing_prop1(
    mu: float, M: float, sigma: float, q: float, *, delta: float, horizon: int | None = None
) -> float:
    r"""Bound missing rewards if delays are independent with at most exponential tails.

    The bound is 2(μ + M) + σ_G √(2 log 1/δ) + 2σ_G² log C₃ + 1 with σ_G = σ √(2 + q) and
    C₃ = 2σ² + 1 (Proposition 1.1). It is between five and thousands of times the actual number.
    With a horizon, it is Proposition 1.2, which the paper summarizes as O(σ_G √log T). This hides
    the term 2σ_G² log C₃, which is 929 of the 1367 below.

    The bound assumes that delays are independent of one another and of the rewards, and have the
    tail of Assumption 2. The proof treats μ + M as an integer, and drops factors of 2 that reappear
    in the statement; this function computes the statement. The last step of the proof requires
    σ_G √(2 log 1/δ) ≥ 1; no distribution is known for which the statement fails. The proof counts
    μ + M twice where once is enough, and does not use the gain of q > 0; :func:`missing_stopping`
    is the same argument without these losses.

    Args:
        mu: Mean μ of the distribution that bounds the tails of the delays.
        M: Age from which it bounds the tails; 0 if all delays have that distribution.
        sigma: Scale σ of its tail, exp(-x^(1+q)/(2σ²)) beyond the mean.
        q: 0 for an exponential tail, 1 for a Gaussian tail.
        delta: δ.
        horizon: T, to bound all rounds jointly; None means a single round.

    >>> from belated.delays import Geometric
    >>> law = Geometric(mean=100).params()
    >>> missing_prop1(law.mu, law.M, law.sigma, law.q, delta=0.05)
    1154.2
    >>> missing_prop1(law.mu, law.M, law.sigma, law.q, delta=0.05, horizon=3000)
    1366.7
    """
    if horizon is not None:
        return math.fsum(prop1_terms(mu, M, sigma, q, horizon=horizon, delta=delta))
    spread, growth = _prop1_constants(sigma, q)
    root = spread * math.sqrt(2.0 * log_level(delta))
    return _twice(mu, M) + root + 2.0 * spread * spread * growth + 1.0  # equation (6)


def prop1_terms(
    mu: float, M: float, sigma: float, q: float, *, horizon: int, delta: float
) -> tuple[float, ...]:
    """Return the terms of Proposition 1.2; Theorem 1 contains the root of each term."""
    spread, growth = _prop1_constants(sigma, q)
    rounds = spread * math.sqrt(2.0 * _log_rounds(horizon))
    root = spread * math.sqrt(2.0 * (log_level(delta) + growth * rounds + growth))
    return _twice(mu, M), rounds, root, 2.0 * spread * spread * growth + 1.0  # equation (7)


def missing_iid(mu: float, sigma: float, *, delta: float, horizon: int = 1) -> float:
    r"""Bound missing rewards if delays are independent with one exponential tail.

    The bound is μ + 2σ √(log 1/δ) + 1 + 4σ² log(2σ²), the paper's special case of Proposition 1 for
    q = 0. The paper does not bound the maximum; with a horizon, δ/T is used for every round.

    The bound assumes independent, identically distributed delays with
    P(D - μ ≥ x) ≤ exp(-x/(2σ²)). The proof treats μ as an integer and confuses the stopping times
    of two sums; the statement holds for every distribution that was tried.

    Args:
        mu: Mean delay.
        sigma: Scale σ of the tail.
        delta: δ.
        horizon: T, the number of rounds to bound together.

    >>> from belated.delays import Geometric
    >>> law = Geometric(mean=100).params()
    >>> missing_iid(law.mu, law.sigma, delta=0.05)
    1052.2
    >>> missing_iid(5, 1.656, delta=0.05, horizon=3000)
    35.6
    """
    scale = as_nonnegative(sigma, "sigma")
    variance = scale * scale
    spread = 2.0 * math.sqrt(variance * log_level(_per_round(delta, horizon)))
    # The limit of the growth term for variance → 0 is 0.
    growth = 4.0 * variance * math.log(2.0 * variance) if variance > 0.0 else 0.0
    return as_nonnegative(mu, "mu") + spread + 1.0 + growth  # equation (10)


def missing_hoeffding(
    mu: float, M: float, sigma: float, q: float, *, delta: float, horizon: int = 1
) -> float:
    r"""Bound missing rewards if delays are independent with fast-falling tails (q > 0).

    The bound is 2(μ + M) + σ_G √(2 log 1/δ) with σ_G² = I/4 + σ²(1 + q)/q (Proposition 5.1), plus
    σ_G √(2 log T) over a horizon (5.2). The paper calls it weaker than Proposition 1. For most
    distributions with q > 0, it is far stronger: 264 compared with 128,055 for half-normal delays
    with scale 50.

    The assumptions are those of :func:`missing_prop1`, and q > 0. The text of the proof has σ² in I
    where the definition has 2σ², which is what the proof requires.

    Args:
        mu: Mean μ; see :func:`missing_prop1`.
        M: Age M; see :func:`missing_prop1`.
        sigma: Scale σ of the tail; see :func:`missing_prop1`.
        q: The q of the tail, greater than 0.
        delta: δ.
        horizon: T, the number of rounds to bound together.

    >>> missing_hoeffding(40.40, 0, 50, 1, delta=0.05)
    264.4
    >>> missing_hoeffding(40.40, 0, 50, 1, delta=0.05, horizon=3000)
    564.5
    """
    root = math.sqrt(2.0 * log_level(delta)) + math.sqrt(2.0 * _log_rounds(horizon))
    return _twice(mu, M) + _hoeffding_spread(sigma, q) * root  # equations (30) and (31)


def _twice(mu: float, M: float) -> float:
    """Return 2(μ + M): the maximum for rounds up to the mean, plus the mean for other rounds."""
    return 2.0 * (as_nonnegative(mu, "mu") + as_nonnegative(M, "M"))


def _prop1_constants(sigma: float, q: float) -> tuple[float, float]:
    """Return σ_G and log C₃ of Proposition 1."""
    scale = as_nonnegative(sigma, "sigma")
    spread = scale * math.sqrt(2.0 + as_nonnegative(q, "q"))
    return spread, math.log1p(2.0 * scale * scale)


def _hoeffding_spread(sigma: float, q: float) -> float:
    """Return σ_G of Proposition 5; infinity if it overflows, as it does for q close to 0."""
    scale, power = as_nonnegative(sigma, "sigma"), as_positive(q, "q")
    variance = scale * scale
    with np.errstate(over="ignore"):
        half = np.power(2.0 * math.log(2.0) * variance, 1.0 / (1.0 + power))
        steep = np.power(2.0 * variance / (1.0 + power), 1.0 / power) + 1.0
        first = max(float(half), float(steep))  # I: from here, p_i ≤ 1/2 and decreases fast
    return math.sqrt(0.25 * first + variance * (1.0 + power) / power)


# --- delays that depend on one another -----------------------------------------------------------


def missing_markov(
    mu: float, spectral: float, *, delta: float, horizon: int = 1, conservative: bool = False
) -> float:
    r"""Bound missing rewards if delays follow a Markov chain.

    The bound is μ + A₂ L + √(2A₁ μ L) with A₁ = (1 + λ)/(1 - λ), and A₂ = 5/(1 - λ), or 1/3 if
    λ = 0. L is log 1/δ (Proposition 3.1), or log T/δ over a horizon (3.2).

    The bound assumes a stationary chain with a finite mean that is independent of the rewards. The
    tail of Assumption 3 is not used, and delays of 0 may occur. The paper calls λ the spectral gap,
    which is actually 1 - λ. The bound follows from the moments behind the inequality (24) that the
    proof cites, not from the inequality alone.

    Args:
        mu: Mean delay.
        spectral: λ, at least 0 and below 1; 0 for independent delays.
        delta: δ.
        horizon: T, the number of rounds to bound together.
        conservative: Whether to use the bound that follows from (24) alone, with the root
            √(A₂²L² + 2A₁ μ L).

    >>> missing_markov(20, 0.5, delta=0.05)
    68.917
    >>> missing_markov(20, 0.5, delta=0.05, horizon=3000)
    166.4
    """
    first, second, root = markov_terms(mu, spectral, horizon=horizon, delta=delta)
    return first + second + (math.hypot(second, root) if conservative else root)


def markov_terms(
    mu: float, spectral: float, *, horizon: int, delta: float
) -> tuple[float, float, float]:
    """Return the terms of Proposition 3.2; Theorem 3 contains the root of each term."""
    mean, log = as_nonnegative(mu, "mu"), log_level(_per_round(delta, horizon))
    if not 0.0 <= spectral < 1.0:
        message = (
            f"`spectral` must be λ, at least 0 and less than 1, got {spectral!r}: if the chain has"
            " no spectral gap, use missing_union"
        )
        raise InvalidInput(message, spectral)
    a1 = (1.0 + spectral) / (1.0 - spectral)
    a2 = 5.0 / (1.0 - spectral) if spectral > 0.0 else 1.0 / 3.0
    return mean, a2 * log, math.sqrt(2.0 * a1 * mean * log)  # equations (21) and (22)


def missing_random(
    mu: float, sigma_r: float, q_r: float, *, delta: float, horizon: int = 1
) -> float:
    r"""Bound missing rewards if delays depend on one another in any way.

    The bound is ⌈μ⌉ + σ_G √(2 log C₄/δ) with σ_G = σ_R ζ(1 + q) and C₄ = 2σ_R² + 1
    (Proposition 4.1), plus σ_G √(2 log T) over a horizon (4.2).

    The bound assumes that all delays have the same distribution, independent of the rewards, with a
    tail lighter than Gaussian (Assumption 4). The assumption has σ_R² where the proof uses 2σ_R²;
    the latter, which is weaker, is used here. The end of the proof has √(σ_D/c) instead of σ_R/c,
    with 1/c = ζ(1 + q). The proposition has μ instead of ⌈μ⌉, which is correct only for integers:
    if 1 % of the delays are 0 and the rest are 1, the bound would be less than 1, but one reward is
    missing.

    Args:
        mu: Mean delay.
        sigma_r: Scale σ_R of the tail, exp(-x^(2(1+q))/(2σ_R²)) beyond the mean.
        q_r: The q of the tail, greater than 0.
        delta: δ.
        horizon: T, the number of rounds to bound together.

    >>> from belated.delays import Uniform
    >>> law = Uniform(10).params()
    >>> missing_random(law.mu, law.sigma_r, law.q_r, delta=0.05)
    190.1
    >>> missing_random(law.mu, law.sigma_r, law.q_r, delta=0.05, horizon=3000)
    354.6
    """
    return math.fsum(random_terms(mu, sigma_r, q_r, horizon=horizon, delta=delta))


def random_terms(
    mu: float, sigma_r: float, q_r: float, *, horizon: int, delta: float
) -> tuple[float, float, float]:
    """Return the terms of Proposition 4.2; Theorem 5 contains the root of each term."""
    scale = as_nonnegative(sigma_r, "sigma_r")
    # 1/c of the paper is the sum of all i^-(1+q).
    spread = scale * float(special.zeta(1.0 + as_positive(q_r, "q_r")))
    rounds = spread * math.sqrt(2.0 * _log_rounds(horizon))
    root = spread * math.sqrt(2.0 * (math.log1p(2.0 * scale * scale) + log_level(delta)))
    return math.ceil(as_nonnegative(mu, "mu")), rounds, root  # equations (26) and (27) for whole μ


def missing_bounded(bound: int) -> float:
    r"""Return the largest delay, which bounds missing rewards (Proposition 2.1).

    The bound never fails, regardless of dependence, so it holds in all rounds jointly. A constant
    delay attains it.

    Args:
        bound: Largest delay D_max.

    >>> missing_bounded(7)
    7.0
    """
    return float(as_rounds(bound, "bound"))


# --- sharper bounds, which are not in the paper --------------------------------------------------


def missing_bennett(mean: float, *, delta: float, horizon: int = 1) -> float:
    r"""Bound missing rewards if delays are independent; recommended in that case.

    The number of missing rewards is a sum of independent Bernoulli variables. If m is its mean,
    P(G_t ≥ m + x) ≤ exp(-m h(x/m)) with h(u) = (1 + u) log(1 + u) - u, by Bennett's inequality. The
    bound is typically 10 % to 50 % above the true quantile. Proposition 1, whose stopping times its
    authors consider essential, is ten to thousands of times the quantile. Over a horizon, δ/T is
    used for every round.

    The bound assumes that delays are independent of one another; they may have any distributions.

    Args:
        mean: m, the expected number of missing rewards in the last round, or an upper bound, such
            as the mean delay, or :func:`belated.delays.expected_missing`, which is finite for every
            distribution.
        delta: δ.
        horizon: T, the number of rounds to bound together.

    >>> missing_bennett(100, delta=0.05), missing_bennett(100, delta=0.05, horizon=3000)
    (125.5, 150.4)
    >>> from belated.delays import Lomax, expected_missing
    >>> missing_bennett(float(expected_missing(Lomax(shape=0.8, scale=50), 3000)), delta=0.05)
    363.0
    """
    m, log = as_nonnegative(mean, "mean"), log_level(_per_round(delta, horizon))
    if m == 0.0:
        return 0.0
    m = max(m, TINY)
    # v = 1 + u solves v (log v - 1) = L/m - 1, which is W(z) e^W(z) = z for v = e^(1 + W).
    return m * math.exp(1.0 + float(special.lambertw((log / m - 1.0) / math.e).real))


def missing_union(tail: Tail, t: int, *, delta: float, together: bool = False) -> float:
    r"""Bound missing rewards for any dependence of delays; recommended if they are not independent.

    If more than k rewards are missing, one of them is more than k rounds old. Hence
    P(G_t > k) ≤ Σ P(D ≥ i) over the ages i from k + 1 to t - 1, and the bound is the smallest k for
    which this is at most δ. The paper's bound for any dependence requires tails lighter than
    Gaussian; this bound makes no assumption on the tail.

    If more than k rewards are missing in any round up to T, one of the first T - 1 - k delays
    exceeds k. With ``together``, the bound is therefore the smallest k with
    (T - 1 - k) P(D ≥ k + 1) ≤ δ. This is less than the bound for one round with δ/T, which would
    count a late reward in every round in which it is missing.

    The bound assumes that ``tail`` bounds the tail of every delay.

    Args:
        tail: P(D ≥ i).
        t: Round; the bound also holds for earlier rounds.
        delta: δ.
        together: Whether to bound all rounds up to ``t`` together.

    >>> from belated.delays import Geometric
    >>> missing_union(Geometric(mean=20).tail, 3000, delta=0.05)
    123.0
    >>> missing_union(Geometric(mean=20).tail, 3000, delta=0.05, together=True)
    223.0
    """
    tails = _tails(tail, t)
    exceeded = _sums_beyond(tails)
    if together:
        exceeded = np.arange(t - 1, -1, -1) * np.append(tails, 0.0)
    return _first(exceeded <= as_probability(delta, "delta"))


def missing_stopping(tail: Tail, t: int, *, delta: float, together: bool = False) -> float:
    r"""Bound missing rewards if delays are independent, by the paper's stopping times.

    P(G_t ≥ j) ≤ Π min(1, Σ P(D ≥ i)), with the product over k from 1 to j and the sums over i from
    k to t - 1; the bound is the largest number that this does not rule out. The argument is the
    proof of Proposition 1 with the exact tail, without centering, and with the gain of q > 0. The
    bound never exceeds :func:`missing_union`, and exceeds :func:`missing_bennett` unless delays are
    short. With ``together``, δ/t is used for each round.

    The bound assumes independent delays, and that ``tail`` bounds the tail of every delay.

    Args:
        tail: P(D ≥ i).
        t: Round; the bound also holds for earlier rounds.
        delta: δ.
        together: Whether to bound all rounds up to ``t`` together.

    >>> from belated.delays import HalfNormal
    >>> missing_stopping(HalfNormal(scale=50).tail, 3000, delta=0.05)
    108.0
    >>> missing_stopping(HalfNormal(scale=50).tail, 3000, delta=0.05, together=True)
    117.0
    """
    factors = np.minimum(_sums_beyond(_tails(tail, t)), 1.0)
    with np.errstate(divide="ignore"):
        least = -log_level(_per_round(delta, t if together else 1))
        return _first(np.cumsum(np.log(factors)) <= least)


def _sums_beyond(tails: Vector) -> Vector:
    """Return Σ P(D ≥ i) over i from k + 1 to t - 1, for each k from 0 to t - 1."""
    return np.append(np.cumsum(tails[::-1])[::-1], 0.0)


def _tails(tail: Tail, t: int) -> Vector:
    """Return P(D ≥ i) for i from 1 to t - 1."""
    ages = np.arange(1.0, as_rounds(t, "t", least=1))
    tails = np.asarray(tail(ages), dtype=np.float64)
    if tails.shape != ages.shape or not ((tails >= 0.0) & (tails <= 1.0)).all():
        message = "`tail` must return a probability P(D ≥ i) for each i in an array"
        raise InvalidInput(message, tail)
    return tails


def _first(holds: np.ndarray[tuple[int, ...], np.dtype[np.bool]]) -> float:
    """Return the smallest index at which a condition holds; it must hold at the last index."""
    return float(np.argmax(holds))
