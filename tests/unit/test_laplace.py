import itertools
import math

import numpy as np
import pytest
from scipy.integrate import quad
from scipy.optimize import minimize
from scipy.special import expit
from scipy.stats import bernoulli, poisson

from belated import Bernoulli, Gaussian, Poisson
from belated.core.inputs import Matrix, Vector
from belated.exceptions import ConvergenceWarning, InvalidInput
from belated.model.estimators import Estimate, Laplace, Ridge
from belated.model.families import Family
from belated.model.priors import AUTO_RANGE, AUTO_START, Prior
from belated.model.statistics import Observations
from tests.unit.regressions import seen_of, some_prior

FAMILIES: list[Family] = [Bernoulli(), Poisson()]
every_family = pytest.mark.parametrize("family", FAMILIES, ids=repr)


def _data(family: Family, n: int, dim: int, seed: int = 0) -> tuple[Matrix, Vector]:
    rng = np.random.default_rng(seed)
    rows = (rng.normal(size=(n, dim)) / math.sqrt(dim)).astype(np.float32).astype(np.float64)
    return rows, family.sample(rows @ rng.normal(size=dim), rng)


def _reference(family: Family, rows: Matrix, y: Vector, prior: Prior) -> tuple[Vector, Matrix]:
    """Maximum and curvature of the penalised likelihood, from SciPy alone."""

    def mean(theta: Vector) -> Vector:
        eta = rows @ theta
        return np.asarray(expit(eta) if isinstance(family, Bernoulli) else np.exp(eta))

    def loss(theta: Vector) -> float:
        density = bernoulli if isinstance(family, Bernoulli) else poisson
        difference = theta - prior.mean
        fit = float(np.sum(density.logpmf(y, mean(theta))))
        return 0.5 * float(difference @ prior.precision @ difference) - fit

    def gradient(theta: Vector) -> Vector:
        return prior.precision @ (theta - prior.mean) - (y - mean(theta)) @ rows

    def hessian(theta: Vector) -> Matrix:
        p = mean(theta)
        weight = p * (1.0 - p) if isinstance(family, Bernoulli) else p
        return prior.precision + (rows.T * weight) @ rows

    options = {"gtol": 1e-11, "maxiter": 1_000}
    start = prior.mean
    result = minimize(
        loss, start, jac=gradient, hess=hessian, method="trust-exact", options=options
    )
    return result.x, hessian(result.x)


@every_family
@pytest.mark.parametrize(("n", "dim"), [(0, 2), (1, 1), (5, 8), (60, 3), (400, 10)])
def test_the_estimate_maximises_the_penalised_likelihood(family: Family, n: int, dim: int) -> None:
    """θ and H equal those of SciPy's optimiser, with a prior of any mean and precision."""
    rows, y = _data(family, n, dim)
    for prior in (Prior.ridge(dim), some_prior(dim)):
        estimate = Laplace().fit(seen_of(rows, y), family=family, prior=prior)
        theta, precision = _reference(family, rows, y, prior)
        np.testing.assert_allclose(estimate.theta, theta, atol=1e-7)
        np.testing.assert_allclose(estimate.precision, precision, rtol=1e-6, atol=1e-6)
        assert (estimate.n, estimate.converged, estimate.dispersion) == (n, True, 1.0)
        assert estimate.mean.tolist() == estimate.theta.tolist()


@every_family
def test_the_estimate_ends_where_the_gradient_does(family: Family, full: bool) -> None:
    """At θ the gradient is below 1e-7 posterior standard deviations, from many starts."""
    for seed in range(300 if full else 30):
        rows, y = _data(family, 100, 5, seed)
        start = np.random.default_rng(seed).normal(size=5)
        estimate = Laplace().fit(seen_of(rows, y), family=family, prior=Prior.ridge(5), start=start)
        eta = rows @ estimate.theta
        mean = expit(eta) if isinstance(family, Bernoulli) else np.exp(eta)
        gradient = (y - mean) @ rows - estimate.theta
        assert gradient @ np.linalg.solve(estimate.precision, gradient) <= 1e-14


@every_family
@pytest.mark.parametrize("distance", [30.0, 300.0])
def test_a_start_far_off_does_not_matter(family: Family, distance: float) -> None:
    """The estimate is a function of the observations, wherever the search begins."""
    rows, y = _data(family, 100, 2)
    reference = Laplace().fit(seen_of(rows, y), family=family, prior=Prior.ridge(2))
    start = np.array([distance, -distance])
    estimate = Laplace().fit(seen_of(rows, y), family=family, prior=Prior.ridge(2), start=start)
    assert estimate.converged
    np.testing.assert_allclose(estimate.theta, reference.theta, atol=1e-7)


@every_family
def test_removed_rows_do_not_count(family: Family) -> None:
    """The estimate is that of the rows left, the correction of its mean included."""
    rows, y = _data(family, 40, 3)
    observations = Observations(3)
    handles = observations.extend(rows, y)
    for handle in handles[::2]:
        observations.remove(handle)
    prior, estimator = Prior.ridge(3), Laplace(mean_correction=True)
    estimate = estimator.fit(observations, family=family, prior=prior)
    expected = estimator.fit(seen_of(rows[1::2], y[1::2]), family=family, prior=prior)
    np.testing.assert_allclose(estimate.theta, expected.theta, atol=1e-8)
    np.testing.assert_allclose(estimate.mean, expected.mean, atol=1e-8)
    np.testing.assert_allclose(estimate.precision, expected.precision, rtol=1e-6)
    assert estimate.n == 20


@every_family
@pytest.mark.parametrize("correction", [False, True])
def test_a_removed_row_of_absurd_size_leaves_no_trace(family: Family, correction: bool) -> None:
    """It warns of nothing and changes nothing: not θ, not the mean, not the scale."""
    rows, y = _data(family, 40, 2)
    observations = seen_of(rows, y)
    observations.remove(observations.add([1e7, -1e7], 1.0))
    observations.remove(observations.add([1e7, 1e7], 1.0))
    prior, estimator = Prior.ridge(2), Laplace(mean_correction=correction)
    estimate = estimator.fit(observations, family=family, prior=prior)
    expected = estimator.fit(seen_of(rows, y), family=family, prior=prior)
    np.testing.assert_allclose(estimate.theta, expected.theta, atol=1e-8)
    np.testing.assert_allclose(estimate.mean, expected.mean, atol=1e-8)


@every_family
@pytest.mark.parametrize(("n", "dim"), [(5, 1), (30, 3), (300, 3), (300, 40), (40, 60)])
def test_an_automatic_ridge_solves_its_equation(
    family: Family, n: int, dim: int, full: bool
) -> None:
    """λ = (d + 4)/(‖θ‖² + tr H⁻¹ + 4), unless λ is at an end of its range."""
    for seed in range(20 if full else 3):
        rows, y = _data(family, n, dim, seed)
        estimate = Laplace().fit(seen_of(rows, y), family=family, prior=Prior.ridge(dim, "auto"))
        ridge = float(estimate.prior.precision[0, 0])
        trace = float(np.linalg.inv(estimate.precision).trace())
        expected = (dim + 4) / (float(estimate.theta @ estimate.theta) + trace + 4)
        assert ridge == pytest.approx(min(max(expected, AUTO_RANGE[0]), AUTO_RANGE[1]), rel=1e-8)
        theta, _ = _reference(family, rows, y, Prior.ridge(dim, ridge))
        np.testing.assert_allclose(estimate.theta, theta, atol=1e-6)


@every_family
def test_an_automatic_ridge_clips_and_waits(family: Family) -> None:
    """Huge coefficients bring it to its least value; below five rewards it stays at the start."""
    rows = np.tile(np.eye(2) * 0.03, (2_000, 1))
    y = np.tile([1.0, 0.0], 2_000) if isinstance(family, Bernoulli) else np.full(4_000, 5.0)
    prior = Prior.ridge(2, "auto")
    clipped = Laplace().fit(seen_of(rows, y), family=family, prior=prior)
    assert clipped.prior.precision[0, 0] == AUTO_RANGE[0]
    estimate = Laplace().fit(seen_of(rows[:4], y[:4]), family=family, prior=prior)
    assert estimate.prior.precision[0, 0] == AUTO_START


def test_fits_become_rarer() -> None:
    """Each arrival calls for a fit at first; then 5 % more of all that is known do."""
    fits = [0]
    for n in range(1, 100_001):
        if n >= Laplace().next_fit(fits[-1], (20,)):
            fits.append(n)
    assert fits[:10] == [0, 1, 2, 3, 4, 5, 7, 9, 12, 15]
    pairs = [(a, b) for a, b in itertools.pairwise(fits) if a >= 20]
    assert all(b == math.ceil(a + 0.05 * (a + 80) - 1e-9) for a, b in pairs)
    assert len(fits) < 160
    assert Laplace(growth=1.5).next_fit(1000, (1,)) == 1250  # a quarter more always suffices
    assert [Laplace(growth=1.0).next_fit(n, (20,)) for n in (0, 7, 5000)] == [1, 8, 5001]


@pytest.mark.parametrize("prior", [Prior.ridge(4, 2.0), Prior.ridge(4, "auto"), some_prior(4)])
@pytest.mark.parametrize("family", [Gaussian(0.5), Gaussian("estimate")], ids=repr)
def test_gaussian_rewards_go_to_ridge(family: Gaussian, prior: Prior) -> None:
    """The estimate is Ridge's, bit for bit, whatever the start."""
    rows, y = _data(Gaussian(), 50, 4)
    laplace: Estimate = Laplace(mean_correction=True).fit(
        seen_of(rows, y), family=family, prior=prior, start=np.full(4, 7.0)
    )
    ridge = Ridge().fit(seen_of(rows, y), family=family, prior=prior)
    assert laplace.theta.tobytes() == ridge.theta.tobytes()
    assert laplace.precision.tobytes() == ridge.precision.tobytes()
    assert laplace.dispersion == ridge.dispersion


@every_family
def test_the_corrected_mean_is_closer_to_the_posterior_mean(family: Family) -> None:
    """With one coefficient, integration gives the exact mean: the correction takes most of it."""
    y = np.array([1.0, 1.0, 1.0, 0.0] if isinstance(family, Bernoulli) else [0.0, 1.0, 0.0, 1.0])
    rows, prior = np.full((4, 1), 1.5), Prior.ridge(1)
    estimate = Laplace(mean_correction=True).fit(seen_of(rows, y), family=family, prior=prior)

    def weight(theta: float) -> float:
        eta = np.full(4, 1.5 * theta)
        return math.exp(float(family.log_likelihood(y, eta).sum()) - 0.5 * theta**2)

    total = quad(weight, -8, 8, epsabs=1e-12)[0]
    exact = quad(lambda theta: theta * weight(theta), -8, 8, epsabs=1e-12)[0] / total
    assert abs(estimate.mean[0] - exact) <= 0.25 * abs(estimate.theta[0] - exact)


@every_family
def test_giving_up_is_warned_of_and_stays_finite(family: Family) -> None:
    """With one pass only, the estimate says that it has not converged."""
    rows, y = _data(family, 50, 3)
    with pytest.warns(ConvergenceWarning):
        estimate = Laplace(max_iterations=1).fit(
            seen_of(8.0 * rows, y), family=family, prior=Prior.ridge(3)
        )
    assert not estimate.converged
    assert np.isfinite(estimate.theta).all()
    assert np.linalg.eigvalsh(estimate.precision).min() > 0.0


def test_a_prior_of_different_width_is_refused() -> None:
    """Rows and prior have the same shape."""
    with pytest.raises(InvalidInput, match=r"of shape .2,., but the prior has shape .3,."):
        Laplace().fit(Observations(2), family=Bernoulli(), prior=Prior.ridge(3))


@every_family
def test_an_unpolished_fit_is_good_enough_to_choose_by(family: Family) -> None:
    """θ is nearly the same, the precision that of a point within 1e-2 posterior deviations."""
    rows, y = _data(family, 60, 3)
    polished, rough = (
        Laplace().fit(seen_of(rows, y), family=family, prior=Prior.ridge(3), polish=polish)
        for polish in (True, False)
    )
    deviations = np.sqrt(np.diag(polished.covariance))
    assert (np.abs(rough.theta - polished.theta) / deviations).max() < 1e-4
    assert rough.iterations < polished.iterations
    np.testing.assert_allclose(rough.precision, polished.precision, rtol=1e-2, atol=1e-2)
