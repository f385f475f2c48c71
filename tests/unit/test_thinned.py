"""The estimator of conversions: its delay distribution, its equation and its covariance."""

from __future__ import annotations

import math

import numpy as np
import pytest

from belated import Bernoulli, Gaussian, Poisson
from belated.core.inputs import Matrix, Vector
from belated.exceptions import InvalidInput
from belated.model.estimators.conversion_law import (
    EDGES,
    SLOWEST,
    ConversionLaw,
    Conversions,
    age_counts,
    fitted_law,
)
from belated.model.estimators.thinned import AgedDecisions, DecidedRows, Thinned, _fitted
from belated.model.families import Family
from belated.model.priors import Prior


def truncated(rate: float, count: int, rng: np.random.Generator) -> Vector:
    """Return exponential delays truncated at the window."""
    return np.asarray(-np.log1p(rng.random(count) * math.expm1(-rate)) / rate)


def seen_by(
    now: float, rate: float, count: int, seed: int, share: float = 0.3
) -> tuple[Conversions, Vector]:
    """Return the conversions and the other decisions, made evenly since 0."""
    rng = np.random.default_rng(seed)
    age, delay = now * rng.random(count), truncated(rate, count, rng)
    is_observed = (delay <= age) & (rng.random(count) < share)
    conversions = Conversions(
        delay[is_observed], np.zeros(int(is_observed.sum())), np.minimum(age[is_observed], 1.0)
    )
    return conversions, age_counts(age[~is_observed])


def test_the_law_is_the_mean_over_all_rates_and_shares() -> None:
    """It equals a numerical integral of the likelihood."""
    conversions, silent = seen_by(0.1, 30.0, 60, 1)
    law = fitted_law(conversions, silent, tick=1e-6, shrinkage=1e15)
    ages = np.array([0.01, 0.03, 0.1, 0.3])
    total, mean = 0.0, np.zeros(4)
    odds = np.linspace(-12.0, 8.0, 400)
    p = 1.0 / (1.0 + np.exp(-odds))
    for eta in np.linspace(math.log(SLOWEST), math.log(1e6), 600):
        exponential = ConversionLaw.exponential(math.exp(eta))
        silent_ages = np.flatnonzero(silent)
        value = len(conversions.after) * (eta - math.log(-math.expm1(-math.exp(eta))))
        value -= math.exp(eta) * conversions.after.sum()
        log_likelihood = (len(conversions.after) + 0.05) * np.log(p) + 0.5 * np.log1p(-p)
        log_likelihood += (
            np.log1p(-np.outer(p, exponential.shares[silent_ages])) @ silent[silent_ages]
        )
        weight = float((np.exp(value + log_likelihood + 20.0) / p).sum())  # errors are relative
        total, mean = total + weight, mean + weight * exponential.at(ages)
    np.testing.assert_allclose(law.at(ages), mean / total, atol=0.02)
    assert (law.deviation(ages[:3]) > 0.02).all()


def test_reverse_hazards_by_their_definition() -> None:
    """Each cell is counted conversion by conversion."""
    conversions, silent = seen_by(1.4, 4.0, 300, 2)
    law = fitted_law(conversions, silent, shrinkage=30.0)
    base = fitted_law(conversions, silent, shrinkage=1e15).shares
    expected = np.ones(len(EDGES))
    for j in range(len(EDGES) - 1, 0, -1):
        old = conversions.age >= EDGES[j] - 1e-12
        converted = old & (conversions.after <= EDGES[j])
        converted_within = converted & (conversions.after > EDGES[j - 1])
        prior = 30.0 * (base[j] - base[j - 1]) / base[j]
        reverse = (converted_within.sum() + prior) / (converted.sum() + 30.0)
        expected[j - 1] = expected[j] * (1.0 - reverse)
    expected[0] = 0.0
    np.testing.assert_allclose(law.shares, expected, rtol=1e-3, atol=1e-12)


@pytest.mark.parametrize("scale", [1e-7, 1e-3, 1.0])
@pytest.mark.parametrize("now", [0.5, 1.0, 3.0])
def test_the_law_is_found_before_a_window_has_ended(now: float, scale: float) -> None:
    """Only fast conversions are observed yet, at any scale."""
    law = fitted_law(*seen_by(now * scale, 4.0 / scale, 8_000, 3))
    ages = scale * np.array([0.1, 0.25, 0.5, 0.75])
    truth = ConversionLaw.exponential(4.0 / scale)
    np.testing.assert_allclose(law.at(ages), truth.at(ages), atol=0.06)


def test_conversions_at_once_are_fast_and_rare() -> None:
    """Three at age 0 among thirty older decisions: no more are expected."""
    week = 7 * 86_400e6
    conversions = Conversions(np.full(3, 100.0) / week, np.zeros(3), np.full(3, 20e6) / week)
    law = fitted_law(conversions, age_counts(np.arange(1.0, 31.0) * 1e6 / week), tick=1.0 / week)
    assert law.at(np.array([1e6 / week]))[0] > 0.95


def test_theta_is_bounded_however_early_conversions_come() -> None:
    """Early conversions count no more than known outcomes."""
    rows, y = np.ones((3, 1), np.float32), np.ones(3)
    thetas = []
    for age in (0.004, 2.0):
        data = AgedDecisions((1,), [DecidedRows(rows, y, np.full(3, age))], Conversions.none())
        law = ConversionLaw.exponential(3.0)
        fit = _fitted(data, [law.at(np.full(3, age))], Bernoulli(), Prior.ridge(1), None, True)
        assert fit.converged
        thetas.append(fit.theta[0])
    assert thetas[0] == pytest.approx(thetas[1], abs=1e-6)


def test_a_law_that_is_not_exponential() -> None:
    """With many conversions, the hazards follow the data."""
    rng = np.random.default_rng(4)
    delay = np.where(
        rng.random(5_000) < 0.5, 0.1 * rng.random(5_000), 0.9 + 0.1 * rng.random(5_000)
    )
    law = fitted_law(Conversions(delay, np.zeros(5_000), np.ones(5_000)))
    np.testing.assert_allclose(law.at(np.array([0.1, 0.5, 0.9])), 0.5, atol=0.03)


def test_without_conversions_it_is_the_prior() -> None:
    """There are no observations."""
    conversions = Conversions(np.empty(0), np.empty(0), np.empty(0))
    law = fitted_law(conversions, tick=1e-8)
    ages = np.array([1e-6, 1e-4, 1e-2])
    np.testing.assert_allclose(law.at(ages), [0.23, 0.47, 0.71], atol=0.05)  # uniform in log rate


def test_what_a_delivery_brings_has_happened_since_the_one_before() -> None:
    """With daily reports of instant conversions, F is 1 after a day."""
    decision_times = np.random.default_rng(5).random(600)
    whole = np.concatenate([1.0 - decision_times[:300], 1.0 - decision_times[300:]])
    age = np.concatenate([np.ones(300), 1.0 - decision_times[300:]])
    law = fitted_law(Conversions(np.zeros(600), whole, age))
    assert law.at(np.array([0.05]))[0] > 0.85
    exactly = fitted_law(Conversions(whole, np.zeros(600), age))
    assert exactly.at(np.array([0.05]))[0] < 0.2


def test_means_over_ages() -> None:
    """They equal sums over many points, also before 0 and beyond the window."""
    law = fitted_law(*seen_by(2.0, 3.0, 500, 6))
    for low, high in ((0.1, 0.13), (-0.5, 0.5), (0.8, 1.7), (0.3, 0.3), (2.0, 3.0)):
        ages = np.linspace(low, high, 20_001)
        mean = law.over(np.array([low]), np.array([high]))[0]
        assert mean == pytest.approx(float(law.at(ages).mean()), abs=2e-4)


# --- θ ------------------------------------------------------------------------------------------


def shop(family: Family, n: int = 1_500, seed: int = 7) -> tuple[AgedDecisions, Vector]:
    """Return decisions of ages up to one and a half windows, and θ."""
    rng = np.random.default_rng(seed)
    theta = np.array([-1.5, 0.7, -0.4])
    rows = np.column_stack([np.ones(n), rng.normal(size=(n, 2))]).astype(np.float32)
    eta = rows @ theta
    chance = 1.0 / (1.0 + np.exp(-eta))
    converts = rng.random(n) < chance
    value = np.ones(n) if isinstance(family, Bernoulli) else rng.choice([10.0, 30.0], n)
    age, delay = 1.5 * rng.random(n), truncated(3.0, n, rng)
    is_observed = converts & (delay <= age)
    capped_age = np.minimum(age, 1.0)
    conversions = Conversions(
        delay[is_observed], np.zeros(int(is_observed.sum())), capped_age[is_observed]
    )
    part = DecidedRows(rows, np.where(is_observed, value, 0.0), age)
    return AgedDecisions((3,), [part], conversions), theta


def solved(data: AgedDecisions, share: Vector) -> tuple[Vector, Matrix, Vector]:
    """Return θ of Bernoulli rewards by plain steps, with ridge 1."""
    rows, y, *_ = data.parts[0]
    x, theta = rows.astype(np.float64), np.zeros(3)
    for _ in range(200):
        g = 1.0 / (1.0 + np.exp(-x @ theta))
        omega = (1 - g) / (1 - share * g)
        bread = np.eye(3) + (x * (omega * share * g * (1 - g))[:, None]).T @ x
        step = np.linalg.solve(bread, x.T @ (omega * (y - share * g)) - theta)
        theta = theta + step * min(1.0, 2.0 / float(np.linalg.norm(step)))
    return theta, bread, omega * g


def test_theta_and_its_covariance_by_their_formulas() -> None:
    """The score is zero; the covariance includes the uncertainty of F."""
    data, _ = shop(Bernoulli())
    estimate = Thinned().fit(data, family=Bernoulli(), prior=Prior.ridge(3))
    share = estimate.law.at(data.parts[0].age)
    theta, bread, weighted = solved(data, share)
    np.testing.assert_allclose(estimate.theta, theta, atol=1e-7)
    inverse = np.linalg.inv(bread)
    moved = (weighted * estimate.law.deviation(data.parts[0].age)) @ data.parts[0].rows
    direction = inverse @ moved
    expected = inverse + np.outer(direction, direction)
    np.testing.assert_allclose(estimate.covariance, expected, rtol=1e-3)
    assert estimate.converged
    assert estimate.effective_n == pytest.approx(float(share.sum()))
    assert estimate.n == int(((data.parts[0].y > 0) | (data.parts[0].age >= 1.0)).sum())


def test_silence_is_not_a_no() -> None:
    """Counting missing rewards as 0 biases predictions; weighting by age does not."""
    data, theta = shop(Bernoulli(), n=20_000)
    estimate = Thinned().fit(data, family=Bernoulli(), prior=Prior.ridge(3))
    np.testing.assert_allclose(estimate.theta, theta, atol=0.12)
    naive, *_ = solved(data, np.ones(20_000))
    assert naive[0] < theta[0] - 0.2


@pytest.mark.parametrize("family", [Gaussian(), Gaussian(50.0), Poisson()])
def test_conversions_with_values(family: Family) -> None:
    """The mean is over all decisions, with conversions worth 20 on average."""
    data, theta = shop(family, n=20_000)
    estimate = Thinned().fit(data, family=family, prior=Prior.ridge(3))
    rows = data.parts[0].rows.astype(np.float64)
    expected = 20.0 / (1.0 + np.exp(-rows @ theta))
    predicted = family.mean(rows @ estimate.theta)
    assert predicted.mean() == pytest.approx(expected.mean(), rel=0.06)
    assert np.isfinite(estimate.covariance).all()


def test_values_in_another_unit() -> None:
    """Cents or euros have the same estimate in their unit."""
    data, _ = shop(Gaussian())
    cents = AgedDecisions(
        (3,), [data.parts[0]._replace(y=100.0 * data.parts[0].y)], data.conversions
    )
    original, scaled = (
        Thinned().fit(decisions, family=Gaussian(), prior=Prior.ridge(3))
        for decisions in (data, cents)
    )
    np.testing.assert_allclose(100.0 * original.theta, scaled.theta, rtol=1e-6)
    np.testing.assert_allclose(1e4 * original.covariance, scaled.covariance, rtol=1e-5)
    spread = Thinned().fit(data, family=Poisson(), prior=Prior.ridge(3)).dispersion
    assert 20.0 < spread < 30.0


def test_what_an_estimator_of_conversions_refuses() -> None:
    """Invalid settings, and rows of another width."""
    with pytest.raises(InvalidInput, match="`shrinkage` must be"):
        Thinned(shrinkage=0.0)
    data, _ = shop(Bernoulli())
    with pytest.raises(InvalidInput, match=r"of shape .3,., but the prior has shape .2,."):
        Thinned().fit(data, family=Bernoulli(), prior=Prior.ridge(2))
