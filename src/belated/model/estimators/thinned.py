r"""Conversions only: silence means no conversion so far.

A decision of age e is expected to show F(e) g(xᵀθ) by now, where F is the law of
:mod:`~belated.model.estimators.conversion_law`. With Bernoulli rewards the estimate maximises the
likelihood of that probability over all decisions, whether they have converted or not: its score is
Σ ω (y - F g) x with ω = (1 - g)/(1 - F g), which is bounded however many conversions come before
they are expected. Otherwise ω is 1.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from belated.core.inputs import Matrix, Row, Vector
from belated.exceptions import InvalidInput
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

#: The decrement of Newton's method that a polished estimate ends with.
EXACT = 1e-14
#: Conversions up to which each calls for a fit.
FIRST = 30
#: Nothing counts for less, where a conversion was seen nevertheless.
LEAST = 1e-9
#: How often an estimated variance is looked at again, and by how much it may still move.
VARIANCES, STEADY = 50, 1e-10


class DecidedRows(NamedTuple):
    """Decisions, whatever has come of them.

    Attributes:
        rows: one each.
        y: the value of the conversion that was seen; 0 if none was.
        age: in windows.
        weight: what each counts for; None: all count in full.
    """

    rows: Row
    y: Vector
    age: Vector
    weight: Vector | None = None

    def counted(self, each: Vector) -> Vector:
        """Return a number of each decision, times what that counts for."""
        return each if self.weight is None else self.weight * each


@dataclass(frozen=True, eq=False)
class AgedDecisions:
    """All decisions of all partitions, and when their conversions came.

    Attributes:
        shape: of θ.
        parts: the decisions.
        conversions: those that came within the window.
        tick: the resolution of the clock, in windows.
    """

    shape: Shape
    parts: Sequence[DecidedRows]
    conversions: Conversions
    tick: float = SHORTEST

    @property
    def n(self) -> int:
        """Decisions whose outcome is known: they have converted, or their window has ended."""
        return sum(int(((part.y != 0.0) | (part.age >= 1.0)).sum()) for part in self.parts)

    @property
    def silent_ages(self) -> Vector:
        """Decisions without a conversion, by their ages: see :func:`age_counts`."""
        total = np.zeros(len(EDGES))
        for part in self.parts:
            silent = part.y == 0.0
            weight = None if part.weight is None else part.weight[silent]
            total += age_counts(part.age[silent], weight)
        return total


@dataclass(frozen=True, eq=False, repr=False)
class ThinnedEstimate(Estimate):
    """An estimate from conversions, and the law of their delays that it rests on."""

    law: ConversionLaw = field(kw_only=True)


@dataclass(frozen=True)
class Thinned:
    r"""Every decision counts from the start, for the share of conversions expected by its age.

    The score is that of any canonical family, thinned by F, so decisions of one age can be summed.
    The covariance is a sandwich, because the variance of what is seen is F g (1 - F g) and not
    F g', and it includes the uncertainty of F. With Gaussian and Poisson rewards a conversion has a
    value. Its delay shows how fast conversions are, its value enters the mean; the spread of both
    is in the dispersion. Weights are those of a likelihood: a decision of weight ½ is half a
    decision, in the covariance too.

    Args:
        shrinkage: conversions that the exponential law is worth, see :func:`fitted_law`.
        growth: fit again once what is known has grown by this factor.

    >>> rows = np.ones((4, 1), np.float32)
    >>> y, age = np.array([1.0, 0.0, 0.0, 0.0]), np.array([1.0, 1.0, 1.0, 0.0])
    >>> seen = Conversions(np.array([0.2]), np.array([0.0]), np.array([1.0]))
    >>> data = AgedDecisions((1,), [DecidedRows(rows, y, age)], seen)
    >>> estimate = Thinned().fit(data, family=Bernoulli(), prior=Prior.ridge(1))
    >>> estimate.theta.round(3), estimate.effective_n  # the last decision says nothing yet
    (array([-0.287]), 3.0)
    """

    shrinkage: float = SHRINKAGE
    growth: float = 1.05

    def __post_init__(self) -> None:
        if not 0.0 < self.shrinkage < math.inf:
            given = self.shrinkage
            raise InvalidInput(f"shrinkage is {given!r}: a number above 0 was expected", given)

    def next_fit(self, n: int, shape: Shape) -> float:
        """After every one of the first conversions; then when they have grown enough."""
        every = n < FIRST and shape[-1] <= WIDE
        return n + 1 if every else next_fit(n, shape, self.growth)

    def law(self, data: AgedDecisions) -> ConversionLaw:
        """Return the delay law of the conversions among these decisions."""
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
        """The estimate of these decisions.

        Args:
            data: the decisions.
            family: of the rewards.
            prior: of θ.
            start: where to begin.
            polish: go on until the estimate is a function of the set alone.
        """
        check_shape(data, prior)
        law = self.law(data)
        seen = [law.at(part.age) for part in data.parts]
        if isinstance(family, Gaussian) and family.dispersion is None:
            found = _fitted_variance(data, seen, prior, polish)
        else:
            found = _fitted(data, seen, family, prior, start, polish)
        return ThinnedEstimate(
            theta=found.theta,
            mean=found.mean,
            precision=_precision(data, seen, law, family, found),
            n=data.n,
            converged=found.converged,
            iterations=found.iterations,
            prior=found.prior,
            dispersion=found.dispersion,
            doubt=found.doubt,
            effective_n=_known(data, seen),
            law=law,
        )


def _known(data: AgedDecisions, seen: Sequence[Vector]) -> float:
    """Σ F: how many decisions are known by now."""
    both = zip(data.parts, seen, strict=True)
    return float(sum(part.counted(share).sum() for part, share in both))


def thinned_weight(family: Family, share: Vector, mean: Vector) -> Vector:
    """Return ω, the weight of y - F g in the score.

    With Bernoulli rewards it makes the score that of a likelihood: a conversion that comes before
    it is expected pulls θ up by no more than 1 - g.
    """
    if not isinstance(family, Bernoulli):
        return np.ones(len(mean))
    return (1.0 - mean) / np.maximum(1.0 - share * mean, LEAST)


class _ThinnedNewton(Newton):
    """Newton's method where y is 1 with probability F g: each row counts by a weight and has F."""

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
        # The second derivative, held above zero: likelihoods of silence are not concave above ½.
        bent = slope * (1.0 - share) * (y - expected) / np.square(silent)
        information = np.maximum(information + bent, 0.1 * information)
        return weight * value, weight * omega * (y - expected), weight * information


class _ThinnedLaplace(Laplace):
    def _newton(
        self, data: Seen, family: Family, dispersion: float, tolerance: float, polish: bool
    ) -> Newton:
        # Its second derivative is held above zero, so the last steps may shrink by a factor only.
        exact = EXACT if polish else tolerance
        return _ThinnedNewton(data, family, dispersion, self.max_iterations, exact, polish)


def _weighted(
    data: AgedDecisions, seen: Sequence[Vector], scale: float, unit: float = 1.0
) -> Weighted:
    """Decisions as rewards y/F that count F: their score is y - F g."""
    parts = []
    for part, share in zip(data.parts, seen, strict=True):
        held = np.maximum(share, LEAST)
        parts.append(WeightedRows(part.rows, part.y / (held * unit), part.counted(held) / scale))
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
        # The mean is rate times value, and so much more is the mean square of what comes.
        square = 1.0 + _square(data)
        scale = square / (1.0 + sum(float(part.counted(part.y).sum()) for part in data.parts))
    weighted = _weighted(data, seen, scale)
    found = Laplace().fit(weighted, family=family, prior=prior, start=start, polish=polish)
    return replace(found, dispersion=scale * found.dispersion)


def _square(data: AgedDecisions) -> float:
    """Σ y²."""
    return sum(float(part.counted(part.y) @ part.y) for part in data.parts)


def _fitted_variance(
    data: AgedDecisions, seen: Sequence[Vector], prior: Prior, polish: bool
) -> Estimate:
    """Gaussian rewards of an unknown variance: in units of it, until it does not move."""
    known, total = _known(data, seen), _square(data)
    variance = total / known if total and known else 1.0
    for _ in range(VARIANCES):
        unit = math.sqrt(variance)
        its = prior if prior.is_ridge else Prior(prior.mean / unit, prior.precision * variance)
        weighted = _weighted(data, seen, 1.0, unit)
        found = Ridge().fit(weighted, family=Gaussian(1.0), prior=its, polish=polish)
        theta, before = unit * found.theta, variance
        if total:
            residual = sum(
                float(part.counted(np.square(part.y - share * predictors(part.rows, theta))).sum())
                for part, share in zip(data.parts, seen, strict=True)
            )
            variance = max(residual / known, 1e-9 * total / known)
        if abs(variance - before) <= (STEADY if polish else 1e-3) * before:
            break
    used = found.prior if prior.is_ridge else prior
    return replace(
        found,
        theta=theta,
        mean=unit * found.mean,
        precision=found.precision / before,
        dispersion=before,
        doubt=None if found.doubt is None else before * found.doubt,
        prior=used,
    )


def prior_precision(prior: Prior, family: Family, dispersion: float) -> Matrix:
    """Return the precision of θ by its prior: a ridge is of θ/√φ where φ is estimated."""
    relative = family.dispersion is None and prior.is_ridge
    return prior.precision / dispersion if relative else prior.precision


def _precision(
    data: AgedDecisions, seen: Sequence[Vector], law: ConversionLaw, family: Family, found: Estimate
) -> Matrix:
    """The inverse of A⁻¹ B A⁻¹ + k kᵀ: the sandwich, and how θ moves with a deviation of F."""
    phi, theta = found.dispersion, found.theta
    bread = prior_precision(found.prior, family, phi).copy()
    filling, moved = bread.copy(), np.zeros(data.shape)
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
    # What a deviation of F moves in several blocks at once is left out between them. So one block
    # after the other, in place: where blocks are wide, each copy of all of them is large.
    for block in np.ndindex(bread.shape[:-2]):
        inverse = inverse_of(bread[block])
        covariance = inverse @ filling[block] @ inverse + outer(inverse @ moved[block])
        bread[block] = inverse_of(covariance)
    return bread
