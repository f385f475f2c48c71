r"""The paper's bounds on missing rewards, for delays that depend on one another.

As in :mod:`belated.theory.missing_independent`, each ``missing_*`` holds in any one round with
probability 1 - δ and each ``missing_max_*`` in all rounds up to the horizon together. Delays must
still be independent of the rewards, which the paper's sections on dependence do not repeat.
"""

from __future__ import annotations

import math

from belated.core.inputs import as_nonnegative, as_positive
from belated.delays.whole import as_rounds
from belated.exceptions import InvalidInput
from belated.model.kernels import special
from belated.theory.levels import log_level, log_rounds, per_round


def missing_markov(
    mu: float, spectral: float, *, delta: float, conservative: bool = False
) -> float:
    r"""Rewards missing in one round, where delays follow a Markov chain.

    μ + A₂ L + √(2A₁ μ L) with L = log 1/δ, A₁ = (1 + λ)/(1 - λ), and A₂ = 5/(1 - λ), or 1/3 where
    λ = 0 (Proposition 3.1).

    It assumes a stationary chain that is independent of the rewards, with a finite mean: the tail
    that Assumption 3 asks for is not used, and delays of 0 may occur. What the paper calls the
    spectral gap is λ itself; the gap is 1 - λ. The form follows from the moments behind the
    inequality (24) that the proof cites, not from the inequality alone.

    Args:
        mu: the mean delay.
        spectral: λ, from 0 to below 1; 0 for independent delays.
        delta: δ.
        conservative: take what follows from (24) alone: √(A₂²L² + 2A₁ μ L) for the root.

    >>> missing_markov(20, 0.5, delta=0.05)
    68.917
    """
    first, second, root = markov_terms(mu, spectral, log_level(delta))
    return first + second + (math.hypot(second, root) if conservative else root)


def missing_max_markov(
    mu: float, spectral: float, *, horizon: int, delta: float, conservative: bool = False
) -> float:
    r"""The most rewards missing at once, under the assumptions of :func:`missing_markov`.

    Proposition 3.2: the bound of one round with log T/δ for log 1/δ.

    Args:
        mu: the mean delay.
        spectral: λ, from 0 to below 1.
        horizon: T, the number of rounds.
        delta: δ.
        conservative: as in :func:`missing_markov`.

    >>> missing_max_markov(20, 0.5, horizon=3000, delta=0.05)
    166.4
    """
    share = per_round(delta, horizon)  # (22)
    return missing_markov(mu, spectral, delta=share, conservative=conservative)


def markov_terms(mu: float, spectral: float, log: float) -> tuple[float, float, float]:
    """The terms of Proposition 3; Theorem 3 has the root of each."""
    mean = as_nonnegative(mu, "mu")
    if not 0.0 <= spectral < 1.0:
        message = (
            f"spectral is {spectral!r}: λ from 0 to below 1 was expected; without a spectral gap"
            " take missing_union"
        )
        raise InvalidInput(message, spectral)
    a1 = (1.0 + spectral) / (1.0 - spectral)
    a2 = 5.0 / (1.0 - spectral) if spectral > 0.0 else 1.0 / 3.0
    return mean, a2 * log, math.sqrt(2.0 * a1 * mean * log)  # (21)


def missing_random(mu: float, sigma_r: float, q_r: float, *, delta: float) -> float:
    r"""Rewards missing in one round, where delays depend on one another in any way.

    ⌈μ⌉ + σ_G √(2 log C₄/δ) with σ_G = σ_R ζ(1 + q) and C₄ = 2σ_R² + 1 (Proposition 4.1).

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

    >>> from belated.delays import Uniform
    >>> law = Uniform(10).params()
    >>> missing_random(law.mu, law.sigma_r, law.q_r, delta=0.05)
    190.1
    """
    first, _, root = random_terms(mu, sigma_r, q_r, horizon=1, delta=delta)
    return first + root


def missing_max_random(
    mu: float, sigma_r: float, q_r: float, *, horizon: int, delta: float
) -> float:
    r"""The most rewards missing at once, under the assumptions of :func:`missing_random`.

    Proposition 4.2: σ_G √(2 log T) more than in one round.

    Args:
        mu: the mean delay.
        sigma_r: as in :func:`missing_random`.
        q_r: as there.
        horizon: T, the number of rounds.
        delta: δ.

    >>> from belated.delays import Uniform
    >>> law = Uniform(10).params()
    >>> missing_max_random(law.mu, law.sigma_r, law.q_r, horizon=3000, delta=0.05)
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
    rounds = spread * math.sqrt(2.0 * log_rounds(horizon))
    root = spread * math.sqrt(2.0 * (math.log1p(2.0 * scale * scale) + log_level(delta)))
    return math.ceil(as_nonnegative(mu, "mu")), rounds, root  # (26), (27) for whole μ


def missing_bounded(bound: int) -> float:
    r"""Rewards missing in any round, where no delay exceeds a bound: the bound itself.

    Proposition 2.1. It never fails, whatever delays depend on, and it is reached by a constant
    delay. Only rounds that lie no further back can be outstanding.

    Args:
        bound: the largest delay D_max.

    >>> missing_bounded(7)
    7.0
    """
    return float(as_rounds(bound, "bound"))


def missing_max_bounded(bound: int) -> float:
    """The most rewards missing at once, where no delay exceeds a bound: the same.

    :func:`missing_bounded` never fails, so it holds in all rounds together, for every horizon.

    Args:
        bound: the largest delay D_max.

    >>> missing_max_bounded(7)
    7.0
    """
    return missing_bounded(bound)
