"""Regret divided by the scale of the rewards, for rewards in units of .01, 1 and 100.

Gaussian rewards whose noise is half of their spread, geometric delays of 50 rounds on average.
Prints a table; takes two minutes.

Run: python -m experiments.advice.scales [SEEDS]
"""

from __future__ import annotations

import os

os.environ["OPENBLAS_NUM_THREADS"] = "1"

import sys
from collections.abc import Iterable

import numpy as np

from belated import DelayedThompson, DelayedUCB, Gaussian, delays, simulate
from belated.core.inputs import Vector
from belated.policies import Policy
from belated.simulation.environments import GLM

DIM, ARMS, HORIZON = 5, 10, 1_000
SCALES = (0.01, 1.0, 100.0)
FAMILIES = (Gaussian(), Gaussian(1.0), Gaussian(0.25))
POLICIES: tuple[type[Policy], ...] = (DelayedUCB, DelayedThompson)


def world(seed: int, scale: float) -> GLM:
    """Unit rows and a unit θ, in units of the scale."""
    rng = np.random.default_rng(seed)
    rows = rng.normal(size=(ARMS, DIM))
    theta = rng.normal(size=DIM)
    rows /= np.linalg.norm(rows, axis=1)[:, None]
    theta *= scale / np.linalg.norm(theta)
    return GLM(theta, ARMS, rows, family=Gaussian(0.25 * scale**2))


def regrets(policy: Policy, scale: float, seeds: Iterable[int]) -> Vector:
    """Return the regret divided by the scale, for each seed."""
    law = delays.Geometric(mean=50)
    return np.array(
        [
            simulate(policy, world(seed, scale), law, horizon=HORIZON, seed=seed).regret[-1] / scale
            for seed in seeds
        ]
    )


def main() -> None:
    seeds = range(int(sys.argv[1]) if len(sys.argv) > 1 else 40)
    print("| policy | family | " + " | ".join(f"scale {scale:g}" for scale in SCALES) + " |")
    print("|---|---|---|---|---|")
    for make in POLICIES:
        for family in FAMILIES:
            columns = [regrets(make(DIM, family), scale, seeds) for scale in SCALES]
            cells = [
                f"{column.mean():.1f} ± {column.std() / len(column) ** 0.5:.1f}"
                for column in columns
            ]
            print(f"| {make.__name__} | {family} | {' | '.join(cells)} |")


if __name__ == "__main__":
    main()
