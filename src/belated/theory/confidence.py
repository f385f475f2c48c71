r"""Confidence widths, and the rounds of uniform exploration that the theorems require.

A width is the number of standard deviations that an upper confidence bound adds. Here n is the
number of arrived rewards, G the number of pending rewards, d the number of features, δ the
probability with which the bound may fail, σ̂ the noise of a reward, and κ the minimum slope of the
mean.

For logistic rewards, the theorems require millions of rounds of exploration, far beyond any
practical horizon. This is a property of the proofs, not advice: this library's policies start from
a prior and need no such exploration.
"""

from __future__ import annotations

import math

import numpy as np

from belated.core.inputs import Vector, as_dim, as_nonnegative, as_positive
from belated.model.families import Bernoulli, Family, Gaussian, Poisson
from belated.theory.missing import log_level


def width_paper(
    n: float, missing: float, dim: int, *, delta: float, sigma: float, kappa: float
) -> float:
    r"""Return the paper's β_t (Alg. 1, l. 5): (σ̂/κ) √(d/2 log(1 + 2n/d) + log 1/δ) + √G.

    The paper's number of rewards, t - G_t, is too large by 1, and its Theorem 1 adds G_t where the
    algorithm and the proof add √G_t; both are corrected here. For G = 0, this is the width in the
    metric of W.

    Args:
        n: number of rewards that have arrived.
        missing: number of pending rewards, G.
        dim: d, the number of features.
        delta: δ.
        sigma: σ̂.
        kappa: κ.

    >>> round(width_paper(10_000, 0, 10, delta=0.05, sigma=0.5, kappa=0.0177))
    181
    """
    return _core(n, dim, delta, sigma, kappa) + math.sqrt(as_nonnegative(missing, "missing"))


def width_tight(
    n: float, missing: float, dim: int, *, delta: float, sigma: float, kappa: float
) -> float:
    r"""Return the width that the paper's proof yields: √(β² + G), at most β + √G.

    In the first line of (37), G is under the root but multiplied by σ̂/κ, which is wrong if the
    noise is low. The second line, :func:`width_paper`, is nevertheless correct.

    Args:
        n: number of rewards that have arrived.
        missing: number of pending rewards, G.
        dim: d, the number of features.
        delta: δ.
        sigma: σ̂.
        kappa: κ.

    >>> round(width_tight(100, 16, 2, delta=0.05, sigma=0.5, kappa=0.25), 2)
    6.81
    """
    root = math.sqrt(as_nonnegative(missing, "missing"))
    return math.hypot(_core(n, dim, delta, sigma, kappa), root)


def width_spectral(
    n: float, inflation: float, dim: int, *, delta: float, sigma: float, kappa: float
) -> float:
    r"""Return β ψ with ψ² = λ_max(W⁻¹V), where a factor that tends to 1 replaces the term √G.

    Args:
        n: number of rewards that have arrived.
        inflation: ψ, at least 1.
        dim: d, the number of features.
        delta: δ.
        sigma: σ̂.
        kappa: κ.

    >>> round(width_spectral(100, 1.1, 2, delta=0.05, sigma=0.5, kappa=0.25), 2)
    6.07
    """
    return as_nonnegative(inflation, "inflation") * _core(n, dim, delta, sigma, kappa)


def width_log(n: float, alpha: float = 0.95) -> float:
    r"""Return α √log(2 + n), the width that works in practice; it depends on neither √d nor κ.

    Args:
        n: number of rewards that have arrived.
        alpha: α; the default is that of :class:`~belated.policies.DelayedUCB`.

    >>> round(width_log(10_000), 2)
    2.88
    """
    return alpha * math.sqrt(math.log(2.0 + n))


def _core(n: float, dim: int, delta: float, sigma: float, kappa: float) -> float:
    d, arrived = as_dim(dim), as_nonnegative(n, "n")
    root = math.sqrt(0.5 * d * math.log1p(2.0 * arrived / d) + log_level(delta))
    return as_positive(sigma, "sigma") / as_positive(kappa, "kappa") * root


#: (1 - log 2)/2: the rate of the matrix Chernoff bound at half the mean.
CHERNOFF = 0.5 * (1.0 - math.log(2.0))


def min_slope(family: Family, norm_bound: float) -> float:
    r"""Return κ = min g'(z) over \|z\| ≤ S + 1, for \|θ*\| ≤ S and rows of norm at most 1.

    The paper uses the minimum slope around the unknown θ*. With a bound S on the norm of θ*, a
    lower bound of the slope can be computed.

    Args:
        family: Family of the rewards.
        norm_bound: S, at least \|θ*\|.

    >>> from belated import Bernoulli
    >>> round(min_slope(Bernoulli(), 3.0), 4)
    0.0177
    """
    return float(_slopes(family, norm_bound).min())


def max_slope(family: Family, norm_bound: float) -> float:
    r"""Return L_g = max g'(z) over \|z\| ≤ S + 1, the maximum slope of the mean.

    Args:
        family: Family of the rewards.
        norm_bound: S, at least \|θ*\|.

    >>> from belated import Bernoulli
    >>> max_slope(Bernoulli(), 3.0)
    0.25
    """
    return float(_slopes(family, norm_bound).max())


def _slopes(family: Family, norm_bound: float) -> Vector:
    """Return the slopes at both ends and at zero, among which are the minimum and maximum."""
    end = as_positive(norm_bound, "norm_bound") + 1.0
    return family.slope(np.array([-end, 0.0, end]))


def noise(family: Family, norm_bound: float) -> float:
    """Return σ̂, for which a reward is sub-Gaussian around its mean.

    The result is 1/2 for rewards in [0, 1] and the standard deviation for Gaussian rewards. Poisson
    rewards are not sub-Gaussian; their standard deviation at the largest mean is used instead.
    """
    if isinstance(family, Bernoulli):
        return 0.5
    if isinstance(family, Gaussian):
        return math.sqrt(family.dispersion or 1.0)
    if isinstance(family, Poisson):
        return math.exp(0.5 * (norm_bound + 1.0))
    top = float(family.slope(np.array([norm_bound + 1.0]))[0])
    return math.sqrt(top * (family.dispersion or 1.0))


def threshold(dim: int, *, delta: float, sigma: float, kappa: float) -> float:
    r"""Return the eigenvalue that W must reach: max(1, 16 σ̂² (d + log 1/δ)/κ²).

    The paper uses the delay's σ here, but the proof requires the noise σ̂.

    Args:
        dim: d, the number of features.
        delta: δ.
        sigma: σ̂, the noise of a reward.
        kappa: κ.

    >>> round(threshold(10, delta=0.05, sigma=0.5, kappa=0.0177))
    165926
    """
    ratio = as_positive(sigma, "sigma") / as_positive(kappa, "kappa")
    return max(1.0, 16.0 * ratio * ratio * (as_dim(dim) + log_level(delta)))  # equation (38)


def warmup_chernoff(
    dim: int, *, delta: float, target: float, missing: float = 0.0, least: float | None = None
) -> float:
    r"""Return τ such that λ_min(W) ≥ target with probability 1 - δ, by the matrix Chernoff bound.

    Args:
        dim: d, the number of features.
        delta: δ.
        target: Eigenvalue to reach; see :func:`threshold`.
        missing: Bound on the number of pending rewards; by default, τ counts arrivals.
        least: λ_min(Σ) of the rows of uniform exploration; by default 1/d, as on the sphere.

    >>> round(warmup_chernoff(10, delta=0.05, target=100.0))
    2000
    """
    d = as_dim(dim)
    scale = 1.0 / d if least is None else as_positive(least, "least")
    spectrum = (math.log(d) + log_level(delta)) / CHERNOFF
    arrivals = max(2.0 * as_nonnegative(target, "target"), spectrum) / scale
    return arrivals + as_nonnegative(missing, "missing")


def warmup_paper(
    dim: int,
    *,
    delta: float,
    target: float,
    missing: float,
    least: float,
    c1: float,
    c2: float,
) -> float:
    r"""Return the paper's τ: ((C₁√d + C₂√log 1/δ)/λ_min(Σ))² + 2 target/λ_min(Σ) + missing.

    With the bound on missing rewards from Proposition 1, this is (38); (8), (23), (28) and (32) are
    the same formula with other bounds. C₁ and C₂ are "universal" constants whose values the paper
    does not state, so they are arguments without defaults.

    Args:
        dim: d, the number of features.
        delta: δ.
        target: Eigenvalue to reach; see :func:`threshold`.
        missing: Bound on the number of pending rewards in one round.
        least: λ_min(Σ) of the rows of uniform exploration.
        c1: C₁.
        c2: C₂.

    >>> round(warmup_paper(10, delta=0.05, target=1.0, missing=0, least=0.1, c1=1.0, c2=1.0))
    2414
    """
    scale = as_positive(least, "least")
    roots = as_nonnegative(c1, "c1") * math.sqrt(as_dim(dim))
    roots += as_nonnegative(c2, "c2") * math.sqrt(log_level(delta))
    arrivals = (roots / scale) ** 2 + 2.0 * as_nonnegative(target, "target") / scale
    return arrivals + as_nonnegative(missing, "missing")
