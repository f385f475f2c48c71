r"""The paper's bounds on missing rewards, for delays that are independent of one another.

:math:`G_t` is the number of rewards that are missing when the choice of round t is made, and
:math:`G^*_T` the largest of them up to round T. Each ``missing_*`` bounds :math:`G_t` in any one
round with probability 1 - δ, and its ``missing_max_*`` bounds :math:`G^*_T`, that is all rounds up
to the horizon together. μ, M, σ, q, λ and σ_R are what :class:`belated.delays.Parameters` holds.

They are kept to compare with. Where a number matters take
:func:`~belated.theory.missing_bennett` or :func:`~belated.theory.missing_union`.
"""

from __future__ import annotations

import math

import numpy as np

from belated.core.inputs import as_nonnegative, as_positive, as_probability
from belated.theory.levels import log_level, log_rounds, per_round


def missing_prop1(mu: float, M: float, sigma: float, q: float, *, delta: float) -> float:
    r"""Rewards missing in one round, where delays are independent with at most exponential tails.

    2(μ + M) + σ_G √(2 log 1/δ) + 2σ_G² log C₃ + 1 with σ_G = σ √(2 + q) and C₃ = 2σ² + 1
    (Proposition 1.1). It is five times to thousands of times the truth.

    It assumes that delays are independent of one another and of the rewards, and have the tail of
    Assumption 2. The proof takes μ + M for a whole number, drops factors of 2 on its way and
    finds them again in the statement, which is what is computed. Its last step needs σ_G √(2
    log 1/δ) ≥ 1; no law is known for which the statement fails. It counts μ + M twice where
    once would do, and gives away what q > 0 gains: :func:`~belated.theory.missing_stopping` is
    the same argument without these losses.

    Args:
        mu: the mean μ of the law that bounds the delays' tails.
        M: from where it bounds them; 0 where all delays have that law.
        sigma: the scale σ of its tail, exp(-x^(1+q)/(2σ²)) beyond the mean.
        q: 0 for an exponential tail, 1 for a Gaussian one.
        delta: δ.

    >>> from belated.delays import Geometric
    >>> law = Geometric(mean=100).params()
    >>> missing_prop1(law.mu, law.M, law.sigma, law.q, delta=0.05)
    1154.2
    """
    spread, growth = _prop1_constants(sigma, q)
    root = spread * math.sqrt(2.0 * log_level(delta))
    return _twice(mu, M) + root + 2.0 * spread * spread * growth + 1.0  # (6)


def missing_max_prop1(
    mu: float, M: float, sigma: float, q: float, *, horizon: int, delta: float
) -> float:
    r"""The most rewards missing at once, under the assumptions of :func:`missing_prop1`.

    Proposition 1.2. The paper sums it up as O(σ_G √log T), which hides the term 2σ_G² log C₃: it is
    929 of the 1367 below.

    Args:
        mu: as in :func:`missing_prop1`.
        M: as there.
        sigma: as there.
        q: as there.
        horizon: T, the number of rounds.
        delta: δ.

    >>> from belated.delays import Geometric
    >>> law = Geometric(mean=100).params()
    >>> missing_max_prop1(law.mu, law.M, law.sigma, law.q, horizon=3000, delta=0.05)
    1366.7
    """
    return math.fsum(prop1_terms(mu, M, sigma, q, horizon=horizon, delta=delta))


def prop1_terms(
    mu: float, M: float, sigma: float, q: float, *, horizon: int, delta: float
) -> tuple[float, ...]:
    """The terms of Proposition 1.2; Theorem 1 has the root of each."""
    spread, growth = _prop1_constants(sigma, q)
    rounds = spread * math.sqrt(2.0 * log_rounds(horizon))
    root = spread * math.sqrt(2.0 * (log_level(delta) + growth * rounds + growth))
    return _twice(mu, M), rounds, root, 2.0 * spread * spread * growth + 1.0  # (7)


def missing_iid(mu: float, sigma: float, *, delta: float) -> float:
    r"""Rewards missing in one round, where delays are independent with one exponential tail.

    μ + 2σ √(log 1/δ) + 1 + 4σ² log(2σ²), the paper's special case of Proposition 1 for q = 0.

    It assumes independent delays of one law with P(D - μ ≥ x) ≤ exp(-x/(2σ²)). The proof treats μ
    as a whole number and writes the stopping times of two different sums for each other; the
    statement stands for every law it was tried on.

    Args:
        mu: the mean delay.
        sigma: the scale σ of the tail.
        delta: δ.

    >>> from belated.delays import Geometric
    >>> law = Geometric(mean=100).params()
    >>> missing_iid(law.mu, law.sigma, delta=0.05)
    1052.2
    """
    scale = as_nonnegative(sigma, "sigma")
    variance = scale * scale
    spread = 2.0 * math.sqrt(variance * log_level(delta))
    growth = 4.0 * variance * math.log(2.0 * variance) if variance > 0.0 else 0.0  # its limit
    return as_nonnegative(mu, "mu") + spread + 1.0 + growth  # (10)


def missing_max_iid(mu: float, sigma: float, *, horizon: int, delta: float) -> float:
    r"""The most rewards missing at once, under the assumptions of :func:`missing_iid`.

    The paper states no maximum for this special case. A bound that fails in one round with
    probability δ/T fails in any of T rounds with probability at most δ, and that is what this is.

    Args:
        mu: the mean delay.
        sigma: the scale σ of the tail.
        horizon: T, the number of rounds.
        delta: δ.

    >>> missing_max_iid(5, 1.656, horizon=3000, delta=0.05)
    35.6
    """
    return missing_iid(mu, sigma, delta=per_round(delta, horizon))


def missing_hoeffding(mu: float, M: float, sigma: float, q: float, *, delta: float) -> float:
    r"""Rewards missing in one round, where delays are independent with fast-falling tails (q > 0).

    2(μ + M) + σ_G √(2 log 1/δ) with σ_G² = I/4 + σ²(1 + q)/q (Proposition 5.1). The paper calls it
    weaker than Proposition 1. For most laws with q > 0 it is far stronger: 264 against 128,055 for
    the half-normal delays of scale 50.

    It assumes what :func:`missing_prop1` does, and q > 0. The text of the proof has σ² in I where
    the definition has 2σ²; the definition is what the proof needs.

    Args:
        mu: as in :func:`missing_prop1`.
        M: as there.
        sigma: as there.
        q: above 0.
        delta: δ.

    >>> missing_hoeffding(40.40, 0, 50, 1, delta=0.05)
    264.4
    """
    return _twice(mu, M) + _hoeffding_spread(sigma, q) * math.sqrt(2.0 * log_level(delta))  # (30)


def missing_max_hoeffding(
    mu: float, M: float, sigma: float, q: float, *, horizon: int, delta: float
) -> float:
    r"""The most rewards missing at once, under the assumptions of :func:`missing_hoeffding`.

    Proposition 5.2: σ_G √(2 log T) more than in one round.

    Args:
        mu: as in :func:`missing_prop1`.
        M: as there.
        sigma: as there.
        q: above 0.
        horizon: T, the number of rounds.
        delta: δ.

    >>> missing_max_hoeffding(40.40, 0, 50, 1, horizon=3000, delta=0.05)
    564.5
    """
    rounds = _hoeffding_spread(sigma, q) * math.sqrt(2.0 * log_rounds(horizon))
    return missing_hoeffding(mu, M, sigma, q, delta=delta) + rounds  # (31)


def indicator_variance(p: float) -> float:
    r"""The least variance of a normal law that dominates a coin: (1 - 2p)/(2 log((1 - p)/p)).

    It is the sub-Gaussian σ² of one reward being missing (Theorem 8), from which the bound of
    Hoeffding is made: 1/4 at p = 1/2 and 0 at both ends.

    Args:
        p: the probability that the reward is missing.

    >>> indicator_variance(0.5), indicator_variance(0.01)
    (0.25, 0.1066)
    """
    if p in (0.0, 1.0):
        return 0.0
    odds = 1.0 - 2.0 * as_probability(p, "p")
    # log((1 - p)/p) = 2 artanh(1 - 2p), and x/artanh(x) has the limit 1 at 0.
    return 0.25 * odds / math.atanh(odds) if abs(odds) > 1e-8 else 0.25


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
