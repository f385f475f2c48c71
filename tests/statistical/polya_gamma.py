r"""The exact posterior of Bayesian logistic regression, to hold approximations against.

A Pólya–Gamma variable PG(1, z) is :math:`\sum_k E_k/(2\pi^2(k - 1/2)^2 + z^2/2)` over standard
exponential :math:`E_k`. Given :math:`\omega_i \sim PG(1, x_i^\top\theta)` a logistic likelihood is
a normal one, so that Gibbs sampling needs two exact draws only (Polson, Scott, Windle, 2013).
:func:`polya_gamma` draws by the alternating series of Devroye (2009): no truncation, no tuning.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray
from scipy.special import log_ndtr

from belated.core.inputs import Matrix, Vector
from belated.model.priors import Prior

#: Where the proposal passes from a truncated inverse Gaussian to an exponential tail.
CUT = 0.64


def polya_gamma(z: Vector, rng: np.random.Generator) -> Vector:
    """One draw of PG(1, z) for each z, in any shape."""
    tilt = 0.5 * np.abs(np.ravel(z))
    rate = math.pi**2 / 8.0 + 0.5 * np.square(tilt)
    # Masses of the two pieces of the proposal, both over cosh(tilt).
    tail = math.pi / (2.0 * rate) * np.exp(-rate * CUT)
    edge = 1.0 / math.sqrt(CUT)
    body = 2.0 * (
        np.exp(-tilt + log_ndtr(edge * (CUT * tilt - 1.0)))
        + np.exp(tilt + log_ndtr(-edge * (CUT * tilt + 1.0)))
    )
    in_tail = tail / (tail + body)
    drawn = np.empty(len(tilt))
    remaining = np.arange(len(tilt))
    while len(remaining):
        far = rng.random(len(remaining)) < in_tail[remaining]
        x = np.empty(len(remaining))
        x[far] = CUT + rng.standard_exponential(int(far.sum())) / rate[remaining[far]]
        x[~far] = _truncated_inverse_gaussian(tilt[remaining[~far]], rng)
        accepted = _below_series(x, rng)
        drawn[remaining[accepted]] = x[accepted]
        remaining = remaining[~accepted]
    return 0.25 * drawn.reshape(np.shape(z))


def _below_series(x: Vector, rng: np.random.Generator) -> NDArray[np.bool_]:
    """Accept each x with the probability density/proposal, by its alternating series."""
    partial = _coefficient(0, x)
    height = rng.random(len(x)) * partial
    accepted = np.zeros(len(x), dtype=np.bool_)
    open_ = np.arange(len(x))
    n = 0
    while len(open_):
        n += 1
        # Partial sums lie below the series after an odd term and above it after an even one.
        partial[open_] += (-1) ** n * _coefficient(n, x[open_])
        if n % 2:
            decided = height[open_] <= partial[open_]
            accepted[open_[decided]] = True
        else:
            decided = height[open_] > partial[open_]
        open_ = open_[~decided]
    return accepted


def _coefficient(n: int, x: Vector) -> Vector:
    """The n-th term a_n(x), in the form that converges on its side of the cut."""
    k = n + 0.5
    small = np.minimum(x, CUT)
    body = np.power(2.0 / (math.pi * small), 1.5) * np.exp(-2.0 * k**2 / small)
    return np.where(x <= CUT, body, np.exp(-0.5 * (k * math.pi) ** 2 * x)) * (math.pi * k)


def _truncated_inverse_gaussian(tilt: Vector, rng: np.random.Generator) -> Vector:
    """Inverse Gaussian with mean 1/tilt and shape 1, given that it is below the cut."""
    drawn = np.empty(len(tilt))
    remaining = np.arange(len(tilt))
    while len(remaining):
        z = tilt[remaining]
        size = len(remaining)
        # Mean above the cut: 1/N² with N beyond 1/√cut, tilted by e^{-z²x/2}.
        first, second = rng.standard_exponential((2, size))
        wide = CUT / np.square(1.0 + CUT * first)
        fits = np.square(first) <= 2.0 * second / CUT
        fits &= rng.random(size) <= np.exp(-0.5 * np.square(z) * wide)
        # Mean below it: the whole law by the roots of Michael, Schucany and Haas.
        mean = 1.0 / np.maximum(z, 1.0 / CUT)
        chi = mean * np.square(rng.standard_normal(size))
        root = mean * (1.0 + 0.5 * (chi - np.sqrt(4.0 * chi + np.square(chi))))
        swap = rng.random(size) > mean / (mean + root)
        narrow = np.where(swap, np.square(mean) / root, root)
        heavy = z < 1.0 / CUT
        x = np.where(heavy, wide, narrow)
        accepted = np.where(heavy, fits, narrow < CUT)
        drawn[remaining[accepted]] = x[accepted]
        remaining = remaining[~accepted]
    return drawn


def posterior_draws(
    X: Matrix,
    y: Vector,
    prior: Prior,
    rng: np.random.Generator,
    *,
    chains: int,
    burn_in: int,
    sweeps: int,
) -> Matrix:
    """Draws of θ given logistic rewards, by Gibbs sampling: sweeps × chains of them, as rows.

    The chains start from the prior and know nothing of any approximation.
    """
    dim = prior.dim
    outer = (X[:, :, None] * X[:, None, :]).reshape(len(X), dim * dim)
    pull = prior.precision @ prior.mean + (y - 0.5) @ X
    start = np.linalg.cholesky(np.linalg.inv(prior.precision))
    theta = prior.mean + rng.standard_normal((chains, dim)) @ start.T
    draws = np.empty((sweeps, chains, dim))
    for sweep in range(-burn_in, sweeps):
        omega = polya_gamma(theta @ X.T, rng)
        precision = prior.precision + (omega @ outer).reshape(chains, dim, dim)
        factor = np.linalg.cholesky(precision)
        noise = rng.standard_normal((chains, dim, 1))
        white = np.linalg.solve(factor, np.broadcast_to(pull[:, None], noise.shape)) + noise
        theta = np.linalg.solve(factor.mT, white)[:, :, 0]
        if sweep >= 0:
            draws[sweep] = theta
    return draws.reshape(sweeps * chains, dim)
