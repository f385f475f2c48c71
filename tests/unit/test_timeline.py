"""Who knows what when: the reward of round s is used in round t if and only if s + D_s ≤ t - 1."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from belated import (
    Bernoulli,
    BlindThompson,
    BlindUCB,
    DelayedThompson,
    DelayedUCB,
    Gaussian,
    Uniform,
    delays,
    simulate,
)
from belated.core.inputs import Matrix, Vector
from belated.delays import NEVER, DelayProcess
from belated.exceptions import InvalidInput
from belated.policies import Policy
from belated.simulation import Trace
from belated.simulation.environments import Environment
from tests.unit.watched_runs import arrived_by, gram, run, world

LAWS: list[DelayProcess] = [
    delays.Constant(0),
    delays.Constant(5),
    delays.Geometric(mean=10),
    delays.Lomax(shape=0.8, scale=5),
    delays.Batched(7),
    delays.Batched(7, offset=3),
    delays.Mixture(never=0.3, base=delays.Geometric(mean=4)),
    delays.LazyMarkov(0.8, base=delays.Uniform(30)),
    delays.BlockDependent(delays.Geometric(mean=20), length=10),
]
every_law = pytest.mark.parametrize("law", LAWS, ids=repr)


class Recorded:
    """An environment that remembers what it offered and the luck it was asked with."""

    def __init__(self, world: Environment) -> None:
        self.world = world
        self.dim, self.family = world.dim, world.family
        self.rows: list[Matrix] = []
        self.luck: list[float] = []

    def rounds(self, horizon: int, rng: np.random.Generator) -> Iterator[tuple[Matrix, Vector]]:
        """Those of the world."""
        for rows, means in self.world.rounds(horizon, rng):
            self.rows.append(np.array(rows))
            yield rows, means

    def reward(self, mean: float, u: float) -> float:
        """That of the world."""
        self.luck.append(u)
        return self.world.reward(mean, u)


@every_law
def test_observed_and_pending_are_all_decisions(law: DelayProcess) -> None:
    """n_t + G_t = t - 1 in every round, n_t the rewards with s + D_s ≤ t - 1."""
    trace, states = run(DelayedUCB(3, Bernoulli()), law, 300)
    assert len(states) == 300
    for t, state in enumerate(states, start=1):
        assert state.n + state.pending == t - 1
        assert state.n == arrived_by(trace.delay, t).sum()
        assert trace.pending[t - 1] == state.pending


@pytest.mark.parametrize("make", [BlindUCB, BlindThompson, DelayedThompson, Uniform])
def test_every_policy_counts_alike(make: type[Policy]) -> None:
    """n_t + G_t = t - 1 whether or not pending decisions count as explored."""
    trace, states = run(make(3, Bernoulli()), delays.Geometric(mean=10), 200)
    assert [state.n + state.pending for state in states] == list(range(200))
    assert [state.pending for state in states] == trace.pending.tolist()
    assert trace.pending.max() > 5


@every_law
def test_pending_grows_by_one_less_the_arrivals(law: DelayProcess) -> None:
    """G_{t+1} = G_t + 1 - |I_t|, I_t the rounds s with s + D_s = t."""
    trace, _ = run(DelayedUCB(3, Bernoulli()), law, 300)
    rounds = np.arange(1, 301)
    for t in range(1, 300):
        arrivals = int((rounds + trace.delay == t).sum())
        assert trace.pending[t] == trace.pending[t - 1] + 1 - arrivals


@every_law
def test_the_information_of_all_is_that_of_observed_and_pending(law: DelayProcess) -> None:
    """V = W + P in every round, from the rows chosen and the delays; Gaussian weights are 1."""
    trace, states = run(DelayedUCB(3, Gaussian(1.0), ridge=1.0), law, 120)
    rows = [state.x for state in states]
    for t, state in enumerate(states, start=1):
        arrived = arrived_by(trace.delay, t)
        W, P = gram(rows, arrived), gram(rows, ~arrived)
        np.testing.assert_allclose(state.observed, np.eye(3) + W, rtol=1e-9, atol=1e-9)
        np.testing.assert_allclose(state.decided, np.eye(3) + W + P, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("c", [0, 1, 5, 40, 500])
def test_a_constant_delay_keeps_as_many_rewards_out(c: int) -> None:
    """G_t = min(t - 1, c)."""
    trace, _ = run(DelayedUCB(3, Bernoulli()), delays.Constant(c), 100)
    assert trace.pending.tolist() == [min(t - 1, c) for t in range(1, 101)]
    assert (trace.delay == c).all()


@pytest.mark.parametrize("period", [1, 2, 7, 24])
def test_at_midnight_everything_has_arrived(period: int) -> None:
    """G_t = (t - 1) mod P."""
    trace, _ = run(DelayedUCB(3, Bernoulli()), delays.Batched(period), 100)
    assert trace.pending.tolist() == [(t - 1) % period for t in range(1, 101)]


@every_law
def test_a_reward_is_used_from_the_round_after_it_came(law: DelayProcess) -> None:
    """Θ̂ of round t is the exact posterior mean of the rounds with s + D_s ≤ t - 1, and no other."""
    trace, states = run(DelayedUCB(3, Gaussian(1.0), ridge=1.0), law, 120)
    rows = np.array([state.x for state in states])
    for t, state in enumerate(states, start=1):
        arrived = arrived_by(trace.delay, t)
        X, y = rows[: t - 1][arrived], trace.rewards[: t - 1][arrived]
        exact = np.linalg.solve(np.eye(3) + X.T @ X, X.T @ y)
        np.testing.assert_allclose(state.theta, exact, rtol=0.0, atol=1e-10)


@pytest.mark.parametrize("c", [0, 1, 6])
def test_the_first_reward_is_first_used_in_round_c_plus_two(c: int) -> None:
    """With delay c the reward of round 1 moves θ̂ first before the choice of round 1 + c + 1."""
    _, states = run(DelayedUCB(3, Bernoulli()), delays.Constant(c), 20)
    rounds = [t for t, state in enumerate(states, start=1) if np.any(state.theta != 0.0)]
    assert rounds[0] == 1 + c + 1


def test_what_never_comes_never_arrives() -> None:
    """Lost rewards stay pending to the end and are in no estimate."""
    law = delays.Mixture(never=0.5, base=delays.Constant(0))
    trace, states = run(DelayedUCB(3, Bernoulli()), law, 200)
    lost = trace.delay == NEVER
    assert 60 < lost.sum() < 140
    assert trace.pending.tolist() == [int(lost[:t].sum()) for t in range(200)]
    assert trace.learner.estimate.n == states[-1].n == int((~lost[:-1]).sum())


def test_nothing_is_learned_where_no_reward_comes() -> None:
    """With NEVER in every round θ̂ stays at the prior and everything is pending."""
    trace, states = run(DelayedUCB(3, Bernoulli()), delays.Constant(NEVER), 100)
    assert trace.pending.tolist() == list(range(100))
    assert all((state.theta == 0.0).all() and state.n == 0 for state in states)


def test_delays_may_depend_on_the_reward() -> None:
    """RewardDependent: D = 7 exactly where the reward is 1, and G_t follows."""
    law = delays.RewardDependent(zero_law=delays.Constant(0), one_law=delays.Constant(7))
    trace, states = run(DelayedUCB(3, Bernoulli()), law, 200)
    assert trace.delay.tolist() == [7 if y else 0 for y in trace.rewards]
    assert 0.0 < trace.rewards.mean() < 1.0
    for t, state in enumerate(states, start=1):
        assert state.n == arrived_by(trace.delay, t).sum()


def test_delays_may_depend_on_the_row() -> None:
    """ContextDependent: the delay is that of the chosen row, slow where its first number is > 0."""
    law = delays.ContextDependent(lambda x: 1e-6 if x[0] > 0 else 1e6)
    trace, states = run(Uniform(3, Bernoulli()), law, 200)
    slow = np.array([state.x[0] > 0 for state in states])
    assert 50 < slow.sum() < 150
    assert (trace.delay[~slow] == 1).all()
    assert (trace.delay[slow] > 200).all()
    assert trace.pending[-1] == slow[:-1].sum() + (not slow[-2])


PLAIN = DelayedUCB(3, Bernoulli())
OTHERS: dict[str, Policy] = {
    "randomized": DelayedUCB(3, Bernoulli(), randomized=True),
    "floor": DelayedUCB(3, Bernoulli(), floor=0.2),
    "thompson": DelayedThompson(3, Bernoulli()),
    "blind-thompson-floor": BlindThompson(3, Bernoulli(), floor=0.2),
    "uniform": Uniform(3, Bernoulli()),
}


def columns(trace: Trace) -> list[list[float]]:
    """All columns of a trace."""
    arrays = (trace.regret, trace.pending, trace.delay, trace.actions, trace.rewards)
    return [*(array.tolist() for array in arrays), trace.propensities.tolist()]


@pytest.mark.parametrize("policy", [PLAIN, *OTHERS.values()], ids=["plain", *OTHERS])
def test_the_same_seed_gives_the_same_trace(policy: Policy) -> None:
    """Two runs agree in every number, and a third with another seed does not."""
    law = delays.Geometric(mean=20)
    first, repeated, other_trace = (
        columns(simulate(policy, world(), law, horizon=150, seed=seed)) for seed in (4, 4, 5)
    )
    assert first == repeated
    assert all(a != b for a, b in zip(first[:5], other_trace[:5], strict=True))


@pytest.mark.parametrize("policy", OTHERS.values(), ids=OTHERS)
def test_two_policies_meet_the_same_contexts_luck_and_delays(policy: Policy) -> None:
    """With one seed all rows, all uniform numbers and all delays agree, the choices do not."""
    law = delays.Geometric(mean=20)
    runs: list[tuple[Recorded, Trace]] = []
    for candidate in (PLAIN, policy):
        recorded = Recorded(world())
        runs.append((recorded, simulate(candidate, recorded, law, horizon=400, seed=9)))
    (first, first_trace), (second, second_trace) = runs
    assert first_trace.actions.tolist() != second_trace.actions.tolist()
    assert all((a == b).all() for a, b in zip(first.rows, second.rows, strict=True))
    assert first.luck == second.luck
    assert first_trace.delay.tolist() == second_trace.delay.tolist()


def test_luck_delays_and_draws_are_not_the_same_stream() -> None:
    """The uniform numbers of luck, of the delays and of the policy are not correlated."""
    recorded = Recorded(world())
    law = delays.Uniform(999)
    policy = Uniform(3, Bernoulli())
    trace = simulate(policy, recorded, law, horizon=450, seed=2)
    luck, waits = np.array(recorded.luck), trace.delay / 1000.0
    assert abs(np.corrcoef(luck, waits)[0, 1]) < 0.2
    assert abs(np.corrcoef(luck, trace.actions)[0, 1]) < 0.2
    assert abs(np.corrcoef(waits, trace.actions)[0, 1]) < 0.2


def test_regret_is_of_means() -> None:
    """The regret of a round is the greatest mean less the chosen one, added up."""
    recorded = Recorded(world())
    trace = simulate(PLAIN, recorded, delays.Constant(3), horizon=100, seed=1)
    theta = world().theta
    total, expected = 0.0, []
    for rows, action in zip(recorded.rows, trace.actions, strict=True):
        means = Bernoulli().mean(rows @ theta)
        total += float(means.max() - means[action])
        expected.append(total)
    np.testing.assert_allclose(trace.regret, expected, rtol=1e-12)
    assert trace.regret[-1] > 1.0


def test_an_environment_of_different_width_is_refused() -> None:
    """The error names both widths, and carries the policy."""
    policy = DelayedUCB(4, Bernoulli())
    with pytest.raises(InvalidInput, match=r"policy.dim is 4, but rows have 3 numbers") as error:
        simulate(policy, world(), delays.Constant(0), horizon=10)
    assert error.value.value is policy


@pytest.mark.parametrize("window", [-1, 2.5])
def test_a_window_is_a_whole_number_of_rounds(window: Any) -> None:
    """Any other is refused by its name and value."""
    with pytest.raises(InvalidInput, match=f"`window` must be .*got {window}"):
        simulate(PLAIN, world(), delays.Constant(0), horizon=10, window=window)


@pytest.mark.parametrize("horizon", [-1, 2.5])
def test_a_horizon_is_a_whole_number_of_rounds(horizon: Any) -> None:
    """Any other is refused by its name and value."""
    with pytest.raises(InvalidInput, match=f"`horizon` must be .*got {horizon}"):
        simulate(PLAIN, world(), delays.Constant(0), horizon=horizon)
