r"""Bounds on missing rewards: the paper's, and three that are close to the truth.

:math:`G_t` is the number of rewards that are missing when the choice of round t is made. Each
``missing_*`` bounds :math:`G_t` in any one round with probability 1 - δ. With ``horizon=T`` it
bounds :math:`G^*_T`, the largest of them up to round T; so do :func:`missing_union` and
:func:`missing_stopping` with ``together=True``. μ, M, σ, q, λ and σ_R are what
:class:`belated.delays.Parameters` holds. Delays must be independent of the rewards, which the
paper's sections on dependence do not repeat.

The paper's bounds are there to compare with. Where a number matters, use :func:`missing_bennett`
for independent delays and :func:`missing_union` for all others. These two and
:func:`missing_stopping` are short consequences of

.. math:: G_t = \sum_{i=1}^{t-1} 1\{D_{t-i} \ge i\},

need no parameters but the tail :math:`P(D \ge i)`, or a sum of it, and hold for heavy tails too,
even if the mean delay is infinite.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from belated.core.inputs import Vector, as_nonnegative, as_positive, as_probability
from belated.delays.process import as_rounds
from belated.exceptions import InvalidInput
from belated.model.kernels import special

#: P(D ≥ i) of a delay, for an array of whole numbers i, such as ``Geometric(mean=5).tail``.
Tail = Callable[[Vector], Vector]

#: A mean below this is taken for this: the bound is still right, and nothing overflows.
TINY = 1e-300


def log_level(delta: float) -> float:
    """log 1/δ."""
    return -math.log(as_probability(delta, "delta"))


def _log_rounds(horizon: int) -> float:
    """log T."""
    return math.log(as_rounds(horizon, "horizon", least=1))


def _per_round(delta: float, horizon: int) -> float:
    """δ/T: if each of T rounds fails no more often, all together fail with δ at most."""
    return as_probability(delta, "delta") / as_rounds(horizon, "horizon", least=1)


# --- delays that are independent of one another --------------------------------------------------


def missing_prop1(
    mu: float, M: float, sigma: float, q: float, *, delta: float, horizon: int | None = None
) -> float:
    r"""Bound missing rewards if delays are independent with at most exponential tails.

    2(μ + M) + σ_G √(2 log 1/δ) + 2σ_G² log C₃ + 1 with σ_G = σ √(2 + q) and C₃ = 2σ² + 1
    (Proposition 1.1). It is five times to thousands of times the truth. With a horizon it is
    Proposition 1.2, which the paper sums up as O(σ_G √log T). That hides the term 2σ_G² log C₃: it
    is 929 of the 1367 below.

    It assumes that delays are independent of one another and of the rewards, and have the tail of
    Assumption 2. The proof takes μ + M for a whole number, drops factors of 2 on its way and
    finds them again in the statement, which is what is computed. Its last step needs σ_G √(2
    log 1/δ) ≥ 1; no law is known for which the statement fails. It counts μ + M twice where
    once would do, and gives away what q > 0 gains: :func:`missing_stopping` is the same argument
    without these losses.

    Args:
        mu: the mean μ of the law that bounds the delays' tails.
        M: from where it bounds them; 0 where all delays have that law.
        sigma: the scale σ of its tail, exp(-x^(1+q)/(2σ²)) beyond the mean.
        q: 0 for an exponential tail, 1 for a Gaussian one.
        delta: δ.
        horizon: T, to bound all rounds together; None: one round.

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
    return _twice(mu, M) + root + 2.0 * spread * spread * growth + 1.0  # (6)


def prop1_terms(
    mu: float, M: float, sigma: float, q: float, *, horizon: int, delta: float
) -> tuple[float, ...]:
    """The terms of Proposition 1.2; Theorem 1 has the root of each."""
    spread, growth = _prop1_constants(sigma, q)
    rounds = spread * math.sqrt(2.0 * _log_rounds(horizon))
    root = spread * math.sqrt(2.0 * (log_level(delta) + growth * rounds + growth))
    return _twice(mu, M), rounds, root, 2.0 * spread * spread * growth + 1.0  # (7)


def missing_iid(mu: float, sigma: float, *, delta: float, horizon: int = 1) -> float:
    r"""Bound missing rewards if delays are independent with one exponential tail.

    μ + 2σ √(log 1/δ) + 1 + 4σ² log(2σ²), the paper's special case of Proposition 1 for q = 0. The
    paper states no maximum for it: over a horizon, every round has δ/T.

    It assumes independent delays of one law with P(D - μ ≥ x) ≤ exp(-x/(2σ²)). The proof treats μ
    as a whole number and writes the stopping times of two different sums for each other; the
    statement stands for every law it was tried on.

    Args:
        mu: the mean delay.
        sigma: the scale σ of the tail.
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
    growth = 4.0 * variance * math.log(2.0 * variance) if variance > 0.0 else 0.0  # its limit
    return as_nonnegative(mu, "mu") + spread + 1.0 + growth  # (10)


def missing_hoeffding(
    mu: float, M: float, sigma: float, q: float, *, delta: float, horizon: int = 1
) -> float:
    r"""Bound missing rewards if delays are independent with fast-falling tails (q > 0).

    2(μ + M) + σ_G √(2 log 1/δ) with σ_G² = I/4 + σ²(1 + q)/q (Proposition 5.1), and σ_G √(2 log T)
    more over a horizon (5.2). The paper calls it weaker than Proposition 1. For most laws with
    q > 0 it is far stronger: 264 against 128,055 for the half-normal delays of scale 50.

    It assumes what :func:`missing_prop1` does, and q > 0. The text of the proof has σ² in I where
    the definition has 2σ²; the definition is what the proof needs.

    Args:
        mu: as in :func:`missing_prop1`.
        M: as there.
        sigma: as there.
        q: above 0.
        delta: δ.
        horizon: T, the number of rounds to bound together.

    >>> missing_hoeffding(40.40, 0, 50, 1, delta=0.05)
    264.4
    >>> missing_hoeffding(40.40, 0, 50, 1, delta=0.05, horizon=3000)
    564.5
    """
    root = math.sqrt(2.0 * log_level(delta)) + math.sqrt(2.0 * _log_rounds(horizon))
    return _twice(mu, M) + _hoeffding_spread(sigma, q) * root  # (30), (31)


def _twice(mu: float, M: float) -> float:
    """2(μ + M): what the rounds up to the mean can add, and the mean of all others."""
    return 2.0 * (as_nonnegative(mu, "mu") + as_nonnegative(M, "M"))


def _prop1_constants(sigma: float, q: float) -> tuple[float, float]:
    """σ_G and log C₃ of Proposition 1."""
    scale = as_nonnegative(sigma, "sigma")
    spread = scale * math.sqrt(2.0 + as_nonnegative(q, "q"))
    return spread, math.log1p(2.0 * scale * scale)


def _hoeffding_spread(sigma: float, q: float) -> float:
    """σ_G of Proposition 5; infinite where it is beyond the floats, as for q close to 0."""
    scale, power = as_nonnegative(sigma, "sigma"), as_positive(q, "q")
    variance = scale * scale
    with np.errstate(over="ignore"):
        half = np.power(2.0 * math.log(2.0) * variance, 1.0 / (1.0 + power))
        steep = np.power(2.0 * variance / (1.0 + power), 1.0 / power) + 1.0
        first = max(float(half), float(steep))  # I: from here p_i ≤ 1/2 and falls fast
    return math.sqrt(0.25 * first + variance * (1.0 + power) / power)


# --- delays that depend on one another -----------------------------------------------------------


def missing_markov(
    mu: float, spectral: float, *, delta: float, horizon: int = 1, conservative: bool = False
) -> float:
    r"""Bound missing rewards if delays follow a Markov chain.

    μ + A₂ L + √(2A₁ μ L) with A₁ = (1 + λ)/(1 - λ), and A₂ = 5/(1 - λ), or 1/3 where λ = 0. L is
    log 1/δ (Proposition 3.1), and log T/δ over a horizon (3.2).

    It assumes a stationary chain that is independent of the rewards, with a finite mean: the tail
    that Assumption 3 asks for is not used, and delays of 0 may occur. What the paper calls the
    spectral gap is λ itself; the gap is 1 - λ. The form follows from the moments behind the
    inequality (24) that the proof cites, not from the inequality alone.

    Args:
        mu: the mean delay.
        spectral: λ, from 0 to below 1; 0 for independent delays.
        delta: δ.
        horizon: T, the number of rounds to bound together.
        conservative: take what follows from (24) alone: √(A₂²L² + 2A₁ μ L) for the root.

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
    """The terms of Proposition 3.2; Theorem 3 has the root of each."""
    mean, log = as_nonnegative(mu, "mu"), log_level(_per_round(delta, horizon))
    if not 0.0 <= spectral < 1.0:
        message = (
            f"spectral is {spectral!r}: λ from 0 to below 1 was expected; without a spectral gap"
            " take missing_union"
        )
        raise InvalidInput(message, spectral)
    a1 = (1.0 + spectral) / (1.0 - spectral)
    a2 = 5.0 / (1.0 - spectral) if spectral > 0.0 else 1.0 / 3.0
    return mean, a2 * log, math.sqrt(2.0 * a1 * mean * log)  # (21), (22)


def missing_random(
    mu: float, sigma_r: float, q_r: float, *, delta: float, horizon: int = 1
) -> float:
    r"""Bound missing rewards if delays depend on one another in any way.

    ⌈μ⌉ + σ_G √(2 log C₄/δ) with σ_G = σ_R ζ(1 + q) and C₄ = 2σ_R² + 1 (Proposition 4.1), and
    σ_G √(2 log T) more over a horizon (4.2).

    It assumes that every delay has the same law, independent of the rewards, with a tail lighter
    than Gaussian (Assumption 4). The assumption is printed with σ_R² where the proof uses
    2σ_R²; the latter, which asks for less, is meant here. The end of the proof has √(σ_D/c)
    where σ_R/c is right, with 1/c = ζ(1 + q). The proposition has μ for ⌈μ⌉, which is right for
    whole numbers only: if all delays are 1 but for one in a hundred that is 0, it says that
    less than 1 is missing, and 1 is.

    Args:
        mu: the mean delay.
        sigma_r: the scale σ_R of the tail, exp(-x^(2(1+q))/(2σ_R²)) beyond the mean.
        q_r: its q, above 0.
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
    """The terms of Proposition 4.2; Theorem 5 has the root of each."""
    scale = as_nonnegative(sigma_r, "sigma_r")
    # 1/c of the paper is the sum of all i^-(1+q).
    spread = scale * float(special.zeta(1.0 + as_positive(q_r, "q_r")))
    rounds = spread * math.sqrt(2.0 * _log_rounds(horizon))
    root = spread * math.sqrt(2.0 * (math.log1p(2.0 * scale * scale) + log_level(delta)))
    return math.ceil(as_nonnegative(mu, "mu")), rounds, root  # (26), (27) for whole μ


def missing_bounded(bound: int) -> float:
    r"""Bound missing rewards if no delay exceeds a bound: by the bound itself.

    Proposition 2.1. It never fails, whatever delays depend on, so it holds in all rounds together.
    A constant delay reaches it. Only rounds that lie no further back can be outstanding.

    Args:
        bound: the largest delay D_max.

    >>> missing_bounded(7)
    7.0
    """
    return float(as_rounds(bound, "bound"))


# --- close to the truth, and not in the paper ----------------------------------------------------


def missing_bennett(mean: float, *, delta: float, horizon: int = 1) -> float:
    r"""Bound missing rewards if delays are independent: the one to use then.

    The number is then a sum of independent 0s and 1s. If m is its mean,
    P(G_t ≥ m + x) ≤ exp(-m h(x/m)) with h(u) = (1 + u) log(1 + u) - u, Bennett's inequality. It is
    typically 10 % to 50 % above the true quantile, where Proposition 1, whose authors hold its
    stopping times to be essential, is ten times to thousands of times above. Over a horizon, every
    round has δ/T.

    It assumes delays that are independent of one another, of any laws.

    Args:
        mean: m, the expected number missing in the last round, or any number above it: the mean
            delay, or :func:`belated.delays.expected_missing`, which is finite for every law.
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
    r"""Bound missing rewards however delays depend on one another: the one to use then.

    If more than k are missing, one of them is more than k rounds old. So
    P(G_t > k) ≤ Σ P(D ≥ i) over the ages i from k + 1 to t - 1, and this is the least k for which
    that is at most δ. The paper's bound for any dependence asks for tails lighter than Gaussian;
    this one asks for nothing.

    If more than k are missing in any round up to T, one of the first T - 1 - k delays exceeds k. So
    with ``together`` this is the least k with (T - 1 - k) P(D ≥ k + 1) ≤ δ, which is less than the
    bound of one round with δ/T: that would count the same late reward in every round in which it is
    missing.

    It assumes that ``tail`` bounds that of every delay.

    Args:
        tail: P(D ≥ i).
        t: the round; what is missing earlier is bounded too.
        delta: δ.
        together: bound all rounds up to ``t`` together.

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

    P(G_t ≥ j) ≤ Π min(1, Σ P(D ≥ i)), the product over k from 1 to j and the sums over i from k
    to t - 1: this is the largest number that this does not rule out. It is the proof of
    Proposition 1 with the tail as it is, the number not centred, and what q > 0 gains kept. It is
    never above :func:`missing_union`, and above :func:`missing_bennett` unless delays are short.
    Together with the rounds before, each has δ/t.

    It assumes independent delays, and that ``tail`` bounds that of every delay.

    Args:
        tail: P(D ≥ i).
        t: the round; what is missing earlier is bounded too.
        delta: δ.
        together: bound all rounds up to ``t`` together.

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
    """Σ P(D ≥ i) over i from k + 1 to t - 1, for k from 0 to t - 1."""
    return np.append(np.cumsum(tails[::-1])[::-1], 0.0)


def _tails(tail: Tail, t: int) -> Vector:
    """P(D ≥ i) for i from 1 to t - 1."""
    ages = np.arange(1.0, as_rounds(t, "t", least=1))
    tails = np.asarray(tail(ages), dtype=np.float64)
    if tails.shape != ages.shape or not ((tails >= 0.0) & (tails <= 1.0)).all():
        message = "tail does not give a probability P(D ≥ i) for each i of an array"
        raise InvalidInput(message, tail)
    return tails


def _first(holds: np.ndarray[tuple[int, ...], np.dtype[np.bool]]) -> float:
    """The least number of which it is true; the last of them always is."""
    return float(np.argmax(holds))
