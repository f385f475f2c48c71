"""Gaussian rewards: the posterior in closed form, from the moments."""

from __future__ import annotations

import math
import warnings
from dataclasses import dataclass

import numpy as np

from belated.core.inputs import Matrix, Vector
from belated.exceptions import ConvergenceWarning, InvalidInput
from belated.model.blocks import Shape, product, root_of, solve
from belated.model.estimators.empirical import fitted_ridge, spectrum_of
from belated.model.estimators.estimate import Estimate, next_fit
from belated.model.estimators.integrated import GivenPrecision, integrated
from belated.model.families import Family, Gaussian
from belated.model.priors import Prior
from belated.model.statistics import Moments, Seen

#: Directions of the posterior further apart than this are lost to rounding.
CONDITION = 1e12
#: An estimated variance is at least this share of the rewards' mean square.
LEAST_VARIANCE = 1e-9
#: By how much, relatively, the variance of a fit may still move; and of one that is not polished.
EXACT, NEAR = 1e-12, 1e-3


@dataclass(frozen=True)
class Ridge:
    r"""The exact posterior of Gaussian rewards; a fit costs O(d³) however many there are.

    A variance to be estimated is

    .. math:: \hat\varphi = \frac{\sum (y - x^\top\hat\theta)^2 + \frac dn \overline{y^2}}
        {n - \operatorname{tr}(H^{-1} \sum x x^\top/\varphi) + \frac dn},

    the residual sum of squares over the degrees of freedom left, as if d/n further rewards had come
    whose squares were like all others'. They keep few rewards, or equal ones, from looking like
    rewards without noise, and soon count for nothing. As long as all rewards are zero it is 1. A
    ridge is then of θ/√φ, so rewards in another unit give the same estimate in that unit.

    >>> moments = Moments.of([[1.0], [1.0]], [1.0, 3.0])
    >>> estimate = Ridge().fit(moments, family=Gaussian(1.0), prior=Prior.ridge(1))
    >>> estimate.theta.round(4), estimate.precision
    (array([1.3333]), array([[3.]]))
    """

    def next_fit(self, n: int, shape: Shape) -> float:
        """Rank-one steps are exact; what they do not estimate, a variance or a prior, can wait."""
        return next_fit(n, shape, 1.05)

    def fit(
        self,
        data: Moments | Seen,
        *,
        family: Family,
        prior: Prior,
        start: Vector | None = None,
        polish: bool = True,
    ) -> Estimate:
        """The posterior given these moments.

        Args:
            data: the moments, or what to make them of.
            family: of the rewards.
            prior: of θ.
            start: of no use here.
            polish: go on until the variance is a function of the set alone; without it, it may
                still move by a thousandth, and an estimated prior is taken for granted.
        """
        if not isinstance(family, Gaussian):
            raise InvalidInput(f"Ridge is for Gaussian rewards: use Laplace for {family}", family)
        moments = data if isinstance(data, Moments) else data.moments()
        if moments.cross.shape != prior.mean.shape:
            raise InvalidInput(f"rows of {moments.dim} and a prior of {prior.dim} numbers", data)
        if not polish:
            return gaussian_posterior(moments, family, prior, NEAR)
        found = gaussian_posterior(moments, family, prior)
        return _unsure(found, moments, family) if prior.adaptive and moments.n >= 5 else found


def gaussian_posterior(
    moments: Moments, family: Gaussian, prior: Prior, near: float = EXACT
) -> Estimate:
    """Return the posterior, an estimated prior taken for granted.

    Args:
        moments: of rows and rewards.
        family: of the rewards.
        prior: of θ.
        near: by how much, relatively, an estimated variance may still move.
    """
    dispersion = family.dispersion or _first_guess(moments)
    relative = family.dispersion is None and prior.is_ridge
    unit = dispersion if relative else 1.0
    adapts = prior.adaptive and moments.n >= 5
    if adapts:
        values, squares = spectrum_of(moments.gram, moments.cross)
    iterations, converged = 0, False
    trail: list[float] = []
    while not converged and iterations < 200:
        iterations += 1
        if adapts:
            # cross/φ = H θ̂ whatever the ridge: the scalar fixed point is exact at once.
            scale = unit / dispersion
            ridge = fitted_ridge(values * scale, squares * (scale / dispersion))
            prior = prior.with_ridge(ridge)
        theta, precision = _solve(moments, prior, unit, dispersion)
        before = dispersion
        if family.dispersion is None and moments.square > 0.0:
            dispersion = _variance(moments, prior.precision / unit, theta, precision)
        converged = abs(dispersion - before) <= near * before
        if not converged:
            dispersion = _further(trail, dispersion)
        unit = dispersion if relative else 1.0
    theta, precision = _solve(moments, prior, unit, dispersion)
    spectrum = np.linalg.eigvalsh(precision)
    converged = converged and spectrum.min() * CONDITION >= spectrum.max()
    if not converged:
        warnings.warn(
            "rows differ so much in length that the moments of the short ones are lost in"
            " those of the long: scale the features",
            ConvergenceWarning,
            stacklevel=3,
        )
    return Estimate(theta, theta, precision, moments.n, converged, iterations, prior, dispersion)


def _unsure(found: Estimate, moments: Moments, family: Gaussian) -> Estimate:
    """The same estimate, with what is not known of the prior's precision."""
    dispersion = found.dispersion
    relative = family.dispersion is None and found.prior.is_ridge
    unit = dispersion if relative else 1.0

    def given(ridge: float) -> GivenPrecision:
        theta, precision = _solve(moments, found.prior.with_ridge(ridge), unit, dispersion)
        # At the maximum the posterior is half of what the rewards have pulled it by.
        return GivenPrecision(
            theta, precision, 0.5 * float(np.vdot(theta, moments.cross)) / dispersion
        )

    return found.over(integrated(given, found.prior.strength, moments.dim))


def _solve(moments: Moments, prior: Prior, unit: float, dispersion: float) -> tuple[Vector, Matrix]:
    """θ̂ and its precision; the prior is of θ/√unit."""
    precision = prior.precision / unit + moments.gram / dispersion
    right = product(prior.precision, prior.mean) / unit + moments.cross / dispersion
    return solve(precision, right), precision


def _further(trail: list[float], found: float) -> float:
    """Where a sequence seems to go, after every third step (Aitken): ridge and φ creep together."""
    trail.append(math.log(found))
    if len(trail) < 3:
        return found
    first, second, third = trail
    trail.clear()
    before, last = second - first, third - second
    if not 0.0 < last / (before or math.inf) < 1.0:  # it does not creep
        return found
    return math.exp(third + min(max(last**2 / (before - last), -1.0), 1.0))


def _first_guess(moments: Moments) -> float:
    mean_square = moments.square / moments.n if moments.n else 0.0
    return mean_square if mean_square > 0.0 else 1.0


def _variance(moments: Moments, prior: Matrix, theta: Vector, precision: Matrix) -> float:
    residual = moments.square - np.vdot(theta, 2.0 * moments.cross - product(moments.gram, theta))
    root = root_of(precision)
    used = moments.dim - float(np.vdot(root, prior @ root))
    guess, worth = _first_guess(moments), moments.dim / moments.n
    variance = (float(residual) + worth * guess) / (moments.n - used + worth)
    return max(variance, LEAST_VARIANCE * guess)
