"""The yardstick itself, against what is known in closed form or by quadrature."""

import math

import numpy as np
import pytest

from belated.core.inputs import Matrix, Vector
from belated.model.priors import Prior
from tests.statistical.polya_gamma import polya_gamma, posterior_draws

DRAWS = 200_000
#: On both sides of 2/0.64, where the sampler changes its proposal, and far out.
TILTS = [0.1, 1.0, 3.0, 3.2, 6.0, 12.0, 40.0]


def errors(values: Vector, expected: float) -> float:
    """How many standard errors the mean of independent values is from what is expected."""
    return abs(float(values.mean()) - expected) / (float(values.std()) / math.sqrt(len(values)))


@pytest.mark.parametrize("z", TILTS)
def test_the_mean_of_a_polya_gamma_is_tanh_half_z_over_two_z(z: float) -> None:
    """Within five standard errors; the sign of z does not matter."""
    draws = polya_gamma(np.full(DRAWS, z), np.random.default_rng(1))
    assert errors(draws, math.tanh(z / 2) / (2 * z)) < 5
    mirrored = polya_gamma(np.full(DRAWS, -z), np.random.default_rng(1))
    assert np.array_equal(draws, mirrored)


@pytest.mark.parametrize("z", TILTS)
def test_the_variance_of_a_polya_gamma_is_known(z: float) -> None:
    """(sinh z - z) / (4 z³ cosh²(z/2)), within five standard errors."""
    draws = polya_gamma(np.full(DRAWS, z), np.random.default_rng(2))
    centred = np.square(draws - math.tanh(z / 2) / (2 * z))
    assert errors(centred, (math.sinh(z) - z) / (4 * z**3 * math.cosh(z / 2) ** 2)) < 5


@pytest.mark.parametrize("z", [0.0, 1e-9, 1e-3])
def test_a_polya_gamma_at_zero_has_mean_one_quarter_and_variance_one_24th(z: float) -> None:
    """The limits for z → 0, within five standard errors."""
    draws = polya_gamma(np.full(DRAWS, z), np.random.default_rng(3))
    assert errors(draws, 1 / 4) < 5
    assert errors(np.square(draws - 1 / 4), 1 / 24) < 5


@pytest.mark.parametrize("z", [0.0, 1.0, 3.0, 6.0])
@pytest.mark.parametrize("s", [0.5, 4.0, 30.0])
def test_the_laplace_transform_of_a_polya_gamma_is_a_ratio_of_cosh(z: float, s: float) -> None:
    """E e^{-sω} = cosh(z/2) / cosh(√(z²/4 + s/2)), within five standard errors: the whole law."""
    draws = polya_gamma(np.full(DRAWS, z), np.random.default_rng(4))
    expected = math.cosh(z / 2) / math.cosh(math.sqrt(z**2 / 4 + s / 2))
    assert errors(np.exp(-s * draws), expected) < 5


def test_draws_have_the_shape_of_the_tilts_and_follow_each_of_them() -> None:
    """A table of different z gives a table whose columns have the right means."""
    z = np.tile([0.5, 2.0, 8.0], (50_000, 1))
    draws = polya_gamma(z, np.random.default_rng(5))
    assert draws.shape == z.shape
    for j in range(3):
        assert errors(draws[:, j], math.tanh(z[0, j] / 2) / (2 * z[0, j])) < 5


def grid_posterior(X: Matrix, y: Vector, prior: Prior, points: Matrix) -> Vector:
    """The posterior's share of each point of an even grid."""
    eta = points @ X.T
    offset = points - prior.mean
    log = (y * eta - np.logaddexp(0.0, eta)).sum(axis=1)
    log -= 0.5 * np.einsum("ij,jk,ik->i", offset, prior.precision, offset)
    share: Vector = np.exp(log - log.max())
    share /= share.sum()
    return share


def test_gibbs_in_one_dimension_is_the_posterior_by_quadrature() -> None:
    """Mean, deviation and deciles of 40 000 draws agree to 3 %, for a skewed posterior."""
    prior = Prior.normal([0.5], [[0.3]])
    X, y = np.array([[1.0], [2.0], [-1.0], [1.5], [0.5]]), np.array([1.0, 1.0, 0.0, 1.0, 0.0])
    points = np.linspace(-15, 25, 40_001)[:, None]
    share = grid_posterior(X, y, prior, points)
    mean = float(share @ points[:, 0])
    deviation = math.sqrt(float(share @ np.square(points[:, 0] - mean)))
    rng = np.random.default_rng(6)
    draws = posterior_draws(X, y, prior, rng, chains=400, burn_in=100, sweeps=100)[:, 0]
    assert abs(draws.mean() - mean) < 0.03 * deviation
    assert draws.std() == pytest.approx(deviation, rel=0.03)
    for level in np.arange(0.1, 1.0, 0.1):
        cut = points[np.searchsorted(share.cumsum(), level), 0]
        assert abs(float((draws <= cut).mean()) - level) < 0.015


def test_gibbs_in_two_dimensions_is_the_posterior_by_quadrature() -> None:
    """Means and covariances of 40 000 draws agree to 3 % of a deviation, for a tilted prior."""
    prior = Prior.normal([1.0, -1.0], [[1.0, 0.4], [0.4, 0.5]])
    rng = np.random.default_rng(7)
    X = rng.standard_normal((30, 2))
    y = (rng.random(30) < 0.7).astype(np.float64)
    axis = np.linspace(-6, 6, 601)
    points = np.stack(np.meshgrid(axis, axis), axis=-1).reshape(-1, 2)
    share = grid_posterior(X, y, prior, points)
    mean = share @ points
    covariance = (points - mean).T @ ((points - mean) * share[:, None])
    deviation = np.sqrt(np.diag(covariance))
    draws = posterior_draws(X, y, prior, rng, chains=400, burn_in=100, sweeps=100)
    assert np.abs(draws.mean(axis=0) - mean).max() < 0.03 * deviation.min()
    scaled = (np.cov(draws.T) - covariance) / np.outer(deviation, deviation)
    assert np.abs(scaled).max() < 0.03
