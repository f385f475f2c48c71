"""Gaussian rewards: the posterior in closed form, from the moments."""

from __future__ import annotations

import warnings
from dataclasses import dataclass

import numpy as np

from belated.estimators.empirical import fitted_ridge
from belated.estimators.estimate import Estimate, warn_of_scale
from belated.exceptions import ConvergenceWarning, InvalidInput
from belated.families import Family, Gaussian
from belated.inputs import Matrix, Vector
from belated.kernels.lapack import dposv
from belated.models import root_of
from belated.priors import Prior
from belated.statistics import Moments, Seen

#: Directions of the posterior further apart than this are lost to rounding.
CONDITION = 1e12
#: An estimated variance is at least this share of the rewards' mean square.
LEAST_VARIANCE = 1e-9


@dataclass(frozen=True)
class Ridge:
    """The exact posterior of Gaussian rewards; a fit costs O(d³) however many there are.

    A variance to be estimated is the residual sum of squares over the degrees of freedom left,
    n - tr(H⁻¹ Σ x xᵀ/φ), iterated to its fixed point. Until n exceeds d it is the mean square of
    the rewards, and 1 as long as all of them are zero.

    >>> moments = Moments.of([[1.0], [1.0]], [1.0, 3.0])
    >>> estimate = Ridge().fit(moments, family=Gaussian(), prior=Prior.ridge(1))
    >>> estimate.theta.round(4), estimate.precision
    (array([1.3333]), array([[3.]]))
    """

    def next_fit(self, n: int) -> float:
        """Rank-one steps are exact; what they do not estimate, a variance or a prior, can wait."""
        return n + 1 if n < 50 else 1.05 * n

    def fit(
        self,
        data: Moments | Seen,
        *,
        family: Family,
        prior: Prior,
        start: Vector | None = None,
        polish: bool = True,
    ) -> Estimate:
        """The posterior given these moments."""
        if not isinstance(family, Gaussian):
            raise InvalidInput(f"Ridge is for Gaussian rewards: use Laplace for {family}", family)
        moments = data if isinstance(data, Moments) else data.moments()
        if moments.dim != prior.dim:
            raise InvalidInput(f"rows of {moments.dim} and a prior of {prior.dim} numbers", data)
        warn_of_scale(moments.n, moments.gram.trace() / max(moments.n, 1), prior)
        dispersion = family.dispersion or _first_guess(moments)
        iterations, converged = 0, False
        while not converged and iterations < 200:
            iterations += 1
            if prior.adaptive and moments.n >= 5:
                # cross/φ = H θ̂ whatever the ridge: the scalar fixed point is exact at once.
                ridge = fitted_ridge(moments.gram / dispersion, moments.cross / dispersion)
                prior = prior.with_ridge(ridge)
            theta, precision = _solve(moments, prior, dispersion)
            before = dispersion
            if family.dispersion is None and moments.n > moments.dim and moments.square > 0.0:
                dispersion = _variance(moments, prior, theta, precision)
            converged = abs(dispersion - before) <= 1e-12 * before
        theta, precision = _solve(moments, prior, dispersion)
        values = np.linalg.eigvalsh(precision)
        converged = converged and values[0] * CONDITION >= values[-1]
        if not converged:
            warnings.warn(
                "rows differ so much in length that the moments of the short ones are lost in"
                " those of the long: scale the features",
                ConvergenceWarning,
                stacklevel=2,
            )
        return Estimate(
            theta, theta, precision, moments.n, converged, iterations, prior, dispersion
        )


def _solve(moments: Moments, prior: Prior, dispersion: float) -> tuple[Vector, Matrix]:
    precision = prior.precision + moments.gram / dispersion
    right = prior.precision @ prior.mean + moments.cross / dispersion
    _, theta, failed = dposv(precision, right)
    if failed:  # rounding: a direction of the prior is lost beside the data
        root = root_of(precision)
        theta = root @ (right @ root)
    return theta, precision


def _first_guess(moments: Moments) -> float:
    mean_square = moments.square / moments.n if moments.n else 0.0
    return mean_square if mean_square > 0.0 else 1.0


def _variance(moments: Moments, prior: Prior, theta: Vector, precision: Matrix) -> float:
    residual = moments.square - 2.0 * theta @ moments.cross + theta @ moments.gram @ theta
    root = root_of(precision)
    used = moments.dim - float(np.vdot(root, prior.precision @ root))
    least = LEAST_VARIANCE * _first_guess(moments)
    return max(float(residual) / (moments.n - used), least)
