"""The closed-form posterior of Gaussian rewards, computed from their moments."""

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

#: Condition number of the precision beyond which directions are lost to rounding.
CONDITION = 1e12
#: The smallest estimated variance, as a fraction of the rewards' mean square.
LEAST_VARIANCE = 1e-9
#: Relative tolerance of the variance, for polished and for unpolished fits.
EXACT, NEAR = 1e-12, 1e-3


@dataclass(frozen=True)
class Ridge:
    r"""The exact posterior of Gaussian rewards; a fit costs O(d³) for any number of rewards.

    If the variance is estimated, it is

    .. math:: \hat\varphi = \frac{\sum (y - x^\top\hat\theta)^2 + \frac dn \overline{y^2}}
        {n - \operatorname{tr}(H^{-1} \sum x x^\top/\varphi) + \frac dn},

    the residual sum of squares divided by the remaining degrees of freedom, with d/n additional
    rewards that have the same mean square as the observed ones. The additional rewards prevent a
    few rewards, or equal rewards, from looking noiseless, and soon become negligible. While all
    rewards are zero, the variance is 1. A ridge then applies to θ/√φ, so the estimate does not
    depend on the unit of rewards.

    >>> moments = Moments.of([[1.0], [1.0]], [1.0, 3.0])
    >>> estimate = Ridge().fit(moments, family=Gaussian(1.0), prior=Prior.ridge(1))
    >>> estimate.theta.round(4), estimate.precision
    (array([1.3333]), array([[3.]]))
    """

    def next_fit(self, n: int, shape: Shape) -> float:
        """Return the number of rewards at which the next fit is due.

        Rank-one steps are exact, so only an estimated variance or prior needs a new fit.
        """
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
        """Return the posterior given the moments.

        Args:
            data: the moments, or observations to compute them from.
            family: family of the rewards.
            prior: prior of θ.
            start: ignored.
            polish: iterate until the variance depends only on the set of observations. Otherwise
                the variance is accurate to a thousandth, and the uncertainty of an estimated prior
                is ignored.
        """
        if not isinstance(family, Gaussian):
            raise InvalidInput(f"Ridge is for Gaussian rewards: use Laplace for {family}", family)
        moments = data if isinstance(data, Moments) else data.moments()
        if moments.cross.shape != prior.mean.shape:
            message = f"rows are for {moments.dim} coefficients, but the prior has {prior.dim}"
            raise InvalidInput(f"{message}: pass a prior of the same size", data)
        if not polish:
            return gaussian_posterior(moments, family, prior, NEAR)
        estimate = gaussian_posterior(moments, family, prior)
        return _unsure(estimate, moments, family) if prior.adaptive and moments.n >= 5 else estimate


def gaussian_posterior(
    moments: Moments, family: Gaussian, prior: Prior, near: float = EXACT
) -> Estimate:
    """Return the posterior, ignoring the uncertainty of an estimated prior.

    Args:
        moments: moments of rows and rewards.
        family: family of the rewards.
        prior: prior of θ.
        near: relative tolerance of an estimated variance.
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
            # cross/φ = H θ̂ for any ridge, so solving the scalar fixed point is exact.
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
            "rows differ so much in norm that the smallest ones are lost to rounding: scale the"
            " features",
            ConvergenceWarning,
            stacklevel=3,
        )
    return Estimate(theta, theta, precision, moments.n, converged, iterations, prior, dispersion)


def _unsure(estimate: Estimate, moments: Moments, family: Gaussian) -> Estimate:
    """Return an estimate that includes the uncertainty of the prior's precision."""
    dispersion = estimate.dispersion
    relative = family.dispersion is None and estimate.prior.is_ridge
    unit = dispersion if relative else 1.0

    def given(ridge: float) -> GivenPrecision:
        theta, precision = _solve(moments, estimate.prior.with_ridge(ridge), unit, dispersion)
        # At its maximum, the log posterior is half the inner product of θ and the score at zero.
        return GivenPrecision(
            theta, precision, 0.5 * float(np.vdot(theta, moments.cross)) / dispersion
        )

    return estimate.over(integrated(given, estimate.prior.strength, moments.dim))


def _solve(moments: Moments, prior: Prior, unit: float, dispersion: float) -> tuple[Vector, Matrix]:
    """Return θ̂ and its precision; the prior applies to θ/√unit."""
    precision = prior.precision / unit + moments.gram / dispersion
    right = product(prior.precision, prior.mean) / unit + moments.cross / dispersion
    return solve(precision, right), precision


def _further(trail: list[float], value: float) -> float:
    """Extrapolate a sequence after every third step (Aitken's delta-squared method).

    This is needed because the joint iteration of the ridge and φ converges slowly.
    """
    trail.append(math.log(value))
    if len(trail) < 3:
        return value
    first, second, third = trail
    trail.clear()
    before, last = second - first, third - second
    if not 0.0 < last / (before or math.inf) < 1.0:  # not a slow geometric convergence
        return value
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
