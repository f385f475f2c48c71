"""What is simulated is what runs: a bandit told the same rewards makes the same decisions."""

from __future__ import annotations

import copy
from datetime import timedelta
from typing import Any

import numpy as np
import pytest

from belated import (
    Bandit,
    Bernoulli,
    BlindThompson,
    BlindUCB,
    Decision,
    DelayedThompson,
    DelayedUCB,
    EpsilonGreedy,
    Explicit,
    Gaussian,
    Greedy,
    Poisson,
    Uniform,
    delays,
    environments,
    paper_dts,
    paper_dts_lcb,
    paper_ducb,
    simulate,
)
from belated.delays import DelayProcess
from belated.journals import MemoryJournal
from belated.model.estimators import Online
from belated.model.families import Family
from belated.model.model import Model
from belated.policies import Choice, Policy, Warmup
from belated.simulation import Trace
from belated.simulation.environments import GLM
from belated.testing import ManualClock

DIM = 4
#: Of the clock, in a round.
ROUND = 10

POLICIES: dict[str, Policy] = {
    "ucb": DelayedUCB(DIM, Bernoulli()),
    "ucb randomized": DelayedUCB(DIM, Bernoulli(), randomized=True),
    "ucb gram": DelayedUCB(DIM, Bernoulli(), metric="gram"),
    "ucb floor": DelayedUCB(DIM, Bernoulli(), floor=0.1),
    "ucb of half the pending": DelayedUCB(DIM, Bernoulli(), pending_weight=0.5),
    "ucb online": DelayedUCB(DIM, Bernoulli(), estimator=Online()),
    "ucb auto ridge": DelayedUCB(DIM, Bernoulli(), ridge="auto"),
    "ucb gaussian": DelayedUCB(DIM, Gaussian(0.25)),
    "ucb gaussian of unknown variance": DelayedUCB(DIM, Gaussian("estimate")),
    "ucb poisson": DelayedUCB(DIM, Poisson()),
    "thompson": DelayedThompson(DIM, Bernoulli()),
    "thompson floor": DelayedThompson(DIM, Bernoulli(), floor=0.1),
    "greedy": Greedy(DIM, Bernoulli()),
    "epsilon greedy": EpsilonGreedy(DIM, Bernoulli()),
    "uniform": Uniform(DIM, Bernoulli()),
    "blind ucb": BlindUCB(DIM, Bernoulli()),
    "blind thompson": BlindThompson(DIM, Bernoulli()),
    "ucb at a common age": DelayedUCB(DIM, Bernoulli(), learn_after=25),
    "ucb at once": DelayedUCB(DIM, Bernoulli(), learn_after=0),
    "blind ucb after a warm-up": Warmup(BlindUCB(DIM, Bernoulli(), learn_after=20), rounds=50),
    "paper ducb": paper_ducb(DIM, Bernoulli(), 2.0, warmup=50, ridge=1.0),
    "paper dts": paper_dts(DIM, Bernoulli(), warmup=20),
    "paper dts lcb": paper_dts_lcb(DIM, noise=0.5, warmup=20),
}

DELAYS: dict[str, DelayProcess] = {
    "geometric": delays.Geometric(mean=30),
    "batches": delays.Batched(40),
}


def world(family: Family) -> GLM:
    """New rows every round."""
    if family == Gaussian("estimate"):
        family = Gaussian(0.05)
    return GLM(np.array([1.0, -1.0, 0.5, 0.0]), n_arms=5, family=family)


def watched(policy: Policy) -> tuple[Policy, list[Choice]]:
    """A twin of a policy, and the list its choices will be in."""
    twin, choices = copy.copy(policy), []

    def choose(model: Model, rows: Any, rng: np.random.Generator) -> Choice:
        choices.append(policy.choose(model, rows, rng))
        return choices[-1]

    object.__setattr__(twin, "choose", choose)
    return twin, choices


def played(
    policy: Policy, trace: Trace, *, seed: int, window: int | None = None
) -> tuple[Bandit, list[Decision], list[int]]:
    """A bandit in the same world: same contexts, luck, delays and draws; and its G_t."""
    contexts, luck, _, draws = (
        np.random.default_rng(stream) for stream in np.random.SeedSequence(seed).spawn(4)
    )
    horizon = len(trace.delay)
    uniform = luck.random(horizon).tolist()
    clock = ManualClock()
    start = clock.now
    # A decision is due between the rewards that wait ``window`` rounds and the choice after them.
    span = None if window is None else timedelta(microseconds=window * ROUND + ROUND // 2)
    bandit = Bandit(
        policy=policy,
        rewards=Explicit(window=span),
        journal=MemoryJournal(clock=clock),
        seed=draws,
        clock=clock,
    )
    environment = world(policy.family)
    arrivals: dict[int, list[int]] = {}
    for s, rounds in enumerate(trace.delay.tolist()):
        arrivals.setdefault(s + rounds + 1, []).append(s)
    decisions: list[Decision] = []
    pending: list[int] = []
    rewards: list[float] = []
    for t, (rows, means) in enumerate(environment.rounds(horizon, contexts)):
        # Rewards are told before what has lapsed is settled, as in a simulation. Either order
        # learns the same, but roots turn with it, and with them the draws of Thompson sampling.
        clock.now = start + t * ROUND - (0 if window is None else ROUND - 4)
        for s in arrivals.get(t, ()):
            receipt = bandit.observe(decisions[s].id, rewards[s])
            late = window is not None and t - s - 1 > window
            assert receipt.status == ("late" if late else "rewarded")
        clock.now = start + t * ROUND
        bandit.settle()
        pending.append(bandit.pending.count)
        decision = bandit.decide(rows=rows)
        decisions.append(decision)
        rewards.append(environment.reward(float(means[decision.index]), uniform[t]))
    return bandit, decisions, pending


def assert_same(policy: Policy, delay: DelayProcess, *, horizon: int, window: int | None) -> None:
    """Decision by decision, and what was learned in the end."""
    twin, choices = watched(policy)
    trace = simulate(twin, world(policy.family), delay, horizon=horizon, seed=5, window=window)
    bandit, decisions, pending = played(policy, trace, seed=5, window=window)
    assert pending == trace.pending.tolist()
    assert [d.index for d in decisions] == trace.actions.tolist()
    assert [d.propensity for d in decisions] == pytest.approx(
        trace.propensities.tolist(), rel=1e-9, abs=1e-9
    )
    assert [d.mean for d in decisions] == pytest.approx([c.mean for c in choices], rel=1e-9)
    model, simulated = bandit._fold.model, trace.learner.model
    assert (model.n, model.pending, model.decisions) == (
        simulated.n, simulated.pending, simulated.decisions,
    )  # fmt: skip
    np.testing.assert_allclose(model.theta, simulated.theta, rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(
        bandit.estimate.theta, trace.learner.estimate.theta, rtol=1e-8, atol=1e-8
    )


@pytest.mark.parametrize("delay", DELAYS)
@pytest.mark.parametrize("name", POLICIES)
def test_every_policy_decides_as_it_is_simulated(name: str, delay: str, full: bool) -> None:
    """Same actions, G_t, propensities and means in every round."""
    assert_same(POLICIES[name], DELAYS[delay], horizon=2500 if full else 200, window=None)


@pytest.mark.parametrize("delay", DELAYS)
@pytest.mark.parametrize("name", POLICIES)
def test_every_policy_lapses_as_it_is_simulated(name: str, delay: str, full: bool) -> None:
    """With a window decisions leave G_t before the same choice; their rewards are learned late."""
    assert_same(POLICIES[name], DELAYS[delay], horizon=2500 if full else 200, window=25)


def test_the_window_ends_between_the_last_reward_and_the_choice() -> None:
    """A reward that waits exactly the window is in time; one round more, and it is late."""
    for wait in (3, 4):
        assert_same(POLICIES["ucb"], delays.Constant(wait), horizon=40, window=3)


def test_worlds_with_fixed_rows_tie_alike() -> None:
    """Ties are broken by the policy's stream, which the bandit is given."""
    policy = DelayedUCB(10, Bernoulli())
    environment = environments.fixed(seed=3)
    trace = simulate(policy, environment, delays.Constant(2), horizon=60, seed=1)
    contexts, luck, _, draws = (
        np.random.default_rng(stream) for stream in np.random.SeedSequence(1).spawn(4)
    )
    uniform = luck.random(60)
    bandit = Bandit(policy=policy, rewards=Explicit(), seed=draws)
    decisions: list[Decision] = []
    rewards: list[float] = []
    for t, (rows, means) in enumerate(environment.rounds(60, contexts)):
        if t >= 3:
            bandit.observe(decisions[t - 3].id, rewards[t - 3])
        decisions.append(bandit.decide(rows=rows))
        rewards.append(environment.reward(float(means[decisions[-1].index]), float(uniform[t])))
    assert [d.index for d in decisions] == trace.actions.tolist()
