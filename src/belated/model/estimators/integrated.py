r"""The posterior of θ where the prior's precision is not known either.

An estimated precision λ̂ is one of many that the rewards allow. Where few directions are known, and
effects are strong, it is often too large: it draws all others towards zero, and intervals that take
it for granted are too narrow. Here it is integrated out. Every order of magnitude within the range
of λ is equally likely beforehand, so that

.. math:: p(\lambda \mid y) \propto \lambda^{d/2}\, |H_\lambda|^{-1/2}
    \exp\Bigl(\ell(\theta_\lambda) - \frac\lambda2 \|\theta_\lambda\|^2\Bigr)

by Laplace's method. Means and covariances of θ given λ are mixed by it.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from belated.core.inputs import Matrix, Vector
from belated.model.blocks import outer, root_of
from belated.model.priors import AUTO_RANGE

#: The distance of neighbouring precisions, in logarithms, at most.
WIDEST = 0.6
#: What counts for less than this share of the likeliest precision is left out, and all beyond.
LEAST = 1e-3


class GivenPrecision(NamedTuple):
    """The posterior for one precision of the prior.

    Attributes:
        mean: of θ.
        precision: of θ.
        value: the logarithm of the posterior at its maximum, but for constants.
    """

    mean: Vector
    precision: Matrix
    value: float


class Mixed(NamedTuple):
    """The posterior over all precisions of the prior: its mean and covariance."""

    mean: Vector
    covariance: Matrix


def integrated(
    solve: Callable[[float], GivenPrecision | None], near: float, dim: int
) -> Mixed | None:
    """Mix the posteriors of all precisions by how likely each is.

    Args:
        solve: the posterior for a precision; None if it cannot be found.
        near: a likely precision, from which others are looked for.
        dim: how many coefficients there are.

    >>> def solve(ridge: float) -> GivenPrecision:  # one reward of 3 with variance 1
    ...     theta = 3.0 / (1.0 + ridge)
    ...     value = -0.5 * (3.0 - theta) ** 2 - 0.5 * ridge * theta**2
    ...     return GivenPrecision(np.array([theta]), np.array([[1.0 + ridge]]), value)
    >>> mixed = integrated(solve, 0.2, 1)
    >>> mixed.mean.round(2), mixed.covariance.round(2)
    (array([2.55]), array([[0.98]]))
    """
    low, high = (math.log(end) for end in AUTO_RANGE)
    # λ is known to about √(2/d) in logarithms, at best.
    count = math.ceil((high - low) / min(WIDEST, math.sqrt(2.0 / dim)))
    grid = np.linspace(low, high, count + 1)
    first = int(np.abs(grid - math.log(near)).argmin())
    found: list[tuple[float, Vector, Matrix]] = []
    for places in (range(first, count + 1), range(first - 1, -1, -1)):
        for place in places:
            given = solve(math.exp(grid[place]))
            if given is None:
                break
            root = root_of(given.precision)
            halved = float(np.linalg.slogdet(root)[1].sum())  # -½ log |H|
            weight = given.value + 0.5 * dim * grid[place] + halved
            if place in (0, count):
                weight += math.log(0.5)  # half a cell
            found.append((weight, given.mean, root @ root.swapaxes(-2, -1)))
            if weight < max(one[0] for one in found) + math.log(LEAST):
                break
    return _mixed(found) if found else None


def _mixed(found: list[tuple[float, Vector, Matrix]]) -> Mixed:
    largest = max(weight for weight, _, _ in found)
    shares = np.array([math.exp(weight - largest) for weight, _, _ in found])
    shares /= shares.sum()
    mean = sum(share * one for share, (_, one, _) in zip(shares, found, strict=True))
    # Between blocks λ makes coefficients depend on each other a little: that is left out.
    covariance = sum(
        share * (inverse + outer(one - mean))
        for share, (_, one, inverse) in zip(shares, found, strict=True)
    )
    return Mixed(np.asarray(mean), np.asarray(covariance))
