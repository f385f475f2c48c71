"""When a simulation warns, and when it does not."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest

from belated import (
    Bernoulli,
    BlindUCB,
    DelayedUCB,
    Gaussian,
    Uniform,
    delays,
    environments,
    simulate,
)
from belated.delays import NEVER, DelayProcess
from belated.exceptions import DelayWarning, InterceptWarning, MissingRewardWarning, ScaleWarning
from belated.simulation.environments import GLM

ORDINARY: dict[str, DelayProcess] = {
    "none": delays.Constant(0),
    "constant": delays.Constant(400),
    "geometric": delays.Geometric(mean=100),
    "slow": delays.Geometric(mean=300),
    "heavy": delays.Lomax(shape=1.2, scale=100),
    "batches": delays.Batched(300),
    "lost": delays.Mixture(never=0.3, base=delays.Geometric(mean=50)),
    "markov": delays.LazyMarkov(0.9, base=delays.Geometric(mean=50)),
}


def said(law: DelayProcess, horizon: int = 1_000, window: int | None = None) -> list[str]:
    """The warnings of a run of DelayedUCB on fixed rows."""
    with warnings.catch_warnings(record=True) as caught_warnings:
        warnings.simplefilter("always")
        world = environments.fixed(1, dim=4, n_arms=5, norm=2.0)
        simulate(DelayedUCB(4, Bernoulli(), ridge=1.0), world, law, horizon=horizon, window=window)
    assert all(issubclass(warning.category, DelayWarning) for warning in caught_warnings)
    return [str(warning.message) for warning in caught_warnings]


@pytest.mark.parametrize("name", ORDINARY)
def test_ordinary_delays_are_not_warned_of(name: str) -> None:
    """Delays that do not depend on the reward, most of which have come: silence."""
    assert said(ORDINARY[name]) == []


@pytest.mark.parametrize("seed", range(6))
def test_learning_alone_is_no_correlation(seed: int) -> None:
    """Rewards grow as a policy learns, and late delays are cut off at the end: still silence."""
    for make, world in (
        (DelayedUCB(10, Bernoulli()), environments.fixed(seed)),
        (BlindUCB(10, Bernoulli()), environments.users(seed)),
    ):
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            simulate(make, world, delays.Geometric(mean=400), horizon=1_500, seed=seed)


def test_most_rewards_missing_at_the_end_is_warned_of() -> None:
    """More than half pending after the last round: the warning says how many of how many."""
    (message,) = said(delays.Mixture(never=0.7, base=delays.Constant(0)))
    count, total = int(message.split()[0]), int(message.split()[2])
    assert total == 1_000
    assert 600 < count < 800
    assert "window" in message


def test_rewards_that_are_only_late_are_not_missing() -> None:
    """A constant delay leaves most of them pending, and none is older than others took."""
    assert said(delays.Constant(600)) == []


def test_a_window_ends_the_warning() -> None:
    """Lapsed decisions are pending no longer."""
    assert said(delays.Mixture(never=0.7, base=delays.Constant(0)), window=50) == []


def test_delays_that_depend_on_the_reward_are_warned_of() -> None:
    """Successes that come later, or sooner, than failures: the sign of the correlation is said."""
    long_delay, short_delay = delays.Geometric(mean=60), delays.Geometric(mean=5)
    (message,) = said(delays.RewardDependent(zero_law=short_delay, one_law=long_delay))
    assert "depend on the reward (correlation 0." in message
    assert "biased" in message
    (message,) = said(delays.RewardDependent(zero_law=long_delay, one_law=short_delay))
    assert "depend on the reward (correlation -0." in message


def test_the_same_law_for_every_reward_is_not_warned_of() -> None:
    """RewardDependent with equal laws is no dependence."""
    law = delays.Geometric(mean=60)
    assert said(delays.RewardDependent(zero_law=law, one_law=law)) == []


def test_both_may_be_said_at_once() -> None:
    """Most are missing, and those that came are not like them."""
    law = delays.RewardDependent(
        zero_law=delays.Mixture(never=0.5, base=delays.Constant(1)),
        one_law=delays.Mixture(never=0.6, base=delays.Geometric(mean=40)),
    )
    messages = said(law, horizon=3_000)
    assert len(messages) == 2
    assert any("have no reward" in message for message in messages)
    assert any("depend on the reward" in message for message in messages)


def test_rewards_of_one_kind_alone_are_warned_of_soon() -> None:
    """Successes that never come: what has come is alike, and most have nothing."""
    law = delays.RewardDependent(zero_law=delays.Constant(0), one_law=delays.Constant(NEVER))
    (message,) = said(law, horizon=200)
    assert message.startswith("all rewards so far are 0")
    assert said(law, horizon=40) == []


def test_no_reward_at_all_is_warned_of_after_a_thousand_rounds() -> None:
    """Nothing is known of the delay, so that little can be said, and late."""
    assert said(delays.Constant(NEVER), horizon=999) == []
    (message,) = said(delays.Constant(NEVER), horizon=1_000)
    assert message.startswith("none of 1000 decisions has a reward")


def test_rewards_of_other_families_are_watched_too() -> None:
    """Gaussian rewards, where the positive ones come late."""
    law = delays.RewardDependent(
        zero_law=delays.Geometric(mean=5), one_law=delays.Geometric(mean=60)
    )
    world = environments.fixed(1, dim=4, n_arms=5, norm=1.0, family=Gaussian())
    with pytest.warns(DelayWarning, match="depend on the reward"):
        simulate(Uniform(4, Gaussian()), world, law, horizon=1_000)


def test_the_warning_points_at_who_simulates() -> None:
    """Its file is the caller's, not the library's."""
    world = environments.fixed(1, dim=4, n_arms=5, norm=2.0)
    with pytest.warns(MissingRewardWarning) as caught_warnings:
        simulate(Uniform(4, Bernoulli()), world, delays.Constant(NEVER), horizon=1_000)
    assert [warning.filename for warning in caught_warnings] == [__file__]


def test_clicks_learned_as_gaussian_without_an_intercept_are_warned_of() -> None:
    """A linear model of 0/1 rewards needs a column of ones, or is wrong everywhere."""
    world = environments.fixed(1)
    with pytest.warns(InterceptWarning, match="intercept"):
        simulate(Uniform(world.dim, Gaussian()), world, delays.Constant(0), horizon=200)


@pytest.mark.parametrize("ridge", [1.0, "auto"])
@pytest.mark.parametrize(("size", "warned"), [(1e-3, 1), (0.1, 0), (1.0, 0), (10.0, 0), (1e3, 1)])
def test_rows_out_of_scale_are_warned_of(size: float, warned: int, ridge: Any) -> None:
    """Those that are a thousand times as long as they should be, or as short."""
    rng = np.random.default_rng(0)
    rows = rng.normal(size=(10, 4))
    rows *= size / np.linalg.norm(rows, axis=1)[:, None]
    world = GLM(rng.normal(size=4) / size, 10, rows, family=Bernoulli())
    with warnings.catch_warnings(record=True) as caught_warnings:
        warnings.simplefilter("always", ScaleWarning)
        simulate(DelayedUCB(4, Bernoulli(), ridge=ridge), world, delays.Constant(0), horizon=300)
    assert [warning.category for warning in caught_warnings] == warned * [ScaleWarning]


def test_clicks_learned_as_gaussian_with_an_intercept_are_not() -> None:
    """Rows with a block and an intercept for each arm have one."""
    world = environments.arms(1)
    simulate(Uniform(world.dim, Gaussian()), world, delays.Constant(0), horizon=300)
