"""What policies lose, over paired seeds: the same problem, contexts, luck and delays for each."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from belated import (
    Bernoulli,
    BlindUCB,
    DelayedThompson,
    DelayedUCB,
    Uniform,
    delays,
    environments,
    simulate,
)
from belated.core.inputs import Vector
from belated.delays import DelayProcess
from belated.fold import fold
from belated.fold.learner import Learner
from belated.model.statistics import Information
from belated.policies import Policy
from belated.simulation.environments import Environment

PROBLEMS: dict[str, Callable[[int], Environment]] = {
    "fixed": environments.fixed,
    "users": environments.users,
    "fresh": environments.fresh,
    "ball": environments.ball,
    "arms": environments.arms,
}
DELAYS: dict[str, DelayProcess] = {
    "0": delays.Constant(0),
    "geo100": delays.Geometric(mean=100),
    "geo1000": delays.Geometric(mean=1000),
    "lomax": delays.Lomax(shape=1.2, scale=100),
    "const1000": delays.Constant(1000),
    "batch1000": delays.Batched(1000),
    "never30": delays.Mixture(never=0.3, base=delays.Geometric(mean=100)),
}


def regrets(
    make: Callable[[int], Policy], problem: str, delay: str, seeds: int, horizon: int
) -> Vector:
    """The final regret for each seed; ``make`` gets the width of a row."""
    results = []
    for seed in range(seeds):
        world = PROBLEMS[problem](seed)
        policy = make(world.dim)
        trace = simulate(policy, world, DELAYS[delay], horizon=horizon, seed=seed)
        results.append(float(trace.regret[-1]))
    return np.array(results)


def ucb(dim: int) -> Policy:
    """With its defaults."""
    return DelayedUCB(dim, Bernoulli())


def error(values: Vector) -> float:
    """The standard error of a mean."""
    return float(values.std(ddof=1)) / math.sqrt(len(values))


@pytest.mark.parametrize(("delay", "times"), [("const1000", 2.5), ("batch1000", 4.0)])
def test_counting_what_is_pending_beats_being_blind(delay: str, times: float, full: bool) -> None:
    """With a thousand rounds of silence on fixed rows, blind UCB loses a multiple.

    Measured over 40 seeds at T = 10,000: 381 ± 9 against 1131 ± 61 (3.0 times) where every reward
    is 1000 rounds late, 359 ± 7 against 1930 ± 87 (5.4 times) where they come in batches. Over the
    6 seeds at T = 5,000: 2.6 and 3.7 times.
    """
    seeds, horizon = (40, 10_000) if full else (6, 5_000)
    aware = regrets(ucb, "fixed", delay, seeds, horizon)
    blind = regrets(lambda dim: BlindUCB(dim, Bernoulli()), "fixed", delay, seeds, horizon)
    assert blind.mean() >= (times if full else 2.0) * aware.mean()
    assert (blind - aware).mean() > 3.0 * error(blind - aware)


def test_blindness_costs_little_where_contexts_never_repeat(full: bool) -> None:
    """With fresh rows the contexts themselves explore: less than a tenth is lost or won."""
    seeds, horizon = (20, 10_000) if full else (4, 3_000)
    aware = regrets(ucb, "fresh", "batch1000", seeds, horizon)
    blind = regrets(lambda dim: BlindUCB(dim, Bernoulli()), "fresh", "batch1000", seeds, horizon)
    assert abs(blind.mean() / aware.mean() - 1.0) < 0.1


@pytest.mark.parametrize("problem", PROBLEMS)
def test_delayed_ucb_beats_chance_everywhere(problem: str, full: bool) -> None:
    """In every problem, under every delay and with every seed it loses less than two thirds."""
    seeds, horizon = (10, 10_000) if full else (2, 3_000)
    chance = regrets(lambda dim: Uniform(dim, Bernoulli()), problem, "0", seeds, horizon)
    for delay in DELAYS if full else ("0", "geo1000", "lomax", "const1000", "never30"):
        assert (regrets(ucb, problem, delay, seeds, horizon) < chance / 1.5).all()


def test_delayed_ucb_learns_digits(full: bool) -> None:
    """Rewards 20 rounds late: three times as many right guesses as by chance.

    Of all ten digits with 64 pixels each, 650 columns in all; by default with 16 pixels, 170.
    """
    world = environments.digits()
    if not full:
        pixels = world.samples.reshape(-1, 4, 2, 4, 2).mean(axis=(2, 4)).reshape(-1, 16)
        world = environments.Classification(2.0 * pixels, world.labels)
    policy = DelayedUCB(world.dim, Bernoulli())
    trace = simulate(policy, world, delays.Constant(20), horizon=1_000 if full else 600)
    assert trace.rewards[-300:].mean() > 0.3


@pytest.mark.parametrize("problem", ["fixed", "users"])
def test_thompson_and_ucb_are_alike(problem: str, full: bool) -> None:
    """Neither loses twice as much as the other, where rewards are 1000 rounds late or so."""
    seeds, horizon = (20, 10_000) if full else (6, 3_000)
    ucb_regret = regrets(ucb, problem, "geo1000", seeds, horizon)
    thompson_regret = regrets(
        lambda dim: DelayedThompson(dim, Bernoulli()), problem, "geo1000", seeds, horizon
    )
    assert 0.5 < thompson_regret.mean() / ucb_regret.mean() < 2.0


class Recomputing(Learner):
    """A learner that weighs what is pending anew at every fit, where ours has it frozen."""

    def __init__(self, *args: Any, **more: Any) -> None:
        super().__init__(*args, **more)
        self._out: dict[int, tuple[Vector, float]] = {}
        self.changed = 0.0

    def add_pending(self, x: Vector, weight: float, began: int = 0) -> None:
        """As ours; rounds are a second apart, so that the time of a decision names it."""
        self._out[began] = (x, weight)
        super().add_pending(x, weight, began)

    def learn(self, x: Vector, y: float, weight: float, began: int = 0, *more: Any) -> int:
        """With the weight that it has by now."""
        return super().learn(x, y, self._out.pop(began)[1], began, *more)

    def fit(self) -> None:
        """As ours, then with new weights for all that is pending."""
        super().fit()
        if self._out:
            rows = np.array([x for x, _ in self._out.values()])
            family, model = self.policy.family, self.model
            weights = family.slope(rows @ model.theta) / model.dispersion
            old = np.array([weight for _, weight in self._out.values()])
            self.changed += float(np.abs(weights - old).sum())
            pairs = zip(self._out.items(), weights.tolist(), strict=True)
            self._out = {name: (x, weight) for (name, (x, _)), weight in pairs}
            self.weighting.pending = Information.of(rows, weights)
            self.renew()


@pytest.mark.parametrize("problem", ["fixed", "users"])
@pytest.mark.parametrize("delay", ["geo100", "geo1000"])
def test_frozen_weights_cost_nothing(
    problem: str, delay: str, full: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Weighing pending decisions anew at every fit changes the regret by less than two errors."""
    seeds, horizon = (40, 10_000) if full else (8, 3_000)
    frozen = regrets(ucb, problem, delay, seeds, horizon)
    learners: list[Recomputing] = []

    def recomputing(*args: Any, **more: Any) -> Learner:
        learners.append(Recomputing(*args, **more))
        return learners[-1]

    monkeypatch.setattr(fold, "Learner", recomputing)
    recomputed = regrets(ucb, problem, delay, seeds, horizon)
    assert len(learners) == seeds
    assert min(learner.changed for learner in learners) > 1.0
    assert abs((frozen - recomputed).mean()) <= 2.0 * error(frozen - recomputed)
