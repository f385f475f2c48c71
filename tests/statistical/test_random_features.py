"""Random features on a problem that no linear model can solve."""

from __future__ import annotations

import math

import numpy as np

from belated import Bandit, Explicit, Number, PerArm, RandomFeatures
from belated.features.encoders import Fields

FIELDS = {"x": Number(-2, 2), "y": Number(-2, 2)}


def regret(context: Fields, seed: int, rounds: int) -> float:
    """Return what a bandit loses if the best of three actions turns along a spiral."""
    features = PerArm(["a", "b", "c"], context=context)
    bandit = Bandit(features, rewards=Explicit(), seed=seed, keep_requests=0.0)
    rng = np.random.default_rng(seed)
    total = 0.0
    for _ in range(rounds):
        x, y = rng.uniform(-2, 2, 2).tolist()
        turn = math.atan2(y, x) + 2 * math.hypot(x, y)
        chances = [0.5 + 0.4 * math.sin(turn + k * math.tau / 3) for k in range(3)]
        decision = bandit.decide({"x": x, "y": y})
        bandit.observe(decision.id, float(rng.random() < chances[decision.index]))
        total += max(chances) - chances[decision.index]
    return total


def test_random_features_lower_the_regret_on_a_spiral(full: bool) -> None:
    """By a third at least, on paired seeds: measured are .46 to .56 after 1,500 rounds."""
    curved = RandomFeatures(FIELDS, size=32, scale=0.5)
    for seed in range(8 if full else 2):
        assert regret(curved, seed, 1_500) < 0.67 * regret(FIELDS, seed, 1_500)
