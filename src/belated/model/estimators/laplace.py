"""Any family: the maximum of the posterior by Newton's method, and the normal fitted there."""

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

#: A step is the last once it gains less than this in units of the posterior (its decrement).
TOLERANCE = 1e-8
#: The same of a fit that single steps will follow, which are off by more: what is left after a
#: step is the square of its size.
ENOUGH = 1e-4
#: Below this a step is taken unseen: the gain could not be told from rounding.
TRUSTED = 1e-4
#: How often the precision of an adaptive prior is looked at again; two or three times suffice.
MAX_PRIORS = 50
#: Of :func:`fit_rows`: steps, the longest step on the linear predictor, and the last.
STEPS, LONGEST, SHORTEST = 25, 4.0, 1e-8
#: By how much, relatively, the prior of a fit that is not polished may be off.
NEAR = 0.02


@dataclass(frozen=True)
class Laplace:
    """Damped Newton over all observations, from wherever the last fit ended.

    The estimate is a function of the set of observations, to about 1e-8 posterior standard
    deviations, whatever their order and the start. Rows that are frozen count as the quadratic
    they were frozen as; they have no third derivatives, so a corrected mean is without theirs.
    If the prior's precision is estimated, mean and covariance are over all that it may be
    (:mod:`~belated.model.estimators.integrated`).

    Args:
        growth: fit again once what is known has grown by this factor: rewards, and what the prior
            is worth. 1 is at every arrival.
        mean_correction: correct the mean for the skewness of the posterior, by its third
            derivatives; worth it where the prior is weak and observations are few.
        max_iterations: passes before a fit gives up with a warning.

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
        """Whenever what is known has grown enough."""
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
        """The estimate of these observations.

        Args:
            data: the observations.
            family: of the rewards.
            prior: of θ.
            start: where to begin.
            polish: go on until the estimate and its precision are functions of the set alone;
                without it θ̂ is one step further than the point its precision is of, which is
                within 1e-2 posterior deviations (1e-4 if every arrival is fitted), and an
                estimated prior is taken for granted.
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
        if not converged and start is not None:  # the start was a bad one
            theta, precision, converged = newton.solve(prior.mean, prior)
        adapts = prior.adaptive and data.n >= 5
        # The next fit goes on from this one's prior: until then, near enough will do.
        near = 1e-10 if polish else NEAR
        for _ in range(MAX_PRIORS if adapts and converged else 0):
            before = prior.strength
            if not polish and ridge_is_near(newton.root, theta, prior, near):
                break
            # The log-likelihood as a quadratic around θ̂: its pull is H θ̂.
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
        found = Estimate(
            theta, mean, precision, data.n, converged, passes, prior, dispersion, trace=trace
        )
        return self._unsure(found, newton) if polish and adapts and converged else found

    def _newton(
        self, data: Seen, family: Family, dispersion: float, tolerance: float, polish: bool
    ) -> Newton:
        return Newton(data, family, dispersion, self.max_iterations, tolerance, polish)

    def _unsure(self, found: Estimate, newton: Newton) -> Estimate:
        """The same estimate, with what is not known of the prior's precision."""
        start = found.theta

        def given(ridge: float) -> GivenPrecision | None:
            nonlocal start
            theta, precision, converged = newton.solve(start, found.prior.with_ridge(ridge))
            if not converged:
                return None
            start = theta
            mean = newton.corrected(theta, precision) if self.mean_correction else theta
            return GivenPrecision(mean, precision, newton.value)

        return found.over(integrated(given, found.prior.strength, found.theta.size))


def newton_step(total: Quadratic, *, family: Family, prior: Prior) -> Estimate:
    """Return the maximum of the posterior of a quadratic log-likelihood.

    Each partition takes its quadratic at one θ₀ that all know, the last one published. They add,
    and the maximum of their sum is one Newton step from θ₀: as good as a fit of all rows, if the
    estimate has not moved far. An adaptive ridge is estimated from the sum: it does not add.

    Args:
        total: the sum of the partitions.
        family: of the rewards.
        prior: of θ; it counts once, not once for each partition.

    >>> import numpy as np
    >>> from belated import Bernoulli
    >>> from belated.model.statistics import Observations, quadratic_at
    >>> left, right = Observations(1), Observations(1)
    >>> handles = left.extend([[1.0]], [1.0]), right.extend([[1.0], [1.0]], [1.0, 0.0])
    >>> start = np.array([0.25])  # what was published last
    >>> parts = [quadratic_at(one, Bernoulli(), start) for one in (left, right)]
    >>> newton_step(parts[0] + parts[1], family=Bernoulli(), prior=Prior.ridge(1)).theta.round(4)
    array([0.2864])
    """
    if total.pull.shape != prior.mean.shape:
        raise InvalidInput(f"sums of {total.dim} and a prior of {prior.dim} numbers", total)
    dispersion = family.dispersion or 1.0
    information, pull = total.information / dispersion, total.pull / dispersion
    if prior.adaptive and total.n >= 5:
        prior = prior.with_ridge(fitted_ridge(*spectrum_of(information, pull)))
    precision = prior.precision + information
    theta = solve(precision, pull + product(prior.precision, prior.mean))
    return Estimate(theta, theta, precision, total.n, True, 1, prior, dispersion)


class Newton:
    """Newton's method on one set of observations."""

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
        self.value = -math.inf  # of the posterior that was solved last
        self.root: Matrix = np.empty(0)  # of the precision that the last step was made with
        self._left = max_iterations
        self._tolerance = tolerance
        self._polish = polish
        self._size = max(64, CHUNK // data.shape[-1])

    def solve(self, theta: Vector, prior: Prior) -> tuple[Vector, Matrix, bool]:
        """The maximum of the posterior, the precision there, and whether it was reached."""
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
                found = self._posterior(trial, prior)
                if decrement <= TRUSTED or found[0] >= value + 1e-4 * length * decrement:
                    break
                length *= 0.5
                if length < 1e-10:
                    return theta, precision, False
            theta, (value, gradient, precision) = trial, found
        return theta, precision, False

    def _posterior(self, theta: Vector, prior: Prior) -> tuple[float, Vector, Matrix]:
        """Log posterior, its gradient, and minus its second derivative."""
        self.passes += 1
        away = theta - prior.mean
        pull = product(prior.precision, away)
        value = 0.0
        score = np.zeros(theta.shape)
        information = np.zeros_like(prior.precision)
        # A trial far off may overflow; its value is then -inf and it is refused.
        with np.errstate(over="ignore", invalid="ignore"):
            for rows, y, counted in self.data.chunks(self._size):
                each, residual, slope = self._terms(predictors(rows, theta), y, counted)
                value += float(each.sum())
                score += cross(residual, rows, theta.shape)
                numbers = rows[:, -theta.shape[-1] :]
                np.multiply(numbers, np.sqrt(slope)[:, None], out=numbers)  # the buffer is ours
                add_gram(information, rows)
        if (frozen := self.frozen) is not None:
            value += frozen.value(theta)
            score += frozen.score(theta)
            information += frozen.information
        value = value / self.dispersion - 0.5 * float(np.vdot(away, pull))
        if not math.isfinite(value):
            value = -math.inf
        information /= self.dispersion  # in place: where blocks are wide, a copy is large
        information += prior.precision
        return value, score / self.dispersion - pull, information

    def _terms(
        self, eta: Vector, y: Vector, counted: NDArray[Any] | None
    ) -> tuple[Vector, Vector, Vector]:
        """Log-likelihood, its derivative by η, and the information about η, of each row."""
        cumulant, mean, slope = self.family.cumulant_mean_slope(eta)
        value, residual = y * eta - cumulant, y - mean
        if is_weighted(counted):
            return counted * value, counted * residual, counted * slope
        return value, residual, slope

    def corrected(self, theta: Vector, precision: Matrix) -> Vector:
        """The posterior mean to third order: θ̂ - ½ H⁻¹ Σ g''(η) (xᵀH⁻¹x) x/φ."""
        root = root_of(precision)
        skew = np.zeros(theta.shape)
        for rows, _, counted in self.data.chunks(self._size):
            wide = spread(rows, root)
            each = self.family.curvature(predictors(rows, theta)) * np.vecdot(wide, wide)
            skew += cross(counted * each if is_weighted(counted) else each, rows, theta.shape)
        return theta - 0.5 * solve(precision, skew) / self.dispersion


def check_shape(data: Any, prior: Prior) -> None:
    """Refuse rows that do not go with a prior."""
    if data.shape != prior.mean.shape:
        message = f"rows for coefficients of shape {data.shape}, and a prior of"
        raise InvalidInput(f"{message} {prior.mean.shape}", data)


def fit_rows(
    rows: Matrix,
    outcome: Vector,
    weight: Vector,
    family: Family,
    ridge: float = 1.0,
    offset: float = 0.0,
) -> Vector:
    """Return the coefficients of a weighted fit of rows in memory, without their precision.

    Args:
        rows: one for each outcome.
        outcome: rewards.
        weight: of each.
        family: of the rewards.
        ridge: prior precision of each coefficient.
        offset: added to each linear predictor.
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
