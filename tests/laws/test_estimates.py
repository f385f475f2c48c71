from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from hypothesis import given, strategies as st
from hypothesis.extra import numpy as arrays

from belated import Bernoulli, Gaussian, Poisson
from belated.core.inputs import Row, Vector
from belated.model.estimators import Estimate, Laplace, Ridge
from belated.model.families import Family
from belated.model.model import Model
from belated.model.priors import Prior
from belated.model.statistics import Observations

# Rows near zero length and prior are out of scale, rightly; it is not what is tested here.

GAUSSIAN, BERNOULLI, POISSON = Gaussian(0.25), Bernoulli(), Poisson()
newton = pytest.mark.parametrize("family", [BERNOULLI, POISSON], ids=repr)
REWARDS: dict[Family, st.SearchStrategy[float]] = {
    GAUSSIAN: st.floats(-10.0, 10.0),
    BERNOULLI: st.sampled_from([0.0, 1.0]) | st.floats(0.0, 1.0),
    POISSON: st.integers(0, 20).map(float),
}


@dataclass
class Problem:
    """Rows and rewards, and an order to take them in."""

    rows: Row
    y: Vector
    order: list[int]

    def __post_init__(self) -> None:
        self.dim = int(self.rows.shape[1])


@st.composite
def problems(draw: st.DrawFn, family: Family, least: int = 0) -> Problem:
    """Any few rows of a length of about one, doubled and zero rows among them."""
    dim, n = draw(st.integers(1, 4)), draw(st.integers(least, 25))
    rows = draw(arrays.arrays(np.float32, (n, dim), elements=st.floats(-1.0, 1.0, width=32)))
    y = draw(arrays.arrays(np.float64, n, elements=REWARDS[family]))
    return Problem(rows, y, list(draw(st.permutations(range(n)))))


def _seen(problem: Problem, which: list[int]) -> Observations:
    observations = Observations(problem.dim)
    observations.extend(problem.rows[which], problem.y[which])
    return observations


def _ridge_same(found: Estimate, expected: Estimate) -> None:
    """To 1e-12 of the scale of θ and of H."""
    scale = max(float(np.abs(expected.theta).max()), 1.0)
    assert np.abs(found.theta - expected.theta).max() <= 1e-12 * scale
    size = np.abs(expected.precision).max()
    assert np.abs(found.precision - expected.precision).max() <= 1e-12 * size


def _laplace_same(found: Estimate, expected: Estimate) -> None:
    """θ to 1e-8 posterior standard deviations in any direction, H to 1e-6 of its size."""
    assert found.converged
    assert expected.converged
    delta = found.theta - expected.theta
    assert delta @ expected.precision @ delta <= 1e-16
    size = np.abs(expected.precision).max()
    assert np.abs(found.precision - expected.precision).max() <= 1e-6 * size
    assert found.n == expected.n


def _same(family: Family, found: Estimate, expected: Estimate) -> None:
    (_ridge_same if isinstance(family, Gaussian) else _laplace_same)(found, expected)


def _fit(family: Family, seen: Observations, **more: Any) -> Estimate:
    estimator = Ridge() if isinstance(family, Gaussian) else Laplace()
    return estimator.fit(seen, family=family, prior=Prior.ridge(seen.shape), **more)


every_family = pytest.mark.parametrize("family", [GAUSSIAN, BERNOULLI, POISSON], ids=repr)


@every_family
@given(data=st.data())
def test_the_order_does_not_matter(family: Family, data: st.DataObject) -> None:
    """Any permutation of the observations gives the same estimate."""
    problem = data.draw(problems(family))
    estimate = _fit(family, _seen(problem, list(range(len(problem.y)))))
    _same(family, _fit(family, _seen(problem, problem.order)), estimate)


@every_family
@given(data=st.data())
def test_partitions_do_not_matter(family: Family, data: st.DataObject) -> None:
    """Any split, merged again in any grouping, gives the same estimate."""
    problem = data.draw(problems(family))
    cuts = data.draw(st.lists(st.integers(0, len(problem.y)), min_size=2, max_size=2).map(sorted))
    parts = [
        _seen(problem, problem.order[start:stop])
        for start, stop in zip([0, *cuts], [*cuts, len(problem.y)], strict=True)
    ]
    estimate = _fit(family, _seen(problem, list(range(len(problem.y)))))
    _same(family, _fit(family, (parts[0] + parts[1]) + parts[2]), estimate)
    _same(family, _fit(family, parts[2] + (parts[0] + parts[1])), estimate)


@newton
@given(data=st.data())
def test_the_start_does_not_matter(family: Family, data: st.DataObject) -> None:
    """From wherever Newton's method begins, it ends at the same estimate."""
    problem = data.draw(problems(family))
    coordinates = st.floats(-3.0, 3.0)
    start = data.draw(arrays.arrays(np.float64, problem.dim, elements=coordinates))
    observations = _seen(problem, problem.order)
    _laplace_same(_fit(family, observations, start=start), _fit(family, observations))


@every_family
@given(data=st.data())
def test_a_revision_is_a_removal_and_an_addition(family: Family, data: st.DataObject) -> None:
    """Bit for bit what the new reward would have given at once, and the same as moved rows."""
    problem = data.draw(problems(family, least=1))
    index = data.draw(st.integers(0, len(problem.y) - 1))
    reward = data.draw(REWARDS[family])
    indices = list(range(len(problem.y)))
    revised, moved = _seen(problem, indices), _seen(problem, indices)
    revised.revise(index, reward)
    moved.remove(index)
    moved.add(problem.rows[index], reward)
    problem.y[index] = reward
    estimate, reference = _fit(family, revised), _fit(family, _seen(problem, indices))
    assert estimate.theta.tobytes() == reference.theta.tobytes()
    assert estimate.precision.tobytes() == reference.precision.tobytes()
    _same(family, _fit(family, moved), estimate)


@every_family
@given(data=st.data())
def test_a_removal_leaves_what_was_never_added(family: Family, data: st.DataObject) -> None:
    """The estimate after removals is that of the rest alone."""
    problem = data.draw(problems(family, least=1))
    removed = data.draw(st.sets(st.integers(0, len(problem.y) - 1)))
    observations = _seen(problem, list(range(len(problem.y))))
    for handle in removed:
        observations.remove(handle)
    remaining = [i for i in range(len(problem.y)) if i not in removed]
    _same(family, _fit(family, observations), _fit(family, _seen(problem, remaining)))


def _learned(family: Family, problem: Problem) -> Model:
    model = Model(Prior.ridge(problem.dim), family)
    for i in problem.order:
        model.learn(problem.rows[i], float(problem.y[i]))
    return model


@given(data=st.data())
def test_a_gaussian_model_revises_as_it_retracts_and_learns(data: st.DataObject) -> None:
    """One step gives what two give, and what the new reward would have given at once, to 1e-9."""
    problem = data.draw(problems(GAUSSIAN, least=1))
    reward = data.draw(REWARDS[GAUSSIAN])
    revised, stepped = _learned(GAUSSIAN, problem), _learned(GAUSSIAN, problem)
    x, y = problem.rows[0], float(problem.y[0])
    revised.revise(x, y, reward)
    assert stepped.retract(x, y, 4.0)
    assert stepped.learn(x, reward) == 4.0
    problem.y[0] = reward
    fresh = _learned(GAUSSIAN, problem)
    for model in (stepped, fresh):
        np.testing.assert_allclose(revised.theta, model.theta, atol=1e-9)
        np.testing.assert_allclose(
            revised.observed @ revised.observed.T, model.observed @ model.observed.T, atol=1e-9
        )
        assert (revised.n, revised.pending) == (model.n, model.pending)


@given(problem=problems(GAUSSIAN, least=1))
def test_a_gaussian_reward_can_be_taken_back(problem: Problem) -> None:
    """Retract after learn restores θ and the covariance to 1e-9, whenever it comes."""
    model = _learned(GAUSSIAN, problem)
    for i in range(len(problem.y)):
        remaining = Problem(problem.rows[i + 1 :], problem.y[i + 1 :], [])
        remaining.order = list(range(len(remaining.y)))
        assert model.retract(problem.rows[i], float(problem.y[i]), 4.0)
        expected = _learned(GAUSSIAN, remaining)
        np.testing.assert_allclose(model.theta, expected.theta, atol=1e-9)
        covariance = expected.observed @ expected.observed.T
        np.testing.assert_allclose(model.observed @ model.observed.T, covariance, atol=1e-9)


@given(problem=problems(GAUSSIAN))
def test_gaussian_steps_and_fits_are_one(problem: Problem) -> None:
    """The model after one step per reward holds the estimate of all, in any order, to 1e-9."""
    model = _learned(GAUSSIAN, problem)
    estimate = _fit(GAUSSIAN, _seen(problem, list(range(len(problem.y)))))
    np.testing.assert_allclose(model.theta, estimate.theta, atol=1e-9)
    covariance = np.linalg.inv(estimate.precision)
    np.testing.assert_allclose(model.observed @ model.observed.T, covariance, atol=1e-9)
