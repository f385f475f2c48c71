"""The pool of draws that DelayedThompson scores rows with."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from scipy.special import ndtri

from belated import (
    BlindThompson,
    DelayedThompson,
    Gaussian,
)
from belated.fold.learner import Learner
from belated.model.model import Model
from belated.model.priors import Prior
from tests.unit.policy_examples import B, busy, rng


def pool_of(model: Model) -> Any:
    """The only thing that was derived from the model: the deviations it is sampled with."""
    ((pool, _),) = model.derived.values()
    return pool


def test_a_pool_is_kept_until_decisions_have_grown_by_a_tenth() -> None:
    """Drawn at 100 decisions it serves until 111, and a new one is drawn at 112."""
    policy = DelayedThompson(3, Gaussian(1.0))
    learner = busy(policy, decisions=100)
    model, rows = learner.model, rng(1).normal(size=(5, 3))
    policy.choose(model, rows, rng(2))
    pool = pool_of(model)
    for _ in range(11):
        learner.add_pending(rows[0], 1.0)
        policy.choose(model, rows, rng(3))
        assert pool_of(model) is pool
    learner.add_pending(rows[0], 1.0)
    policy.choose(model, rows, rng(3))
    assert pool_of(model) is not pool


def test_rewards_do_not_make_a_pool_older() -> None:
    """A reward moves θ̂, and decisions are as many as before: the deviations stay."""
    policy = DelayedThompson(3, Gaussian(1.0), ridge=1.0)
    learner = Learner(policy)
    rows = rng(1).normal(size=(5, 3))
    for _ in range(50):
        learner.add_pending(rows[0], 1.0)
    policy.choose(learner.model, rows, rng(2))
    pool = pool_of(learner.model)
    for _ in range(50):
        learner.learn(rows[0], 1.0, 1.0)
        policy.choose(learner.model, rows, rng(3))
        assert pool_of(learner.model) is pool


def test_a_fit_throws_the_pool_away() -> None:
    """The deviations were of other roots."""
    policy = DelayedThompson(3, B)
    learner = busy(policy)
    policy.choose(learner.model, np.eye(3), rng())
    learner.fit()
    assert learner.model.derived == {}


def test_two_policies_that_read_one_model_keep_apart_what_they_derive() -> None:
    """Each has a pool with draws of its own scale and number."""
    model = busy(DelayedThompson(3, B)).model
    small, large = DelayedThompson(3, B, draws=4), DelayedThompson(3, B, draws=256)
    small.choose(model, np.eye(3), rng())
    large.choose(model, np.eye(3), rng())
    assert small.pool(model, 3, rng()).shape[2] == 4
    assert large.pool(model, 3, rng()).shape[2] == 256


def test_a_choice_is_that_of_the_current_theta() -> None:
    """With the pool kept, a θ̂ far in one direction decides alone."""
    policy = DelayedThompson(3, Gaussian(1.0))
    model = busy(policy).model
    policy.choose(model, np.eye(3), rng())
    pool = pool_of(model)
    for index in range(3):
        model.theta[:] = 100.0 * np.eye(3)[index]
        choice = policy.choose(model, np.eye(3), rng(index))
        assert (choice.index, choice.propensity) == (index, 1.0)
    assert pool_of(model) is pool


@pytest.mark.parametrize("pending", [0, 30])
def test_a_pool_has_the_deviations_of_the_posterior(pending: int) -> None:
    """Scaled, and with pending decisions counted: the covariance of 40,000 draws, to 5 %."""
    policy = DelayedThompson(3, Gaussian(1.0), scale=0.7, draws=40_000)
    learner = busy(policy, decisions=20)
    for x in rng(7).normal(size=(pending, 3)):
        learner.add_pending(x, 1.0)
    policy.choose(learner.model, np.eye(3), rng())
    pool = np.asarray(pool_of(learner.model), dtype=np.float64)
    assert pool.shape == (1, 4, 40_000)
    assert (pool[0, 3] == 1.0).all()  # by which the means enter
    expected = 0.49 * learner.model.decided @ learner.model.decided.T
    np.testing.assert_allclose(np.cov(pool[0, :3]), expected, rtol=0.05, atol=0.02 * expected.max())


def test_without_refresh_every_choice_has_a_pool_of_its_own() -> None:
    """refresh=0 draws anew at every choice, though nothing was decided in between."""
    policy = BlindThompson(3, Gaussian(1.0), refresh=0.0)
    model = busy(policy).model
    pools = []
    source = rng()
    for _ in range(5):
        policy.choose(model, np.eye(3), source)
        pools.append(pool_of(model).tobytes())
    assert len(set(pools)) == 5


def test_without_refresh_lapsed_decisions_keep_no_pool() -> None:
    """refresh=0 draws anew also where fewer decisions count than at the last choice."""
    policy = BlindThompson(3, Gaussian(1.0), refresh=0.0)
    learner = busy(policy)
    policy.choose(learner.model, np.eye(3), rng())
    pool = pool_of(learner.model)
    for x in np.eye(3):
        learner.add_pending(x, 1.0)
        learner.remove_pending(x, 1.0)
        learner.remove_pending(x, 1.0)
    policy.choose(learner.model, np.eye(3), rng(1))
    assert pool_of(learner.model) is not pool


def test_many_rows_are_scored_with_half_the_draws() -> None:
    """Above 32 rows 32 of 64 draws choose: propensities are multiples of 1/32."""
    policy = DelayedThompson(3, B, scale=2.0)
    for count, draws in ((32, 64), (33, 32)):
        model = busy(policy).model
        choice = policy.choose(model, rng(1).normal(size=(count, 3)), rng())
        assert pool_of(model).shape == (1, 4, draws)
        assert (choice.propensity * draws) % 1.0 == 0.0


def test_thompson_likes_what_is_uncertain() -> None:
    """Of two rows with equal means the one with the larger deviation wins half of the time.

    Of m - δ against m, with deviations s and 0, it is the normal quantile: P(N > δ/s).
    """
    policy = DelayedThompson(2, Gaussian(1.0), scale=1.0, draws=20_000)
    model = Model(Prior.normal([1.0, 0.0], np.diag([1e12, 1.0])), Gaussian(1.0))
    gap = float(-ndtri(0.2))
    rows = np.array([[gap, 0.0], [0.0, 1.0]])
    propensities = {}
    source = rng()
    for _ in range(50):
        choice = policy.choose(model, rows, source)
        propensities[choice.index] = choice.propensity
    assert propensities[1] == pytest.approx(0.2, abs=0.02)
