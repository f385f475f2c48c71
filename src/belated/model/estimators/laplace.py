"""The Laplace approximation for any family: the posterior's maximum by Newton's method."""

from __future__ import annotations

import math
import warnings
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from belated.core.inputs import Matrix, Vector
from belated.exceptions import ConvergenceWarning, InvalidInput
from belated.model.blocks import (
    Shape,
    add_gram,
    cross,
    predictors,
    product,
    root_of,
    solve,
    solved,
    spread,
)
from belated.model.estimators.empirical import fitted_ridge, ridge_is_near, spectrum_of
from belated.model.estimators.estimate import Estimate, next_fit
from belated.model.estimators.integrated import GivenPrecision, integrated
from belated.model.estimators.ridge import Ridge, gaussian_posterior
from belated.model.estimators.weighted import is_weighted
from belated.model.families import Family, Gaussian
from belated.model.priors import Prior
from belated.model.statistics import Quadratic, Seen
from belated.model.statistics.observations import CHUNK

#: Newton decrement at which a fit ends.
TOLERANCE = 1e-8
#: Newton decrement at which an unpolished fit ends. The remaining error is quadratic in the size of
#: the last step, and smaller than the errors of the rank-one steps that follow.
ENOUGH = 1e-4
#: Newton decrement below which a step is accepted without checking that the posterior increases,
#: because rounding errors would hide the increase.
TRUSTED = 1e-4
#: Maximum number of updates of an adaptive prior's precision; two or three usually suffice.
MAX_PRIORS = 50
#: For :func:`fit_rows`: maximum number of steps, largest step of a linear predictor, and the step
#: below which the fit ends.
STEPS, LONGEST, SHORTEST = 25, 4.0, 1e-8
#: Relative tolerance of an adaptive prior's precision in an unpolished fit.
NEAR = 0.02


@dataclass(frozen=True)
class Laplace:
    """Damped Newton's method over all observations, starting from the last fit.

    The estimate depends only on the set of observations, to about 1e-8 posterior standard
    deviations, and not on their order or the starting point. Frozen rows contribute through their
    quadratic approximation. It has no third derivatives, so they do not contribute to the
    correction of the mean. If the prior's precision is estimated, mean and covariance are
    integrated over it (:mod:`~belated.model.estimators.integrated`).

    Args:
        growth: fit again when the information from rewards and the prior has grown by this factor;
            1 means after every arrival.
        mean_correction: correct the mean for the skewness of the posterior, using third
            derivatives. This helps if the prior is weak and there are few observations.
        max_iterations: number of passes after which a fit gives up with a warning.

    >>> from belated import Bernoulli
    >>> from belated.model.statistics import Observations
    >>> seen = Observations(1)
    >>> handles = seen.extend([[1.0], [1.0], [1.0]], [1.0, 1.0, 0.0])
    >>> estimate = Laplace().fit(seen, family=Bernoulli(), prior=Prior.ridge(1))
    >>> estimate.theta.round(4), estimate.converged
    (array([0.2865]), True)
    """

    growth: float = 1.05
    mean_correction: bool = False
    max_iterations: int = 25

    def next_fit(self, n: int, shape: Shape) -> float:
        """Return the number of rewards at which the information has grown by ``growth``."""
        return next_fit(n, shape, self.growth)

    def fit(
        self,
        data: Seen,
        *,
        family: Family,
        prior: Prior,
        start: Vector | None = None,
        polish: bool = True,
    ) -> Estimate:
        """Return the estimate from observations.

        Args:
            data: the observations.
            family: family of the rewards.
            prior: prior of θ.
            start: starting point.
            polish: iterate until the estimate and its precision depend only on the set of
                observations. Otherwise the precision is computed one step before θ̂, at a distance
                of at most 1e-2 posterior standard deviations (1e-4 with a fit at every arrival),
                and the uncertainty of an estimated prior is ignored.
        """
        check_shape(data, prior)
        if isinstance(family, Gaussian):
            if polish:
                return Ridge().fit(data, family=family, prior=prior)
            return gaussian_posterior(data.moments(), family, prior)
        tolerance = TOLERANCE if polish or self.growth == 1.0 else ENOUGH
        dispersion = family.dispersion or 1.0
        newton = self._newton(data, family, dispersion, tolerance, polish)
        theta = np.array(prior.mean if start is None else start, dtype=np.float64)
        theta, precision, converged = newton.solve(theta, prior)
        if not converged and start is not None:  # try again from the prior mean
            theta, precision, converged = newton.solve(prior.mean, prior)
        adapts = prior.adaptive and data.n >= 5
        # The next fit continues from this prior, so unpolished fits need not converge fully.
        near = 1e-10 if polish else NEAR
        for _ in range(MAX_PRIORS if adapts and converged else 0):
            before = prior.strength
            if not polish and ridge_is_near(newton.root, theta, prior, near):
                break
            # The quadratic approximation of the log-likelihood around θ̂ has the score H θ̂ at 0.
            spectrum = spectrum_of(precision - prior.precision, product(precision, theta))
            ridge = fitted_ridge(*spectrum, 0.0 if polish else 0.1 * near, prior.others)
            if abs(ridge - before) <= near * before:
                break
            prior = prior.with_ridge(ridge)
            theta, precision, converged = newton.solve(theta, prior)
            if not converged:
                break
        if not converged:
            warnings.warn(
                f"no convergence after {newton.passes} passes: the posterior is nearly flat or"
                " very skewed. Scale the features, or use a larger ridge",
                ConvergenceWarning,
                stacklevel=2,
            )
        mean = newton.corrected(theta, precision) if self.mean_correction else theta
        passes = newton.passes
        trace = float(np.vdot(newton.root, newton.root))
        estimate = Estimate(
            theta, mean, precision, data.n, converged, passes, prior, dispersion, trace=trace
        )
        return self._unsure(estimate, newton) if polish and adapts and converged else estimate

    def _newton(
        self, data: Seen, family: Family, dispersion: float, tolerance: float, polish: bool
    ) -> Newton:
        return Newton(data, family, dispersion, self.max_iterations, tolerance, polish)

    def _unsure(self, estimate: Estimate, newton: Newton) -> Estimate:
        """Return an estimate that includes the uncertainty of the prior's precision."""
        start = estimate.theta

        def given(ridge: float) -> GivenPrecision | None:
            nonlocal start
            theta, precision, converged = newton.solve(start, estimate.prior.with_ridge(ridge))
            if not converged:
                return None
            start = theta
            mean = newton.corrected(theta, precision) if self.mean_correction else theta
            return GivenPrecision(mean, precision, newton.value)

        return estimate.over(integrated(given, estimate.prior.strength, estimate.theta.size))


def newton_step(total: Quadratic, *, family: Family, prior: Prior) -> Estimate:
    """Return the maximum of the posterior for a quadratic log-likelihood.

    Each partition expands its log-likelihood at a common θ₀, the last published estimate. The
    maximum of the sum of these quadratics is one Newton step from θ₀. This is as good as a fit of
    all rows if the estimate has not moved far. An adaptive ridge is estimated from the sum.

    Args:
        total: the sum of the partitions' quadratics.
        family: family of the rewards.
        prior: prior of θ, which counts only once, not once per partition.

    >>> import numpy as np
    >>> from belated import Bernoulli
    >>> from belated.model.statistics import Observations, quadratic_at
    >>> left, right = Observations(1), Observations(1)
    >>> handles = left.extend([[1.0]], [1.0]), right.extend([[1.0], [1.0]], [1.0, 0.0])
    >>> start = np.array([0.25])  # the last published estimate
    >>> parts = [quadratic_at(part, Bernoulli(), start) for part in (left, right)]
    >>> newton_step(parts[0] + parts[1], family=Bernoulli(), prior=Prior.ridge(1)).theta.round(4)
    array([0.2864])
    """
    if total.pull.shape != prior.mean.shape:
        message = f"the sums have {total.dim} coefficients, but the prior has {prior.dim}"
        raise InvalidInput(f"{message}: pass a prior of the same size", total)
    dispersion = family.dispersion or 1.0
    information, pull = total.information / dispersion, total.pull / dispersion
    if prior.adaptive and total.n >= 5:
        prior = prior.with_ridge(fitted_ridge(*spectrum_of(information, pull)))
    precision = prior.precision + information
    theta = solve(precision, pull + product(prior.precision, prior.mean))
    return Estimate(theta, theta, precision, total.n, True, 1, prior, dispersion)


class Newton:
    """Newton's method for one set of observations."""

    def __init__(
        self,
        data: Seen,
        family: Family,
        dispersion: float,
        max_iterations: int,
        tolerance: float,
        polish: bool,
    ) -> None:
        self.data = data
        self.frozen = data.frozen
        self.family = family
        self.dispersion = dispersion
        self.passes = 0
        self.value = -math.inf  # maximum of the last log posterior
        self.root: Matrix = np.empty(0)  # root of the inverse precision in the last step
        self._left = max_iterations
        self._tolerance = tolerance
        self._polish = polish
        self._size = max(64, CHUNK // data.shape[-1])

    def solve(self, theta: Vector, prior: Prior) -> tuple[Vector, Matrix, bool]:
        """Return the posterior maximum, the precision there, and whether the method converged."""
        value, gradient, precision = self._posterior(theta, prior)
        for _ in range(self._left):
            if value == -math.inf or not np.isfinite(precision).all():
                break
            self.root = root_of(precision)
            step = solved(self.root, gradient)
            decrement = float(np.vdot(gradient, step))
            if decrement <= self._tolerance:
                theta, self.value = theta + step, value + 0.5 * decrement
                if self._polish and decrement > TOLERANCE**2:
                    _, _, precision = self._posterior(theta, prior)
                return theta, precision, True
            length = 1.0
            while True:
                trial = theta + length * step
                posterior = self._posterior(trial, prior)
                if decrement <= TRUSTED or posterior[0] >= value + 1e-4 * length * decrement:
                    break
                length *= 0.5
                if length < 1e-10:
                    return theta, precision, False
            theta, (value, gradient, precision) = trial, posterior
        return theta, precision, False

    def _posterior(self, theta: Vector, prior: Prior) -> tuple[float, Vector, Matrix]:
        """Return the log posterior, its gradient, and its negative second derivative."""
        self.passes += 1
        deviation = theta - prior.mean
        pull = product(prior.precision, deviation)
        value = 0.0
        score = np.zeros(theta.shape)
        information = np.zeros_like(prior.precision)
        # A distant trial may overflow; its value is then -inf and it is rejected.
        with np.errstate(over="ignore", invalid="ignore"):
            for rows, y, counted in self.data.chunks(self._size):
                terms, residual, slope = self._terms(predictors(rows, theta), y, counted)
                value += float(terms.sum())
                score += cross(residual, rows, theta.shape)
                numbers = rows[:, -theta.shape[-1] :]
                np.multiply(numbers, np.sqrt(slope)[:, None], out=numbers)  # chunks are copies
                add_gram(information, rows)
        if (frozen := self.frozen) is not None:
            value += frozen.value(theta)
            score += frozen.score(theta)
            information += frozen.information
        value = value / self.dispersion - 0.5 * float(np.vdot(deviation, pull))
        if not math.isfinite(value):
            value = -math.inf
        information /= self.dispersion  # in place, because copies of wide blocks are large
        information += prior.precision
        return value, score / self.dispersion - pull, information

    def _terms(
        self, eta: Vector, y: Vector, counted: NDArray[Any] | None
    ) -> tuple[Vector, Vector, Vector]:
        """Return the log-likelihood of each row, its derivative, and its information about η."""
        cumulant, mean, slope = self.family.cumulant_mean_slope(eta)
        value, residual = y * eta - cumulant, y - mean
        if is_weighted(counted):
            return counted * value, counted * residual, counted * slope
        return value, residual, slope

    def corrected(self, theta: Vector, precision: Matrix) -> Vector:
        """Return the posterior mean to third order: θ̂ - ½ H⁻¹ Σ g''(η) (xᵀH⁻¹x) x/φ."""
        root = root_of(precision)
        skew = np.zeros(theta.shape)
        for rows, _, counted in self.data.chunks(self._size):
            wide = spread(rows, root)
            curvature = self.family.curvature(predictors(rows, theta)) * np.vecdot(wide, wide)
            skew += cross(
                counted * curvature if is_weighted(counted) else curvature, rows, theta.shape
            )
        return theta - 0.5 * solve(precision, skew) / self.dispersion


def check_shape(data: Any, prior: Prior) -> None:
    """Raise InvalidInput if rows and prior have different shapes."""
    if data.shape != prior.mean.shape:
        message = f"rows are for coefficients of shape {data.shape}, but the prior has shape"
        raise InvalidInput(f"{message} {prior.mean.shape}: pass a prior of the same shape", data)


def fit_rows(
    rows: Matrix,
    outcome: Vector,
    weight: Vector,
    family: Family,
    ridge: float = 1.0,
    offset: float = 0.0,
) -> Vector:
    """Fit weighted rows that are in memory; return only the coefficients.

    Args:
        rows: one row for each outcome.
        outcome: the rewards.
        weight: weight of each reward.
        family: family of the rewards.
        ridge: prior precision of each coefficient.
        offset: constant to add to each linear predictor.
    """
    theta = np.zeros(rows.shape[1])
    prior = ridge * np.eye(len(theta))
    for _ in range(STEPS):
        _, mean, slope = family.cumulant_mean_slope(offset + rows @ theta)
        score = rows.T @ (weight * (outcome - mean)) - ridge * theta
        step = np.linalg.solve((rows.T * (weight * slope)) @ rows + prior, score)
        moved = float(np.abs(rows @ step).max(initial=0.0)) if family.number else 0.0
        theta = theta + step * min(1.0, LONGEST / max(moved, LONGEST))
        if moved < SHORTEST:
            break
    return theta
