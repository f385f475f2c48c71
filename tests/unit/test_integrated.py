"""Means and covariances, integrated over the prior's precision."""

from __future__ import annotations

import math

import numpy as np
import pytest

from belated import Bernoulli, Gaussian
from belated.model.estimators import Laplace, Ridge, Thinned
from belated.model.estimators.conversion_law import Conversions
from belated.model.estimators.integrated import GivenPrecision, integrated
from belated.model.estimators.thinned import AgedDecisions, DecidedRows
from belated.model.families import Family
from belated.model.priors import AUTO_RANGE, Prior
from belated.model.statistics import Observations


def strong(family: Family, dim: int = 6, n: int = 60) -> Observations:
    """Return rewards with strong effects, of which half of the directions are nearly unknown."""
    rng = np.random.default_rng(5)
    rows = rng.normal(size=(n, dim)) * np.where(np.arange(dim) < dim / 2, 1.0, 0.05)
    means = family.mean(rows @ np.full(dim, 2.0))
    y = rng.random(n) < means if isinstance(family, Bernoulli) else rng.normal(means)
    observations = Observations(dim)
    observations.extend(rows, y.astype(np.float64))
    return observations


@pytest.mark.parametrize("dim", [1, 10, 60])
def test_it_is_the_integral_over_all_precisions(dim: int) -> None:
    """It equals a quadrature with 4,000 points for normal rewards."""
    precision = np.linspace(0.1, 20.0, dim)
    pull = precision * np.linspace(1.0, 3.0, dim)

    def solve(ridge: float) -> GivenPrecision:
        theta = pull / (precision + ridge)
        return GivenPrecision(theta, np.diag(precision + ridge), 0.5 * float(theta @ pull))

    posterior = integrated(solve, 0.3, dim)
    assert posterior is not None
    log_ridges = np.linspace(math.log(AUTO_RANGE[0]), math.log(AUTO_RANGE[1]), 4_000)
    weights, means, variances = [], [], []
    for log in log_ridges:
        solution = solve(math.exp(log))
        weights.append(
            solution.value + 0.5 * dim * log - 0.5 * np.log(precision + math.exp(log)).sum()
        )
        means.append(solution.mean)
        variances.append(1.0 / (precision + math.exp(log)))
    shares = np.exp(np.array(weights) - max(weights))
    shares /= shares.sum()
    mean = shares @ np.array(means)
    variance = shares @ (np.array(variances) + np.square(np.array(means) - mean))
    deviation = np.sqrt(variance)
    np.testing.assert_array_less(np.abs(posterior.mean - mean) / deviation, 0.03)
    np.testing.assert_allclose(np.sqrt(np.diag(posterior.covariance)), deviation, rtol=0.03)


def test_no_posterior_at_all_changes_nothing() -> None:
    """If no fit converges, the estimate is unchanged."""
    assert integrated(lambda ridge: None, 0.3, 3) is None


@pytest.mark.parametrize("family", [Bernoulli(), Gaussian(1.0), Gaussian()], ids=repr)
def test_an_estimated_prior_widens_intervals_and_leaves_the_maximum(family: Family) -> None:
    """Unpolished fits, which policies use, do not change."""
    observations, prior = strong(family), Prior.ridge(6, "auto")
    polished = Laplace().fit(observations, family=family, prior=prior)
    unpolished = Laplace().fit(observations, family=family, prior=prior, polish=False)
    fixed = Laplace().fit(
        observations, family=family, prior=Prior.ridge(6, float(polished.prior.precision[0, 0]))
    )
    assert unpolished.doubt is None
    assert unpolished.mean.tolist() == unpolished.theta.tolist()
    assert fixed.doubt is None
    np.testing.assert_allclose(polished.theta, fixed.theta, atol=1e-6)
    np.testing.assert_allclose(polished.precision, fixed.precision, rtol=1e-6, atol=1e-9)
    widths = [np.sqrt(np.diag(estimate.covariance)) for estimate in (polished, fixed)]
    assert (widths[0][3:] > 1.1 * widths[1][3:]).all()
    assert np.linalg.norm(polished.mean) > np.linalg.norm(polished.theta)


def test_rewards_in_another_unit_have_the_same_intervals_in_it() -> None:
    """With an estimated variance, the prior applies to θ/√φ."""
    observations = strong(Gaussian())
    rescaled = Observations(6)
    for rows, y, _ in observations.chunks(1_000):
        rescaled.extend(rows.copy(), 0.01 * y)
    estimate, scaled = (
        Ridge().fit(data, family=Gaussian(), prior=Prior.ridge(6, "auto"))
        for data in (observations, rescaled)
    )
    np.testing.assert_allclose(scaled.mean, 0.01 * estimate.mean, rtol=1e-6)
    np.testing.assert_allclose(scaled.covariance, 1e-4 * estimate.covariance, rtol=1e-6)


def test_conversions_have_the_doubt_too() -> None:
    """The sandwich ignores the prior's uncertainty; intervals include it."""
    (rows, y, _), *_ = strong(Bernoulli(), n=200).chunks(1_000)
    age, hits = np.full(len(rows), 2.0), int(y.sum())
    conversions = Conversions(np.full(hits, 0.2), np.zeros(hits), np.ones(hits))
    data = AgedDecisions((6,), [DecidedRows(rows.astype(np.float32), y, age)], conversions)
    estimate = Thinned().fit(data, family=Bernoulli(), prior=Prior.ridge(6, "auto"))
    plain = np.diag(np.linalg.inv(estimate.precision))
    assert (np.diag(estimate.covariance)[3:] > 1.1 * plain[3:]).all()
