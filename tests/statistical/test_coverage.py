"""What Laplace says of its own errors, and what an estimated prior gains."""

from __future__ import annotations

import math

import numpy as np
import pytest

from belated import Bernoulli, DelayedUCB, delays, environments, simulate
from belated.core.inputs import Vector
from belated.model.estimators import Laplace
from belated.model.priors import Prior
from tests.statistical.problems import Design, bandit_like, independent, sphere

#: Half the width of a 95 % interval, in standard deviations.
HALF = 1.959964


def coverage(design: Design, size: float | None, sets: int) -> float:
    """The share of 95 % intervals for xᵀθ that hold it, over data sets and ten directions x each.

    Without a size, θ* is drawn from the prior.
    """
    prior, covered = Prior.ridge(5), 0
    for k in range(sets):
        rng = np.random.default_rng([5, 300, k])
        length = float(np.linalg.norm(rng.standard_normal(5))) if size is None else size
        problem = design(5, 300, length, rng)
        estimate = Laplace().fit(problem.seen(), family=Bernoulli(), prior=prior)
        x = sphere(10, 5, rng)
        deviations = np.sqrt(np.vecdot(x @ estimate.covariance, x))
        covered += int(np.sum(np.abs(x @ (estimate.mean - problem.theta)) <= HALF * deviations))
    return covered / (10 * sets)


@pytest.mark.parametrize("size", [None, 1.0, 3.0])
def test_intervals_of_laplace_cover_as_often_as_they_say(size: float | None, full: bool) -> None:
    """95 % intervals cover 93–97 % of the time at d = 5, n = 300, whatever |θ*| up to 3."""
    assert 0.93 <= coverage(independent, size, 20_000 if full else 2_000) <= 0.97


def test_intervals_cover_where_rows_were_chosen_by_the_rewards(full: bool) -> None:
    """The same for rows of Thompson sampling, with θ* drawn from the prior."""
    assert 0.93 <= coverage(bandit_like, None, 5_000 if full else 400) <= 0.97


def gains(size: float, sets: int) -> Vector:
    """By how much ridge="auto" lowers |θ̂ - θ*| against ridge 1, for each data set."""
    differences = []
    for k in range(sets):
        problem = bandit_like(10, 300, size, np.random.default_rng([10, 300, k]))
        automatic, fixed = (
            Laplace().fit(problem.seen(), family=Bernoulli(), prior=Prior.ridge(10, ridge)).theta
            for ridge in (1.0, "auto")
        )
        differences.append(
            np.linalg.norm(automatic - problem.theta) - np.linalg.norm(fixed - problem.theta)
        )
    return np.array(differences)


def test_an_estimated_prior_helps_where_theta_is_large(full: bool) -> None:
    """With |θ*| = 8 the mean error falls, beyond five standard errors of paired differences."""
    differences = gains(8.0, 400 if full else 60)
    assert differences.mean() > 5 * differences.std() / math.sqrt(len(differences))


def test_an_estimated_prior_costs_nothing_where_theta_is_of_length_one(full: bool) -> None:
    """With |θ*| = 1 the mean error over paired data sets is no larger than with ridge 1."""
    assert gains(1.0, 400 if full else 60).mean() >= 0


def test_intervals_hold_strong_effects_that_few_actions_show(full: bool) -> None:
    """With |θ*| = 8 on fixed rows, 95 % intervals given the estimated prior are too narrow.

    Those that are shown are not; ``experiments/coverage`` has the table.
    """
    seeds = range(500, 600 if full else 516)
    reported, conditional = [], []
    for seed in seeds:
        world = environments.fixed(seed, norm=8.0)
        law = delays.Geometric(mean=100)
        trace = simulate(DelayedUCB(world.dim, Bernoulli()), world, law, horizon=2_000, seed=seed)
        estimate = trace.learner.estimate
        plain = np.sqrt(np.diag(np.linalg.inv(estimate.precision)))
        errors = np.abs(estimate.mean - world.theta)
        reported.append(float((errors <= HALF * np.sqrt(np.diag(estimate.covariance))).mean()))
        conditional.append(float((np.abs(estimate.theta - world.theta) <= HALF * plain).mean()))
    assert np.mean(reported) >= (0.92 if full else 0.88)
    assert np.mean(reported) - np.mean(conditional) >= 0.02
