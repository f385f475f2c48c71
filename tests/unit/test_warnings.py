"""When a simulation warns, and when it does not."""

from __future__ import annotations

import warnings

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
from belated.exceptions import DelayWarning, InterceptWarning
from belated.simulation.rounds import ENOUGH, watch

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
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        world = environments.fixed(1, dim=4, n_arms=5, norm=2.0)
        simulate(DelayedUCB(4, Bernoulli(), ridge=1.0), world, law, horizon=horizon, window=window)
    assert all(issubclass(warning.category, DelayWarning) for warning in caught)
    return [str(warning.message) for warning in caught]


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


def test_half_of_the_rewards_missing_is_not_most() -> None:
    """A constant delay of half the rounds leaves half of them pending: silence; one more warns."""
    assert said(delays.Constant(500)) == []
    assert len(said(delays.Constant(501))) == 1


def test_a_window_ends_the_warning() -> None:
    """Lapsed decisions are pending no longer."""
    assert said(delays.Mixture(never=0.7, base=delays.Constant(0)), window=50) == []


def test_delays_that_depend_on_the_reward_are_warned_of() -> None:
    """Successes that come later, or sooner, than failures: the sign of the correlation is said."""
    late, soon = delays.Geometric(mean=60), delays.Geometric(mean=5)
    (message,) = said(delays.RewardDependent(zero_law=soon, one_law=late))
    assert "depend on the reward (correlation 0." in message
    assert "biased" in message
    (message,) = said(delays.RewardDependent(zero_law=late, one_law=soon))
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
    assert any("still without a reward" in message for message in messages)
    assert any("depend on the reward" in message for message in messages)


def test_short_runs_say_nothing() -> None:
    """Below 500 rounds nothing is known of delays."""
    law = delays.RewardDependent(zero_law=delays.Constant(0), one_law=delays.Constant(NEVER))
    assert said(law, horizon=ENOUGH - 1) == []
    assert len(said(law, horizon=ENOUGH)) == 1


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
    with pytest.warns(DelayWarning) as caught:
        simulate(Uniform(4, Bernoulli()), world, delays.Constant(NEVER), horizon=600)
    assert [warning.filename for warning in caught] == [__file__]


@pytest.mark.parametrize(
    ("correlation", "count", "warned"),
    [
        (0.0, 2_000, False),
        (0.3, 2_000, True),
        (-0.3, 2_000, True),
        (0.17, 800, False),  # 4.8 standard errors
        (0.18, 800, True),  # 5.1
        (0.09, 40_000, False),
        (0.11, 40_000, True),
    ],
)
def test_a_correlation_must_be_plain_and_beyond_chance(
    correlation: float, count: int, warned: bool
) -> None:
    """More than .1 with the logarithm of the delay, and more than five standard errors."""
    rng = np.random.default_rng(0)
    waits = np.floor(np.exp(2.0 + rng.normal(size=count))).astype(np.int64)
    logs = np.log1p(waits.astype(float))
    common = (logs - logs.mean()) / logs.std()
    own = rng.normal(size=count)
    own -= own.mean() + common * (own @ common) / count
    rewards = correlation * common + np.sqrt(1.0 - correlation**2) * own / own.std()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        # Rounds whose rewards are still out follow: all of these have come, and count alone.
        late = np.append(waits, np.full(5_000, NEVER))
        watch(late, np.append(rewards, np.zeros(5_000)), np.zeros(len(late), dtype=np.int64))
    assert len(caught) == warned


def test_clicks_learned_as_gaussian_without_an_intercept_are_warned_of() -> None:
    """A linear model of 0/1 rewards needs a column of ones, or is wrong everywhere."""
    world = environments.fixed(1)
    with pytest.warns(InterceptWarning, match="intercept"):
        simulate(DelayedUCB(world.dim, Gaussian()), world, delays.Constant(0), horizon=200)


def test_clicks_learned_as_gaussian_with_an_intercept_are_not() -> None:
    """Rows with a block and an intercept for each arm have one."""
    world = environments.arms(1)
    simulate(Uniform(world.dim, Gaussian()), world, delays.Constant(0), horizon=300)
