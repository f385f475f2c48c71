r"""Estimation from conversions only, where a missing reward means no conversion so far.

The expected reward of a decision by age e is F(e) g(xᵀθ), where F is the delay distribution
from :mod:`~belated.model.estimators.conversion_law`. With Bernoulli rewards, the estimate maximizes
the likelihood of that probability over all decisions, converted or not. Its score is
Σ ω (y - F g) x with ω = (1 - g)/(1 - F g), which stays bounded if conversions arrive earlier than
expected. For other rewards ω is 1.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from belated.core.inputs import Matrix, Row, Vector, must_be
from belated.model.blocks import Shape, add_gram, cross, inverse_of, outer, predictors
from belated.model.estimators.conversion_law import (
    EDGES,
    SHORTEST,
    SHRINKAGE,
    ConversionLaw,
    Conversions,
    age_counts,
    fitted_law,
)
from belated.model.estimators.estimate import WIDE, Estimate, next_fit
from belated.model.estimators.laplace import Laplace, Newton, check_shape
from belated.model.estimators.ridge import Ridge
from belated.model.estimators.weighted import Weighted, WeightedRows
from belated.model.families import Bernoulli, Family, Gaussian
from belated.model.priors import Prior
from belated.model.statistics import Seen

#: Newton decrement at which a polished fit ends.
EXACT = 1e-14
#: Up to this number of conversions, a fit follows every conversion.
FIRST = 30
#: Lower bound of probabilities and weights, in case an apparently impossible conversion arrives.
LEAST = 1e-9
#: Maximum number of updates of an estimated variance, and the relative tolerance of the updates.
VARIANCES, STEADY = 50, 1e-10


class DecidedRows(NamedTuple):
    """Decisions, with or without a conversion.

    Attributes:
        rows: the chosen rows, one per decision.
        y: value of the conversion; 0 if there is none.
        age: age of the decision, in units of the window.
        weight: weight of the decision; None if all decisions have full weight.
    """

    rows: Row
    y: Vector
    age: Vector
    weight: Vector | None = None

    def counted(self, each: Vector) -> Vector:
        """Multiply one number per decision by the decision's weight."""
        return each if self.weight is None else self.weight * each


@dataclass(frozen=True, eq=False)
class AgedDecisions:
    """The decisions of all partitions, and the delays of their conversions.

    Attributes:
        shape: shape of θ.
        parts: the decisions.
        conversions: the conversions that arrived within the window.
        tick: resolution of the clock, in units of the window.
    """

    shape: Shape
    parts: Sequence[DecidedRows]
    conversions: Conversions
    tick: float = SHORTEST

    @property
    def n(self) -> int:
        """Number of decisions that have converted or whose window has ended."""
        return sum(int(((part.y != 0.0) | (part.age >= 1.0)).sum()) for part in self.parts)

    @property
    def silent_ages(self) -> Vector:
        """Number of decisions without a conversion, by age; see :func:`age_counts`."""
        total = np.zeros(len(EDGES))
        for part in self.parts:
            silent = part.y == 0.0
            weight = None if part.weight is None else part.weight[silent]
            total += age_counts(part.age[silent], weight)
        return total


@dataclass(frozen=True, eq=False, repr=False)
class ThinnedEstimate(Estimate):
    """An estimate from conversions, and the delay distribution on which it is based."""

    law: ConversionLaw = field(kw_only=True)


@dataclass(frozen=True)
class Thinned:
    r"""Estimator for conversions; weights each decision by the share expected by its age.

    The score is that of a canonical family thinned by F, so decisions of the same age can be
    summed. The covariance is a sandwich estimate, because the variance of an outcome is
    F g (1 - F g) instead of F g'. It includes the uncertainty of F. With Gaussian and Poisson
    rewards a conversion has a value: its delay determines F, its value determines the mean, and the
    dispersion includes the spread of both. Weights apply to the likelihood, so a decision of weight
    ½ counts as half a decision, in the covariance too.

    Args:
        shrinkage: weight of the exponential distribution, as a number of conversions; see
            :func:`fitted_law`.
        growth: fit again when the information has grown by this factor.

    >>> rows = np.ones((4, 1), np.float32)
    >>> y, age = np.array([1.0, 0.0, 0.0, 0.0]), np.array([1.0, 1.0, 1.0, 0.0])
    >>> seen = Conversions(np.array([0.2]), np.array([0.0]), np.array([1.0]))
    >>> data = AgedDecisions((1,), [DecidedRows(rows, y, age)], seen)
    >>> estimate = Thinned().fit(data, family=Bernoulli(), prior=Prior.ridge(1))
    >>> estimate.theta.round(3), estimate.effective_n  # the last decision has no information yet
    (array([-0.287]), 3.0)
    """

    shrinkage: float = SHRINKAGE
    growth: float = 1.05

    def __post_init__(self) -> None:
        if not 0.0 < self.shrinkage < math.inf:
            raise must_be("shrinkage", "a finite number above 0", self.shrinkage)

    def next_fit(self, n: int, shape: Shape) -> float:
        """Return the number of known outcomes at which the next fit is due.

        The first fits follow every conversion; later fits wait until the information has grown.
        """
        always = n < FIRST and shape[-1] <= WIDE
        return n + 1 if always else next_fit(n, shape, self.growth)

    def law(self, data: AgedDecisions) -> ConversionLaw:
        """Return the delay distribution of the conversions."""
        seen, silent = data.conversions, data.silent_ages
        return fitted_law(seen, silent, tick=data.tick, shrinkage=self.shrinkage)

    def fit(
        self,
        data: AgedDecisions,
        *,
        family: Family,
        prior: Prior,
        start: Vector | None = None,
        polish: bool = True,
    ) -> ThinnedEstimate:
        """Estimate θ from decisions.

        Args:
            data: the decisions.
            family: family of the rewards.
            prior: prior of θ.
            start: starting point.
            polish: iterate until the estimate depends only on the set of decisions.
        """
        check_shape(data, prior)
        law = self.law(data)
        seen = [law.at(part.age) for part in data.parts]
        if isinstance(family, Gaussian) and family.dispersion is None:
            fit = _fitted_variance(data, seen, prior, polish)
        else:
            fit = _fitted(data, seen, family, prior, start, polish)
        return ThinnedEstimate(
            theta=fit.theta,
            mean=fit.mean,
            precision=_precision(data, seen, law, family, fit),
            n=data.n,
            converged=fit.converged,
            iterations=fit.iterations,
            prior=fit.prior,
            dispersion=fit.dispersion,
            doubt=fit.doubt,
            effective_n=_known(data, seen),
            law=law,
        )


def _known(data: AgedDecisions, seen: Sequence[Vector]) -> float:
    """Return Σ F, the effective number of decisions with a known outcome."""
    pairs = zip(data.parts, seen, strict=True)
    return float(sum(part.counted(share).sum() for part, share in pairs))


def thinned_weight(family: Family, share: Vector, mean: Vector) -> Vector:
    """Return ω, the weight of y - F g in the score.

    With Bernoulli rewards, ω turns the score into that of a likelihood, where the weighted residual
    of an early conversion is at most 1 - g.
    """
    if not isinstance(family, Bernoulli):
        return np.ones(len(mean))
    return (1.0 - mean) / np.maximum(1.0 - share * mean, LEAST)


class _ThinnedNewton(Newton):
    """Newton's method for P(y = 1) = F g; each row has its own weight and value of F."""

    def _terms(
        self, eta: Vector, y: Vector, counted: NDArray[Any] | None
    ) -> tuple[Vector, Vector, Vector]:
        assert counted is not None
        weight, share = counted.T
        cumulant, mean, slope = self.family.cumulant_mean_slope(eta)
        omega, expected = thinned_weight(self.family, share, mean), share * mean
        silent = np.maximum(1.0 - expected, LEAST)
        value = y * (eta - cumulant - np.log(silent)) + np.log(silent)
        information = omega * share * slope
        # The second derivative is bounded away from zero, because the log-likelihood of a decision
        # without a conversion is not concave for probabilities above ½.
        bent = slope * (1.0 - share) * (y - expected) / np.square(silent)
        information = np.maximum(information + bent, 0.1 * information)
        return weight * value, weight * omega * (y - expected), weight * information


class _ThinnedLaplace(Laplace):
    def _newton(
        self, data: Seen, family: Family, dispersion: float, tolerance: float, polish: bool
    ) -> Newton:
        # With the bounded second derivative, the last steps may converge only linearly.
        exact = EXACT if polish else tolerance
        return _ThinnedNewton(data, family, dispersion, self.max_iterations, exact, polish)


def _weighted(
    data: AgedDecisions, seen: Sequence[Vector], scale: float, unit: float = 1.0
) -> Weighted:
    """Return decisions as rewards y/F with weight F, so that their score is (y - F g) x."""
    parts = []
    for part, share in zip(data.parts, seen, strict=True):
        bounded = np.maximum(share, LEAST)
        parts.append(
            WeightedRows(part.rows, part.y / (bounded * unit), part.counted(bounded) / scale)
        )
    return Weighted(data.shape, parts)


def _fitted(
    data: AgedDecisions,
    seen: Sequence[Vector],
    family: Family,
    prior: Prior,
    start: Vector | None,
    polish: bool,
) -> Estimate:
    if isinstance(family, Bernoulli):
        parts = [
            WeightedRows(part.rows, part.y, np.column_stack([part.counted(np.ones(len(f))), f]))
            for part, f in zip(data.parts, seen, strict=True)
        ]
        thinned = Weighted(data.shape, parts)
        return _ThinnedLaplace().fit(
            thinned, family=family, prior=prior, start=start, polish=polish
        )
    scale = 1.0
    if family.dispersion == 1.0:
        # The mean is the rate times the value; the mean square is the rate times the squared value.
        square = 1.0 + _square(data)
        scale = square / (1.0 + sum(float(part.counted(part.y).sum()) for part in data.parts))
    weighted = _weighted(data, seen, scale)
    estimate = Laplace().fit(weighted, family=family, prior=prior, start=start, polish=polish)
    return replace(estimate, dispersion=scale * estimate.dispersion)


def _square(data: AgedDecisions) -> float:
    """Return Σ y²."""
    return sum(float(part.counted(part.y) @ part.y) for part in data.parts)


def _fitted_variance(
    data: AgedDecisions, seen: Sequence[Vector], prior: Prior, polish: bool
) -> Estimate:
    """Fit Gaussian rewards of unknown variance, iterating until the variance converges."""
    count, total = _known(data, seen), _square(data)
    variance = total / count if total and count else 1.0
    for _ in range(VARIANCES):
        unit = math.sqrt(variance)
        scaled = prior if prior.is_ridge else Prior(prior.mean / unit, prior.precision * variance)
        weighted = _weighted(data, seen, 1.0, unit)
        fit = Ridge().fit(weighted, family=Gaussian(1.0), prior=scaled, polish=polish)
        theta, before = unit * fit.theta, variance
        if total:
            residual = sum(
                float(part.counted(np.square(part.y - share * predictors(part.rows, theta))).sum())
                for part, share in zip(data.parts, seen, strict=True)
            )
            variance = max(residual / count, 1e-9 * total / count)
        if abs(variance - before) <= (STEADY if polish else 1e-3) * before:
            break
    used = fit.prior if prior.is_ridge else prior
    return replace(
        fit,
        theta=theta,
        mean=unit * fit.mean,
        precision=fit.precision / before,
        dispersion=before,
        doubt=None if fit.doubt is None else before * fit.doubt,
        prior=used,
    )


def prior_precision(prior: Prior, family: Family, dispersion: float) -> Matrix:
    """Return the prior precision of θ; if φ is estimated, a ridge applies to θ/√φ."""
    relative = family.dispersion is None and prior.is_ridge
    return prior.precision / dispersion if relative else prior.precision


def _precision(
    data: AgedDecisions, seen: Sequence[Vector], law: ConversionLaw, family: Family, fit: Estimate
) -> Matrix:
    phi = fit.dispersion
    prior = prior_precision(fit.prior, family, phi)
    return sandwich(prior, *spread_sums(data, seen, law, family, fit.theta, phi))


def spread_sums(
    data: AgedDecisions,
    seen: Sequence[Vector],
    law: ConversionLaw,
    family: Family,
    theta: Vector,
    phi: float = 1.0,
) -> tuple[Matrix, Matrix, Vector]:
    """Return the information A, the spread B of the score, and the effect k of F's uncertainty."""
    bread, filling = np.zeros((2, *data.shape, data.shape[-1]))
    moved = np.zeros(data.shape)
    for part, share in zip(data.parts, seen, strict=True):
        rows = part.rows.astype(np.float64)
        _, mean, slope = family.cumulant_mean_slope(predictors(rows, theta))
        expected = share * mean
        if isinstance(family, Gaussian):
            variance = np.square(part.y - expected)
        else:
            variance = np.maximum(phi * expected - np.square(expected), 1e-3 * expected)
        omega = thinned_weight(family, share, mean)
        add_gram(bread, rows, part.counted(omega * share * slope / phi))
        add_gram(filling, rows, part.counted(np.square(omega / phi) * variance))
        late = part.counted(omega * mean * law.deviation(part.age) / phi)
        moved += cross(late, rows, data.shape)
    return bread, filling, moved


def sandwich(prior: Matrix, bread: Matrix, filling: Matrix, moved: Vector) -> Matrix:
    """Return the inverse of A⁻¹ B A⁻¹ + k kᵀ, after adding the prior to A and B in place."""
    bread += prior
    filling += prior
    # Ignore the covariance between blocks that is caused by F's uncertainty, so that blocks can be
    # inverted separately. This is done in place, because copies of wide blocks are large.
    for block in np.ndindex(bread.shape[:-2]):
        inverse = inverse_of(bread[block])
        covariance = inverse @ filling[block] @ inverse + outer(inverse @ moved[block])
        bread[block] = inverse_of(covariance)
    return bread
