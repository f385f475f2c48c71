import math
from typing import Any

import numpy as np
import pytest
from scipy.optimize import minimize

from belated import Bernoulli, Gaussian, Poisson
from belated.core.inputs import Matrix, Vector
from belated.exceptions import InvalidInput
from belated.model.estimators import Laplace, Ridge
from belated.model.families import Family
from belated.model.priors import AUTO_RANGE, AUTO_START, Prior
from belated.model.statistics import Moments, Observations
from tests.unit.regressions import seen_of, some_prior


def _data(n: int, dim: int, noise: float = 0.5, seed: int = 0) -> tuple[Matrix, Vector]:
    rng = np.random.default_rng(seed)
    rows = rng.normal(size=(n, dim)).astype(np.float32).astype(np.float64) / 2.0
    return rows, rows @ rng.normal(size=dim) + noise * rng.normal(size=n)


@pytest.mark.parametrize("dim", [1, 3, 10])
@pytest.mark.parametrize("n", [0, 1, 40])
@pytest.mark.parametrize("variance", [1.0, 0.25])
def test_the_estimate_is_the_textbook_posterior(dim: int, n: int, variance: float) -> None:
    """θ and H equal their closed form, from moments as from observations."""
    rows, y = _data(n, dim)
    prior = some_prior(dim)
    precision = prior.precision + rows.T @ rows / variance
    theta = np.linalg.inv(precision) @ (prior.precision @ prior.mean + rows.T @ y / variance)
    for data in (Moments.of(rows, y), seen_of(rows, y)):
        estimate = Ridge().fit(data, family=Gaussian(variance), prior=prior)
        np.testing.assert_allclose(estimate.theta, theta, rtol=1e-10, atol=1e-12)
        np.testing.assert_allclose(estimate.precision, precision, rtol=1e-12, atol=1e-13)
        np.testing.assert_allclose(estimate.covariance, np.linalg.inv(precision), atol=1e-11)
        assert estimate.mean.tolist() == estimate.theta.tolist()
        assert (estimate.n, estimate.converged, estimate.dispersion) == (n, True, variance)


def test_the_estimate_maximises_the_posterior() -> None:
    """No numeric optimiser finds a better θ, or another."""
    rows, y = _data(60, 4)
    prior = some_prior(4)

    def loss(theta: Vector) -> float:
        offset = theta - prior.mean
        return float(np.sum((y - rows @ theta) ** 2) / 0.5 + offset @ prior.precision @ offset) / 2

    estimate = Ridge().fit(seen_of(rows, y), family=Gaussian(0.5), prior=prior)
    result = minimize(loss, np.zeros(4), method="BFGS", options={"gtol": 1e-9, "xrtol": 1e-12})
    np.testing.assert_allclose(estimate.theta, result.x, atol=1e-6)
    assert loss(estimate.theta) <= result.fun + 1e-12


def test_removed_rows_do_not_count() -> None:
    """The estimate is that of the rows left, and n their number."""
    rows, y = _data(30, 3)
    observations = Observations(3)
    handles = observations.extend(rows, y)
    for handle in handles[::2]:
        observations.remove(handle)
    estimate = Ridge().fit(observations, family=Gaussian(1.0), prior=Prior.ridge(3))
    expected = Ridge().fit(seen_of(rows[1::2], y[1::2]), family=Gaussian(1.0), prior=Prior.ridge(3))
    np.testing.assert_allclose(estimate.theta, expected.theta, rtol=1e-12)
    assert estimate.n == 15


@pytest.mark.parametrize("size", [0.0, 0.1, 1.0, 30.0, 3e4])
@pytest.mark.parametrize("dim", [1, 5, 30])
def test_an_automatic_ridge_solves_its_equation(size: float, dim: int) -> None:
    """λ = (d + 4)/(‖θ‖² + tr H⁻¹ + 4), unless λ is at an end of its range."""
    rows, y = _data(80, dim, seed=dim)
    estimate = Ridge().fit(
        seen_of(rows, size * y), family=Gaussian(1.0), prior=Prior.ridge(dim, "auto")
    )
    ridge = float(estimate.prior.precision[0, 0])
    np.testing.assert_allclose(estimate.prior.precision, ridge * np.eye(dim), rtol=1e-15)
    trace = float(np.linalg.inv(estimate.precision).trace())
    expected = (dim + 4) / (float(estimate.theta @ estimate.theta) + trace + 4)
    assert ridge == pytest.approx(min(max(expected, AUTO_RANGE[0]), AUTO_RANGE[1]), rel=1e-8)
    np.testing.assert_allclose(
        estimate.precision @ estimate.theta, rows.T @ (size * y), rtol=1e-9, atol=1e-9 * size
    )


def test_an_automatic_ridge_follows_the_size_of_the_coefficients() -> None:
    """Large coefficients make it small, and huge ones clip it; small ones leave it alone."""
    rows, y = _data(500, 8, noise=0.1)
    family, prior = Gaussian(0.01), Prior.ridge(8, "auto")
    fitted = [
        Ridge().fit(seen_of(rows, size * y), family=family, prior=prior).prior.precision[0, 0]
        for size in (0.01, 3.0, 10.0, 1e3)
    ]
    assert AUTO_RANGE[1] == fitted[0] > fitted[1] > fitted[2] > fitted[3] == AUTO_RANGE[0]


@pytest.mark.parametrize("n", [0, 4, 5])
def test_an_automatic_ridge_waits_for_five_rewards(n: int) -> None:
    """Below five the precision stays where it starts."""
    rows, y = _data(n, 2)
    estimate = Ridge().fit(
        seen_of(rows, 9.0 * y), family=Gaussian(1.0), prior=Prior.ridge(2, "auto")
    )
    assert (estimate.prior.precision[0, 0] == AUTO_START) == (n < 5)


def _by_hand(rows: Matrix, y: Vector, prior: Prior) -> float:
    """The fixed point of φ, as the docstring of Ridge has it, iterated with plain inverses."""
    phi = guess = float(np.mean(y**2))
    prior_weight = rows.shape[1] / len(y)
    for _ in range(2_000):
        covariance = np.linalg.inv(prior.precision + rows.T @ rows / phi)
        theta = covariance @ (prior.precision @ prior.mean + rows.T @ y / phi)
        used = float(np.trace(covariance @ rows.T @ rows / phi))
        squares = float(np.sum((y - rows @ theta) ** 2))
        phi = (squares + prior_weight * guess) / (len(y) - used + prior_weight)
    return phi


@pytest.mark.parametrize("noise", [0.05, 1.0, 20.0])
@pytest.mark.parametrize(("n", "dim"), [(2, 7), (8, 7), (40, 3), (400, 10)])
def test_an_estimated_variance_is_the_fixed_point(noise: float, n: int, dim: int) -> None:
    """It equals the one found by hand, converges, and θ and H belong to it."""
    rows, y = _data(n, dim, noise, seed=n)
    prior = some_prior(dim)
    estimate = Ridge().fit(seen_of(rows, y), family=Gaussian("estimate"), prior=prior)
    assert estimate.converged
    assert estimate.dispersion == pytest.approx(_by_hand(rows, y, prior), rel=1e-9)
    precision = prior.precision + rows.T @ rows / estimate.dispersion
    np.testing.assert_allclose(estimate.precision, precision, rtol=1e-12, atol=1e-12)
    linear = prior.precision @ prior.mean + rows.T @ y / estimate.dispersion
    np.testing.assert_allclose(precision @ estimate.theta, linear, rtol=1e-9, atol=1e-9)


def test_an_estimated_variance_is_close_to_the_true_one(full: bool) -> None:
    """Within five standard errors, φ √(2/(n - d))."""
    n = 200_000 if full else 5_000
    for noise in (0.1, 3.0):
        rows, y = _data(n, 6, noise)
        estimate = Ridge().fit(seen_of(rows, y), family=Gaussian("estimate"), prior=Prior.ridge(6))
        error = noise**2 * math.sqrt(2.0 / (n - 6))
        assert abs(estimate.dispersion - noise**2) <= 5.0 * error


@pytest.mark.parametrize("ridge", [0.1, 1.0, "auto"])
@pytest.mark.parametrize("unit", [1e-4, 0.01, 100.0, 1e6])
@pytest.mark.parametrize("n", [1, 3, 10, 300])
def test_rewards_in_another_unit_give_the_same_estimate(n: int, unit: float, ridge: Any) -> None:
    """θ̂ and √φ are in that unit: a ridge is of θ/√φ."""
    rows, y = _data(n, 4)
    prior = Prior.ridge(4, ridge)
    estimate = Ridge().fit(seen_of(rows, y), family=Gaussian(), prior=prior)
    scaled = Ridge().fit(seen_of(rows, unit * y), family=Gaussian(), prior=prior)
    np.testing.assert_allclose(scaled.theta, unit * estimate.theta, rtol=1e-6)
    np.testing.assert_allclose(scaled.precision * unit**2, estimate.precision, rtol=1e-6, atol=1e-9)
    assert scaled.dispersion == pytest.approx(unit**2 * estimate.dispersion, rel=1e-6)


@pytest.mark.parametrize("n", [1, 2, 5, 20])
def test_few_rewards_that_are_alike_do_not_make_the_estimate_certain(n: int) -> None:
    """They fit exactly, and a variance of nothing would end the exploration."""
    rows = np.eye(3)[np.arange(n) % 3]
    estimate = Ridge().fit(seen_of(rows, np.full(n, 0.3)), family=Gaussian(), prior=Prior.ridge(3))
    assert estimate.dispersion >= 0.09 * 3 / (n + 3) ** 2


def test_where_there_is_nothing_to_go_by_the_variance_is_one() -> None:
    """No reward, or zeros only."""
    rows, y = _data(3, 3)
    family, prior = Gaussian("estimate"), Prior.ridge(3)
    assert Ridge().fit(Moments.zero(3), family=family, prior=prior).dispersion == 1.0
    assert Ridge().fit(seen_of(rows, 0.0 * y), family=family, prior=prior).dispersion == 1.0


def test_rewards_without_noise_leave_the_variance_positive() -> None:
    """It stays above d/n² of their mean square, so that H stays finite."""
    rows, _ = _data(50, 2)
    y = rows @ np.array([1.0, -1.0])
    estimate = Ridge().fit(
        seen_of(rows, y), family=Gaussian("estimate"), prior=Prior.ridge(2, 1e-3)
    )
    assert 0.9 * 2 / 50**2 <= estimate.dispersion / np.mean(y**2) <= 1.2 * 2 / 50**2
    np.testing.assert_allclose(estimate.theta, [1.0, -1.0], atol=3e-4)


@pytest.mark.parametrize("n", [3, 4, 20])
def test_rewards_that_are_all_zero_do_not_make_the_estimate_certain(n: int) -> None:
    """A few zeros say little of the variance: it does not fall to a billionth once n exceeds d."""
    rows, _ = _data(n, 3)
    observations = seen_of(rows, np.zeros(n))
    estimate = Ridge().fit(observations, family=Gaussian("estimate"), prior=Prior.ridge(3))
    assert estimate.dispersion >= 0.01


def test_variance_and_ridge_are_estimated_together() -> None:
    """Both equations hold at once."""
    rows, y = _data(200, 5, noise=0.3)
    family, prior = Gaussian("estimate"), Prior.ridge(5, "auto")
    estimate = Ridge().fit(seen_of(rows, y), family=family, prior=prior)
    covariance = np.linalg.inv(estimate.precision)
    size = float(estimate.theta @ estimate.theta + covariance.trace()) / estimate.dispersion
    assert estimate.prior.precision[0, 0] == pytest.approx(9 / (size + 4), rel=1e-8)
    used = float(np.trace(covariance @ rows.T @ rows)) / estimate.dispersion
    squares = float(np.sum((y - rows @ estimate.theta) ** 2))
    squares, prior_weight = squares + 5 / 200 * float(np.mean(y**2)), 5 / 200
    assert estimate.dispersion == pytest.approx(squares / (200 - used + prior_weight), rel=1e-8)


@pytest.mark.parametrize("family", [Bernoulli(), Poisson()], ids=repr)
def test_other_families_are_refused(family: Family) -> None:
    """The error carries the family and points to Laplace."""
    with pytest.raises(InvalidInput, match="Laplace") as error:
        Ridge().fit(Moments.zero(1), family=family, prior=Prior.ridge(1))
    assert error.value.value is family


def test_a_prior_of_different_width_is_refused() -> None:
    """Rows and prior have the same width."""
    with pytest.raises(InvalidInput, match="rows are for 2 coefficients"):
        Ridge().fit(Moments.zero(2), family=Gaussian(1.0), prior=Prior.ridge(3))


def test_fits_become_rarer() -> None:
    """As for any other family."""
    for n in (0, 3, 50, 100, 10_000):
        assert Ridge().next_fit(n, (7,)) == Laplace().next_fit(n, (7,))
