"""Conversions counted by age: predictions, coverage and steps; small parts of `experiments`."""

from __future__ import annotations

import numpy as np
import pytest

from belated import simulate
from belated.estimators.thinned import Thinned
from experiments.conversions import buckets
from experiments.conversions.coverage import covered
from experiments.conversions.early import predicted
from experiments.conversions.problems import PROBLEMS, WAYS, policy_of
from experiments.conversions.sweep import run


def test_coverage_when_the_first_window_ends(full: bool) -> None:
    """The sandwich covers at a high rate; Σ F g' x xᵀ alone, on the same data, does not."""
    table = np.array([covered(1.0, 1.0, 10_000 + seed) for seed in range(500 if full else 150)])
    full_width, alone, ratio = table.mean(axis=0)
    assert 0.91 <= full_width <= 0.985
    assert full_width - alone >= 0.02
    assert ratio == pytest.approx(1.0, abs=0.05)


def test_predictions_before_the_first_window_has_ended(full: bool) -> None:
    """Within 35 % at half a window with few seeds; learned on arrival they are many times off."""
    ratios = {}
    for way in ("conversions", "default W"):
        runs = [
            run("fresh500", way, "ucb", 1_000, seed) for seed in range(200, 220 if full else 203)
        ]
        ratios[way] = sum(one["predicted"] for one in runs) / sum(one["true"] for one in runs)
    assert 0.65 <= ratios["conversions"] <= 1.35
    assert ratios["default W"] > 3.0


def test_steps_by_age(full: bool) -> None:
    """Against the exact step: within a quarter of a posterior deviation."""
    problem = PROBLEMS["fresh500"]
    more, rewards = WAYS["conversions"](problem)
    for seed in range(300, 310 if full else 302):
        world = problem.world(seed)
        policy = policy_of("ucb", world.dim, more)
        trace = simulate(policy, world, problem.delay, horizon=1_511, seed=seed, rewards=rewards)
        assert buckets.off(trace.learner) <= buckets.MOST  # type: ignore[arg-type]


def test_a_window_may_be_long() -> None:
    """A hundred mean delays: after three of them the law is known well enough."""
    found = [predicted(Thinned().spread, 100.0, 3.0, 100.0, seed) for seed in range(20)]
    assert 0.8 < np.median(found) < 1.3
    narrow = [predicted(1.0, 100.0, 3.0, 100.0, seed) for seed in range(20)]
    assert np.median(narrow) > 5.0  # it would take everyone for a customer
