r"""How many rounds of uniform exploration the theorems ask for.

They are far beyond any practical horizon for logistic rewards (millions of rounds): a statement
about the proof, not advice. The policies of this library start from a prior and need none.
"""

from __future__ import annotations

import math

import numpy as np

from belated.exceptions import InvalidInput
from belated.families import Bernoulli, Family, Gaussian, Poisson

#: (1 - log 2)/2: the rate of the matrix Chernoff bound at half the mean.
CHERNOFF = 0.5 * (1.0 - math.log(2.0))


def least_slope(family: Family, norm_bound: float) -> float:
    r"""κ = min g'(z) over \|z\| ≤ S + 1, for \|θ*\| ≤ S and rows of length at most 1.

    The paper takes the least slope around the unknown θ*; with a bound S on its norm it is known.

    >>> from belated import Bernoulli
    >>> round(least_slope(Bernoulli(), 3.0), 4)
    0.0177
    """
    if not norm_bound > 0:
        raise InvalidInput(f"norm_bound is {norm_bound!r}: a number above 0", norm_bound)
    ends = np.array([-norm_bound - 1.0, 0.0, norm_bound + 1.0])
    return float(family.slope(ends).min())


def noise(family: Family, norm_bound: float) -> float:
    """σ̂, by which a reward is sub-Gaussian around its mean.

    Half for rewards in [0, 1], the standard deviation for Gaussian ones. A Poisson reward is not
    sub-Gaussian: the standard deviation at the largest mean stands in for it.
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
    r"""The eigenvalue that W must reach: max(1, 16 σ̂² (d + log 1/δ)/κ²).

    The paper writes the delay's σ here; the proof needs the noise σ̂.

    >>> round(threshold(10, delta=0.05, sigma=0.5, kappa=0.0177))
    165926
    """
    return max(1.0, 16.0 * sigma**2 * (dim + math.log(1.0 / delta)) / kappa**2)


def warmup_chernoff(
    dim: int, *, delta: float, target: float, missing: float = 0.0, least: float | None = None
) -> float:
    r"""τ with explicit constants: λ_min(W) ≥ target with probability 1 - δ, by matrix Chernoff.

    Args:
        dim: d.
        delta: δ.
        target: the eigenvalue to reach, see :func:`threshold`.
        missing: a bound on the rewards outstanding; without it, τ counts arrivals.
        least: λ_min(Σ) of the rows of uniform exploration; 1/d, as on the sphere, if not given.

    >>> round(warmup_chernoff(10, delta=0.05, target=100.0))
    2000
    """
    scale = 1.0 / dim if least is None else least
    return max(2.0 * target, math.log(dim / delta) / CHERNOFF) / scale + missing


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
    r"""The paper's τ: ((C₁√d + C₂√log 1/δ)/λ_min(Σ))² + 2 target/λ_min(Σ) + missing.

    C₁ and C₂ are "universal" and nowhere given: they are arguments without a default.

    >>> round(warmup_paper(10, delta=0.05, target=1.0, missing=0, least=0.1, c1=1.0, c2=1.0))
    2414
    """
    first = (c1 * math.sqrt(dim) + c2 * math.sqrt(math.log(1.0 / delta))) / least
    return first**2 + 2.0 * target / least + missing
