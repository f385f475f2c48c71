r"""The prior's precision, estimated from the data.

With a Gamma prior on the precision λ that is worth four coefficients around 1, its mode given the
posterior of θ solves

.. math:: \lambda = \frac{d + 4}{\|\hat\theta\|^2 + \operatorname{tr} H^{-1} + 4/\lambda_0},

where θ̂ and H depend on λ themselves.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from belated.inputs import Matrix, Vector
from belated.kernels.blocks import diagonal_blocks
from belated.priors import AUTO_RANGE, AUTO_START

#: How many coefficients the belief in λ₀ is worth.
WORTH = 4.0


def fitted_ridge(information: Matrix, pull: Vector) -> float:
    """The fixed point λ for a quadratic log-likelihood: (D + λ I) θ̂ = b.

    Args:
        information: D, without the prior.
        pull: b, the score at zero of the quadratic.

    >>> round(fitted_ridge(np.eye(2) * 100.0, np.array([300.0, 0.0])), 3)
    0.464
    """
    blocks = diagonal_blocks(information)
    spectra = [np.linalg.eigh(information[at, at]) for at in blocks]
    values = np.maximum(np.concatenate([values for values, _ in spectra]), 0.0)
    parts = [pull[at] @ vectors for at, (_, vectors) in zip(blocks, spectra, strict=True)]
    squares = np.square(np.concatenate(parts))

    def excess(log_ridge: float) -> float:
        ridge = math.exp(log_ridge)
        total = values + ridge
        size = np.sum(squares / np.square(total)) + np.sum(1.0 / total) + WORTH / AUTO_START
        return float(np.log((len(values) + WORTH) / size) - log_ridge)

    low, high = math.log(AUTO_RANGE[0]), math.log(AUTO_RANGE[1])
    if excess(low) <= 0.0:
        return AUTO_RANGE[0]
    if excess(high) >= 0.0:
        return AUTO_RANGE[1]
    return math.exp(_zero(excess, low, high))


def _zero(f: Callable[[float], float], low: float, high: float) -> float:
    """Where f is zero between two points of other signs: false position, Illinois' rule.

    scipy's brentq would do; to import scipy.optimize takes as long as to import all of belated, and
    the first caller with five rewards would wait for it.
    """
    at_low, at_high = f(low), f(high)
    while True:
        middle = (low * at_high - high * at_low) / (at_high - at_low)
        value = f(middle)
        if value == 0.0 or abs(high - low) < 1e-13 or not min(low, high) < middle < max(low, high):
            return middle
        if (value > 0.0) != (at_high > 0.0):
            low, at_low = high, at_high
        else:  # the other end stays: it counts for half, so that it moves next time
            at_low *= 0.5
        high, at_high = middle, value
