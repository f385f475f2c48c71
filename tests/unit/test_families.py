import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from scipy import stats

from belated import Bernoulli, Gaussian, Poisson
from belated.core.inputs import Interval, Vector
from belated.exceptions import InvalidInput
from belated.model.families import Family

#: Each family with the distribution of a reward at a linear predictor, as SciPy knows it.
REGISTRY: list[tuple[Family, Callable[[Any], Any]]] = [
    (Gaussian(1.0), lambda eta: stats.norm(eta, 1.0)),
    (Gaussian(0.25), lambda eta: stats.norm(eta, 0.5)),
    (Bernoulli(), lambda eta: stats.bernoulli(1.0 / (1.0 + np.exp(-eta)))),
    (Poisson(), lambda eta: stats.poisson(np.exp(eta))),
]
FAMILIES = [family for family, _ in REGISTRY]
MODERATE = np.linspace(-6.0, 6.0, 49)
WIDE = np.concatenate([np.linspace(-700.0, 700.0, 281), [-1e-300, 5e-324, -0.0, 36.0, 37.5]])

every_family = pytest.mark.parametrize("family", FAMILIES, ids=repr)
with_reference = pytest.mark.parametrize(("family", "reference"), REGISTRY, ids=repr)


def _phi(family: Family) -> float:
    assert family.dispersion is not None
    return family.dispersion


def _rewards(family: Family) -> list[float]:
    return [0.0, 1.0] if isinstance(family, Bernoulli) else [0.0, 1.0, 2.0, 30.0]


@with_reference
def test_mean_and_variance_are_those_of_the_distribution(
    family: Family, reference: Callable[[Any], Any]
) -> None:
    """g(η) is the mean of a reward, and φ g'(η) its variance."""
    distribution = reference(MODERATE)
    np.testing.assert_allclose(family.mean(MODERATE), distribution.mean(), rtol=1e-12)
    np.testing.assert_allclose(
        _phi(family) * family.slope(MODERATE), distribution.var(), rtol=1e-10
    )


@with_reference
def test_the_likelihood_is_the_density_of_the_distribution(
    family: Family, reference: Callable[[Any], Any]
) -> None:
    """log_likelihood equals SciPy's logpdf or logpmf."""
    distribution = reference(MODERATE)
    density = distribution.logpdf if isinstance(family, Gaussian) else distribution.logpmf
    for y in _rewards(family):
        likelihood = family.log_likelihood(np.full(len(MODERATE), y), MODERATE, _phi(family))
        np.testing.assert_allclose(likelihood, density(y), rtol=1e-9, atol=1e-11)


@with_reference
def test_the_likelihood_is_the_exponential_family(
    family: Family, reference: Callable[[Any], Any]
) -> None:
    """Between two predictors the density changes by ((η₁ - η₀) y - m(η₁) + m(η₀))/φ."""
    low, high = np.array([-1.5]), np.array([2.0])
    for y in _rewards(family):
        density = "logpdf" if isinstance(family, Gaussian) else "logpmf"
        change = getattr(reference(high), density)(y) - getattr(reference(low), density)(y)
        tilt = (high - low) * y - family.cumulant(high) + family.cumulant(low)
        np.testing.assert_allclose(tilt / _phi(family), change, rtol=1e-10, atol=1e-11)


@every_family
def test_everything_is_finite_up_to_700(family: Family, full: bool) -> None:
    """No function overflows, divides by zero or warns for |η| ≤ 700."""
    eta = np.linspace(-700.0, 700.0, 1_400_001) if full else WIDE
    for function in (family.cumulant, family.mean, family.slope, family.curvature):
        assert np.isfinite(function(eta)).all()
    for values in family.cumulant_mean_slope(eta):
        assert np.isfinite(values).all()
    for y in _rewards(family):
        assert np.isfinite(family.log_likelihood(np.full(len(eta), y), eta, _phi(family))).all()
    assert np.isfinite(np.array([family.mean_and_slope(float(point)) for point in eta])).all()
    assert (family.slope(eta) > 0.0).all()


@every_family
def test_samples_are_finite_up_to_700(family: Family) -> None:
    """Rewards can be drawn at any linear predictor, and lie in the support."""
    rewards = family.sample(WIDE, np.random.default_rng(0), _phi(family))
    assert rewards.shape == WIDE.shape
    assert np.isfinite(rewards).all()
    family.support.check(rewards)


@every_family
def test_one_number_gives_what_the_arrays_give(family: Family) -> None:
    """mean_and_slope equals mean and slope."""
    pairs = np.array([family.mean_and_slope(float(eta)) for eta in WIDE])
    np.testing.assert_allclose(pairs[:, 0], family.mean(WIDE), rtol=1e-14)
    np.testing.assert_allclose(pairs[:, 1], family.slope(WIDE), rtol=1e-14)


@every_family
def test_all_at_once_gives_what_one_by_one_gives(family: Family) -> None:
    """cumulant_mean_slope equals cumulant, mean and slope, each to rounding."""
    cumulant, mean, slope = family.cumulant_mean_slope(WIDE)
    np.testing.assert_allclose(cumulant, family.cumulant(WIDE), rtol=1e-14, atol=3e-16)
    np.testing.assert_allclose(mean, family.mean(WIDE), rtol=1e-14)
    np.testing.assert_allclose(slope, family.slope(WIDE), rtol=1e-14)


@pytest.mark.parametrize("eta", [-40.0, -300.0, -700.0])
def test_a_rare_success_keeps_its_digits(eta: float) -> None:
    """Far below zero, mean, slope and cumulant of Bernoulli are all e^η, and do not cancel."""
    family, point = Bernoulli(), np.array([eta])
    for function in (family.mean, family.slope, family.cumulant, family.curvature):
        np.testing.assert_allclose(function(point), math.exp(eta), rtol=1e-14)
    np.testing.assert_allclose(family.slope(-point), math.exp(eta), rtol=1e-14)
    np.testing.assert_allclose(family.curvature(-point), -math.exp(eta), rtol=1e-14)


def test_poisson_is_held_beyond_700() -> None:
    """The mean stays finite at any linear predictor."""
    assert Poisson().mean(np.array([1e5])) == pytest.approx(math.exp(700.0))
    assert Poisson().mean_and_slope(-1e5)[0] == pytest.approx(math.exp(-700.0), rel=1e-12)


@pytest.mark.parametrize(
    ("family", "lower", "upper"),
    [
        (Gaussian(1.0), -math.inf, math.inf),
        (Bernoulli(), 0.0, 1.0),
        (Poisson(), 0.0, math.inf),
    ],
    ids=repr,
)
def test_the_support_is_where_rewards_live(family: Family, lower: float, upper: float) -> None:
    """Gaussian rewards are any number, Bernoulli's in [0, 1], Poisson's from 0 up."""
    assert (family.support.lower, family.support.upper) == (lower, upper)


@every_family
@pytest.mark.parametrize("eta", [-2.0, 0.0, 1.5])
def test_samples_have_the_stated_mean_and_variance(family: Family, eta: float, full: bool) -> None:
    """The mean is g(η) and the variance φ g'(η), within five standard errors."""
    n = 1_000_000 if full else 40_000
    y = family.sample(np.full(n, eta), np.random.default_rng(7), _phi(family))
    _five_errors(y, float(family.mean(np.array(eta))))
    deviation = np.square(y - family.mean(np.array(eta)))
    _five_errors(deviation, _phi(family) * float(family.slope(np.array(eta))))


def test_counts_beyond_whole_floats_have_the_stated_mean_and_variance() -> None:
    """Above 1e15 the normal limit has mean and variance e^η too."""
    mean = math.exp(36.0)
    scaled = (Poisson().sample(np.full(40_000, 36.0), np.random.default_rng(7)) - mean) / 6.5e7
    _five_errors(scaled, 0.0)
    _five_errors(np.square(scaled), mean / 6.5e7**2)


def _five_errors(values: Vector, expected: float) -> None:
    error = float(values.std()) / math.sqrt(len(values))
    assert abs(float(values.mean()) - expected) <= 5.0 * error


def test_a_poisson_sample_at_700_is_finite() -> None:
    """A mean of 1e304 gives rewards close to it, where NumPy's own sampler would refuse."""
    y = Poisson().sample(np.full(10, 700.0), np.random.default_rng(0))
    np.testing.assert_allclose(y, math.exp(700.0), rtol=1e-12)


@pytest.mark.parametrize("variance", [0.0, -1.0, math.nan, math.inf, "much", None, [1.0], 1j])
def test_a_variance_that_is_not_positive_is_refused(variance: Any) -> None:
    """Gaussian takes a finite number above 0 or "estimate"."""
    with pytest.raises(InvalidInput, match="`variance` must be") as error:
        Gaussian(variance)
    assert error.value.value is variance or math.isnan(variance)


def test_a_variance_to_estimate_is_no_number() -> None:
    """The dispersion is None until it is estimated; a given one is the variance."""
    assert Gaussian("estimate").dispersion is None
    assert Gaussian(2).dispersion == 2.0


def test_families_are_values() -> None:
    """Equal parameters make equal, hashable families."""
    assert Gaussian(0.25) == Gaussian(0.25) != Gaussian(1.0)
    assert len({Bernoulli(), Bernoulli(), Poisson()}) == 2
    with pytest.raises(AttributeError):
        Gaussian(1.0).variance = 2.0  # type: ignore[misc]


def test_an_interval_holds_its_ends() -> None:
    """Both bounds are inside; anything beyond, and NaN, is not."""
    unit = Interval(0.0, 1.0)
    assert 0.0 in unit
    assert 1.0 in unit
    assert -1e-300 not in unit
    assert not unit.__contains__(math.nan)


@pytest.mark.parametrize("value", [-0.1, 1.5, math.nan, math.inf])
def test_an_interval_names_the_first_reward_outside(value: float) -> None:
    """One number or many: the error carries the first that is outside."""
    with pytest.raises(InvalidInput, match="outside") as error:
        Interval(0.0, 1.0).check([0.5, value, 7.0])
    assert error.value.value == value or math.isnan(error.value.value)
    with pytest.raises(InvalidInput):
        Interval(0.0, 1.0).check(value)


@every_family
def test_infinity_is_no_reward(family: Family) -> None:
    """A support without a bound still holds finite rewards only."""
    for value in (math.inf, -math.inf, math.nan):
        with pytest.raises(InvalidInput):
            family.support.check(value)
