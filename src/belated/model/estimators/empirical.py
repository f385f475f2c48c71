r"""The prior's precision, estimated from the data.

The precision λ has a Gamma prior around 1, with the weight of four coefficients. The mode of λ
given the posterior of θ solves

.. math:: \lambda = \frac{d + 4}{\|\hat\theta\|^2 + \operatorname{tr} H^{-1} + 4/\lambda_0},

where θ̂ and H depend on λ. Coefficients of other blocks, which are fitted separately, add the
number of coefficients determined by rewards, d - λ tr H⁻¹, to d, and ‖θ̂‖² to the denominator. This
leads to the same fixed point.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from belated.core.inputs import Matrix, Vector
from belated.model.priors import AUTO_RANGE, AUTO_START, NO_OTHERS, Others, Prior

#: Weight of the prior on λ, as a number of coefficients.
WORTH = 4.0


def spectrum_of(information: Matrix, pull: Vector) -> tuple[Vector, Vector]:
    """Return the eigenvalues of D and the squared components of b, which determine λ."""
    values, vectors = np.linalg.eigh(information)
    parts = pull[..., None, :] @ vectors
    return np.maximum(values.ravel(), 0.0), np.square(parts.ravel())


def fitted_ridge(
    values: Vector, squares: Vector, near: float = 0.0, others: Others = NO_OTHERS
) -> float:
    """Return the fixed point λ for a quadratic log-likelihood: (D + λ I) θ̂ = b.

    Args:
        values: eigenvalues of D, the information without the prior.
        squares: squared components of b, the score at zero, in the basis of eigenvectors of D.
        near: relative tolerance of the equation.
        others: contribution of coefficients in other blocks.

    >>> spectrum = spectrum_of(np.eye(2) * 100.0, np.array([300.0, 0.0]))
    >>> round(fitted_ridge(*spectrum), 3)
    0.464
    """

    def excess(log_ridge: float) -> float:
        total = values + math.exp(log_ridge)
        inverse = 1.0 / total
        size = float(squares @ (inverse * inverse)) + float(inverse.sum())
        return _excess(len(values), size, log_ridge, others)

    low, high = math.log(AUTO_RANGE[0]), math.log(AUTO_RANGE[1])
    if excess(high) >= 0.0:
        return AUTO_RANGE[1]
    if excess(low) <= 0.0:
        return AUTO_RANGE[0]
    return math.exp(_zero(excess, low, high, near))


def ridge_is_near(root: Matrix, theta: Vector, prior: Prior, near: float) -> bool:
    """Return whether λ is near the fixed point, to first order, without computing eigenvectors.

    Args:
        root: root of H⁻¹, where H includes λ.
        theta: θ̂.
        prior: the prior with precision λ.
        near: relative tolerance of λ.
    """
    ridge = prior.strength
    inner = root.swapaxes(-2, -1) @ root  # has the same norm as H⁻¹
    pulled = theta[..., None, :] @ root
    size = float(np.vdot(theta, theta)) + float(np.vdot(root, root))
    excess = _excess(theta.size, size, math.log(ridge), prior.others)
    change = ridge * (2.0 * float(np.vdot(pulled, pulled)) + float(np.vdot(inner, inner)))
    slope = change / (size + prior.others[1] + WORTH / AUTO_START) - 1.0
    if slope >= 0.0:
        return False
    low, high = AUTO_RANGE
    target = min(max(math.log(ridge) - excess / slope, math.log(low)), math.log(high))
    return abs(target - math.log(ridge)) <= near


def _excess(dim: int, size: float, log_ridge: float, others: Others) -> float:
    """Return the log of the right side minus log λ, where ``size`` is ‖θ̂‖² + tr H⁻¹."""
    determined, square = others
    optimum = (dim + determined + WORTH) / (size + square + WORTH / AUTO_START)
    return math.log(optimum) - log_ridge


def _zero(f: Callable[[float], float], low: float, high: float, near: float) -> float:
    """Return a zero of f between two points where f has opposite signs (Illinois algorithm).

    SciPy's brentq is not used because importing scipy.optimize takes as long as importing belated,
    which would delay the first fit.
    """
    at_low, at_high = f(low), f(high)
    while True:
        middle = (low * at_high - high * at_low) / (at_high - at_low)
        value = f(middle)
        if (
            abs(value) <= near
            or abs(high - low) < 1e-13
            or not min(low, high) < middle < max(low, high)
        ):
            return middle
        if (value > 0.0) != (at_high > 0.0):
            low, at_low = high, at_high
        else:  # Illinois step: halve the value at the retained end, so that it moves next time
            at_low *= 0.5
        high, at_high = middle, value
