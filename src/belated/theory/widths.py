r"""Widths of confidence: how many standard deviations an upper bound adds.

n is the number of rewards that have arrived, G the number outstanding, d the number of features, δ
the probability with which the bound may fail, σ̂ the noise of a reward, κ the least slope.
"""

from __future__ import annotations

import math

from belated.core.inputs import as_dim, as_nonnegative, as_positive
from belated.theory.levels import log_level


def width_paper(
    n: float, missing: float, dim: int, *, delta: float, sigma: float, kappa: float
) -> float:
    r"""The paper's β_t (Alg. 1, l. 5): (σ̂/κ) √(d/2 log(1 + 2n/d) + log 1/δ) + √G.

    The paper writes t - G_t for the number of rewards, which is one too many, and its Theorem 1
    adds G_t where algorithm and proof add √G_t; both are resolved here. With nothing missing it is
    the width in the metric of W alone.

    Args:
        n: rewards that have arrived.
        missing: rewards outstanding, G.
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
    r"""What the paper's proof gives: √(β² + G), never more than β + √G.

    The first line of (37) has G under the root but multiplied by σ̂/κ, which is false where the
    noise is low; its second line, :func:`width_paper`, is right all the same.

    Args:
        n: rewards that have arrived.
        missing: rewards outstanding, G.
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
    r"""β ψ with ψ² = λ_max(W⁻¹V): the delay costs a factor that goes to 1, not an additive √G.

    Args:
        n: rewards that have arrived.
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
    r"""α √log(2 + n): the width that works. It does not carry √d and is free of κ.

    Args:
        n: rewards that have arrived.
        alpha: α; by default that of :class:`~belated.policies.DelayedUCB`.

    >>> round(width_log(10_000), 2)
    2.88
    """
    return alpha * math.sqrt(math.log(2.0 + n))


def _core(n: float, dim: int, delta: float, sigma: float, kappa: float) -> float:
    d, arrived = as_dim(dim), as_nonnegative(n, "n")
    root = math.sqrt(0.5 * d * math.log1p(2.0 * arrived / d) + log_level(delta))
    return as_positive(sigma, "sigma") / as_positive(kappa, "kappa") * root
