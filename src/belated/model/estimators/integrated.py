r"""The posterior of θ if the prior's precision is unknown.

An estimated precision λ̂ is only one of many that are consistent with the rewards. If few
directions are known and effects are strong, λ̂ is often too large: it shrinks the other
coefficients towards zero, and intervals that ignore the uncertainty of λ̂ are too narrow. This
module integrates over λ. The prior of λ is uniform on the log scale within its range, so that

.. math:: p(\lambda \mid y) \propto \lambda^{d/2}\, |H_\lambda|^{-1/2}
    \exp\Bigl(\ell(\theta_\lambda) - \frac\lambda2 \|\theta_\lambda\|^2\Bigr)

by Laplace's method. The means and covariances of θ given λ are mixed with these weights.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from belated.core.inputs import Matrix, Vector
from belated.model.blocks import outer, root_of
from belated.model.priors import AUTO_RANGE

#: The largest difference between the logarithms of neighboring precisions.
WIDEST = 0.6
#: The search ends at a precision whose weight is below this fraction of the largest.
LEAST = 1e-3


class GivenPrecision(NamedTuple):
    """The posterior for a given precision of the prior.

    Attributes:
        mean: mean of θ.
        precision: precision of θ.
        value: maximum of the log posterior, up to a constant.
    """

    mean: Vector
    precision: Matrix
    value: float


class Mixed(NamedTuple):
    """Mean and covariance of the posterior, integrated over the prior's precision."""

    mean: Vector
    covariance: Matrix


def integrated(
    solve: Callable[[float], GivenPrecision | None], near: float, dim: int
) -> Mixed | None:
    """Mix the posteriors for all precisions, weighted by the probability of each precision.

    Args:
        solve: returns the posterior for a precision; None if the fit does not converge.
        near: a likely precision, where the search starts.
        dim: number of coefficients.

    >>> def solve(ridge: float) -> GivenPrecision:  # one reward of 3 with variance 1
    ...     theta = 3.0 / (1.0 + ridge)
    ...     value = -0.5 * (3.0 - theta) ** 2 - 0.5 * ridge * theta**2
    ...     return GivenPrecision(np.array([theta]), np.array([[1.0 + ridge]]), value)
    >>> mixed = integrated(solve, 0.2, 1)
    >>> mixed.mean.round(2), mixed.covariance.round(2)
    (array([2.55]), array([[0.98]]))
    """
    low, high = (math.log(end) for end in AUTO_RANGE)
    # The standard deviation of log λ is at least about √(2/d).
    count = math.ceil((high - low) / min(WIDEST, math.sqrt(2.0 / dim)))
    grid = np.linspace(low, high, count + 1)
    first = int(np.abs(grid - math.log(near)).argmin())
    posteriors: list[tuple[float, Vector, Matrix]] = []
    for places in (range(first, count + 1), range(first - 1, -1, -1)):
        for place in places:
            posterior = solve(math.exp(grid[place]))
            if posterior is None:
                break
            root = root_of(posterior.precision)
            halved = float(np.linalg.slogdet(root)[1].sum())  # -½ log |H|
            weight = posterior.value + 0.5 * dim * grid[place] + halved
            if place in (0, count):
                weight += math.log(0.5)  # the ends of the grid are half cells
            posteriors.append((weight, posterior.mean, root @ root.swapaxes(-2, -1)))
            if weight < max(largest for largest, _, _ in posteriors) + math.log(LEAST):
                break
    return _mixed(posteriors) if posteriors else None


def _mixed(posteriors: list[tuple[float, Vector, Matrix]]) -> Mixed:
    largest = max(weight for weight, _, _ in posteriors)
    shares = np.array([math.exp(weight - largest) for weight, _, _ in posteriors])
    shares /= shares.sum()
    mean = sum(share * centre for share, (_, centre, _) in zip(shares, posteriors, strict=True))
    # Ignore the weak dependence between blocks that is caused by λ.
    covariance = sum(
        share * (inverse + outer(centre - mean))
        for share, (_, centre, inverse) in zip(shares, posteriors, strict=True)
    )
    return Mixed(np.asarray(mean), np.asarray(covariance))
