import math

import numpy as np
import pytest
from scipy.optimize import minimize

from belated import Bernoulli, Gaussian, Poisson
from belated.core.inputs import Matrix, Vector
from belated.exceptions import InvalidInput
from belated.model.estimators import Laplace, Online, Ridge
from belated.model.families import Family
from belated.model.priors import AUTO_START, Prior
from belated.model.statistics import Observations
from tests.unit.regressions import seen_of, some_prior

FAMILIES: list[Family] = [Gaussian(0.25), Bernoulli(), Poisson()]
every_family = pytest.mark.parametrize("family", FAMILIES, ids=repr)


def _data(family: Family, n: int, dim: int, seed: int = 0) -> tuple[Matrix, Vector]:
    rng = np.random.default_rng(seed)
    rows = (rng.normal(size=(n, dim)) / math.sqrt(dim)).astype(np.float32).astype(np.float64)
    return rows, family.sample(rows @ rng.normal(size=dim), rng, family.dispersion or 1.0)


@every_family
@pytest.mark.parametrize("y", [0.0, 1.0])
@pytest.mark.parametrize("size", [1.0, 3.0, 30.0])
def test_one_reward_gives_the_maximum_of_its_posterior(
    family: Family, y: float, size: float
) -> None:
    """The first step solves the penalised likelihood as SciPy's optimiser does."""
    prior, x = some_prior(3), size * np.array([0.6, -0.64, 0.48])
    phi = family.dispersion or 1.0

    def loss(theta: Vector) -> float:
        offset = theta - prior.mean
        fit = family.log_likelihood(np.array([y]), np.array([x @ theta]), phi)
        return 0.5 * float(offset @ prior.precision @ offset) - float(fit[0])

    estimate = Online().fit(seen_of(x[None], np.array([y])), family=family, prior=prior)
    x[:] = x.astype(np.float32)
    best = minimize(loss, prior.mean, method="Nelder-Mead", options={"xatol": 1e-9, "fatol": 1e-15})
    # A step below .05 is one Newton step, off by at most a thousandth.
    np.testing.assert_allclose(x @ estimate.theta, x @ best.x, atol=2e-3 if size < 30.0 else 1e-2)
    assert loss(estimate.theta) <= best.fun + 1e-5


@pytest.mark.parametrize("variance", [1.0, 0.25])
def test_gaussian_steps_end_where_ridge_does(variance: float) -> None:
    """Closed form and rank-one steps agree to 1e-10."""
    rows, y = _data(Gaussian(variance), 300, 5)
    family, prior, observations = Gaussian(variance), some_prior(5), seen_of(rows, y)
    online, ridge = (
        way.fit(observations, family=family, prior=prior) for way in (Online(), Ridge())
    )
    np.testing.assert_allclose(online.theta, ridge.theta, atol=1e-10)
    np.testing.assert_allclose(online.precision, ridge.precision, rtol=1e-10, atol=1e-10)
    assert (online.n, online.dispersion) == (300, variance)


@pytest.mark.parametrize("family", [Bernoulli(), Poisson()], ids=repr)
@pytest.mark.parametrize("dim", [2, 10])
def test_other_steps_end_near_the_maximum(family: Family, dim: int, full: bool) -> None:
    """With ridge 1 and 100 rewards, θ is off by .3 posterior deviations or less, on average."""
    distances = []
    for seed in range(200 if full else 20):
        observations, prior = seen_of(*_data(family, 100, dim, seed)), Prior.ridge(dim)
        online, best = (
            way.fit(observations, family=family, prior=prior) for way in (Online(), Laplace())
        )
        delta = online.theta - best.theta
        distances.append(math.sqrt(delta @ best.precision @ delta / dim))
    assert 0.0 < np.mean(distances) <= 0.3


@every_family
def test_removed_rows_do_not_count(family: Family) -> None:
    """The steps are those of the rows left, in their order."""
    rows, y = _data(family, 40, 3)
    observations = Observations(3)
    handles = observations.extend(rows, y)
    for handle in handles[::2]:
        observations.remove(handle)
    estimate = Online().fit(observations, family=family, prior=Prior.ridge(3))
    expected = Online().fit(seen_of(rows[1::2], y[1::2]), family=family, prior=Prior.ridge(3))
    assert estimate.theta.tolist() == expected.theta.tolist()
    assert estimate.precision.tolist() == expected.precision.tolist()
    assert estimate.n == 20


@every_family
def test_nothing_gives_the_prior(family: Family) -> None:
    """Without rewards the estimate is the prior, and says it has not converged."""
    prior = some_prior(3)
    estimate = Online().fit(Observations(3), family=family, prior=prior)
    assert estimate.theta.tolist() == estimate.mean.tolist() == prior.mean.tolist()
    assert estimate.precision.tolist() == prior.precision.tolist()
    assert (estimate.n, estimate.converged) == (0, False)


def test_the_prior_is_left_as_it_was() -> None:
    """A fit steps on its own copy of the mean."""
    prior = some_prior(3)
    mean, precision = prior.mean.copy(), prior.precision.copy()
    Online().fit(seen_of(*_data(Bernoulli(), 50, 3)), family=Bernoulli(), prior=prior)
    assert prior.mean.tolist() == mean.tolist()
    assert prior.precision.tolist() == precision.tolist()


def test_a_fit_is_never_due() -> None:
    """The steps are all there is."""
    assert {Online().next_fit(n, (3,)) for n in range(1_000)} == {math.inf}


def test_an_automatic_ridge_stays_where_it_starts() -> None:
    """Steps alone do not estimate a prior."""
    observations = seen_of(*_data(Bernoulli(), 50, 3))
    automatic, fixed = (
        Online().fit(observations, family=Bernoulli(), prior=Prior.ridge(3, ridge))
        for ridge in ("auto", AUTO_START)
    )
    np.testing.assert_array_equal(automatic.theta, fixed.theta)
    np.testing.assert_array_equal(automatic.precision, fixed.precision)


@pytest.mark.parametrize("dim", [2, 4])
def test_a_prior_of_different_width_is_refused(dim: int) -> None:
    """Rows and prior have the same width, wider or narrower."""
    observations = seen_of(*_data(Bernoulli(), 5, 3))
    with pytest.raises(InvalidInput):
        Online().fit(observations, family=Bernoulli(), prior=Prior.ridge(dim))


def test_rewards_outside_the_support_are_refused() -> None:
    """A reward of 2 is none of Bernoulli's."""
    with pytest.raises(InvalidInput, match="outside"):
        Online().fit(
            seen_of(np.ones((1, 1)), np.array([2.0])), family=Bernoulli(), prior=Prior.ridge(1)
        )
