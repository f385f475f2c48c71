from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given, strategies as st

from belated import Bernoulli, Gaussian, Poisson
from belated.core.inputs import Vector
from belated.model.families import Family

FAMILIES: list[Family] = [Gaussian(), Gaussian(0.25), Bernoulli(), Poisson()]
every_family = pytest.mark.parametrize("family", FAMILIES, ids=repr)
#: The step of the differences: their own error is h²/6 of the third derivative.
STEP = 1e-4


def _check(
    family: Family,
    function: Callable[[Vector], Vector],
    derivative: Callable[[Vector], Vector],
    eta: float,
    size: float = 0.0,
) -> None:
    """The derivative equals the central difference, to truncation and rounding.

    Functions that cancel give the ``size`` of what they subtract.
    """
    low, high = eta - STEP, eta + STEP
    below, above = (float(function(np.array(point))) for point in (low, high))
    expected = (above - below) / (high - low)
    slope = float(derivative(np.array(eta)))
    # In every family here the third derivatives are at most a few times the slope.
    truncation = 1e-7 * (abs(slope) + float(family.slope(np.array(eta))))
    rounding = 1e-11 * max(abs(above), abs(below), abs(eta) * abs(slope), size)
    assert abs(slope - expected) <= truncation + rounding


@every_family
@given(eta=st.floats(-100.0, 100.0))
def test_the_mean_is_the_derivative_of_the_cumulant(family: Family, eta: float) -> None:
    """G = m'."""
    _check(family, family.cumulant, family.mean, eta)


@every_family
@given(eta=st.floats(-100.0, 100.0))
def test_the_slope_is_the_derivative_of_the_mean(family: Family, eta: float) -> None:
    """The slope is g', close to zero as well as far out."""
    _check(family, family.mean, family.slope, eta)


@every_family
@given(eta=st.floats(-100.0, 100.0))
def test_the_curvature_is_the_derivative_of_the_slope(family: Family, eta: float) -> None:
    """The curvature is g''."""
    _check(family, family.slope, family.curvature, eta)


@every_family
@given(eta=st.floats(-30.0, 30.0), y=st.sampled_from([0.0, 1.0]))
def test_the_score_is_the_derivative_of_the_likelihood(
    family: Family, eta: float, y: float
) -> None:
    """∂ log p(y | η)/∂η = (y - g(η))/φ: the canonical link."""
    phi = family.dispersion or 1.0

    def likelihood(at: Vector) -> Vector:
        return phi * family.log_likelihood(np.full(at.shape, y), at, phi)

    size = abs(y * eta) + float(family.cumulant(np.array(eta)))
    _check(family, likelihood, lambda point: y - family.mean(point), eta, size)


@every_family
@given(pair=st.tuples(st.floats(-700.0, 700.0), st.floats(-700.0, 700.0)))
def test_the_mean_rises_within_the_support(family: Family, pair: tuple[float, float]) -> None:
    """A greater predictor never has a smaller mean, and each mean could be a reward."""
    low, high = sorted(pair)
    means = family.mean(np.array([low, high]))
    assert means[0] <= means[1]
    family.support.check(means)


@every_family
@given(eta=st.lists(st.floats(-700.0, 700.0), min_size=1, max_size=10))
def test_a_vector_is_taken_entry_by_entry(family: Family, eta: list[float]) -> None:
    """Each function of a vector is that of its entries, one by one."""
    vector = np.array(eta)
    for function in (family.cumulant, family.mean, family.slope, family.curvature):
        scalars = [float(function(np.array([point]))[0]) for point in eta]
        np.testing.assert_allclose(function(vector), scalars, rtol=1e-14)
    links = np.array([family.mean_and_slope(point) for point in eta])
    np.testing.assert_allclose(links[:, 0], family.mean(vector), rtol=1e-14)
    np.testing.assert_allclose(links[:, 1], family.slope(vector), rtol=1e-14)
