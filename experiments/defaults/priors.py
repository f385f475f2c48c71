"""Strength of the prior: fixed precisions, and an estimated one, on two problems.

``fixed`` has effects of the size that precision 1 expects; scikit-learn's digits have effects that
are ten times as strong. Prints the mean regret with its standard error, and the number of runs on
``fixed`` that got stuck (regret above 250).

Run: python -m experiments.defaults.priors [--seeds 60] [--jobs 2]
"""

from __future__ import annotations

import os

os.environ["OPENBLAS_NUM_THREADS"] = "1"

import argparse
from collections.abc import Callable
from typing import Literal

import pandas as pd

from belated import DelayedUCB, delays, environments, simulate_many
from belated.policies import Policy
from belated.simulation.environments import Environment

FIRST = 110_000
DELAYS = {"0": delays.Constant(0), "geo1000": delays.Geometric(mean=1000)}
RIDGES: tuple[float | Literal["auto"], ...] = (1.0, 0.25, 0.1, "auto")


def ucb(ridge: float | Literal["auto"]) -> Callable[[Environment], Policy]:
    return lambda world: DelayedUCB(world.dim, world.family, ridge=ridge)


def run(world: str, seeds: int, horizon: int, jobs: int) -> pd.DataFrame:
    return simulate_many(
        {f"ridge {ridge}": ucb(ridge) for ridge in RIDGES},
        {world: getattr(environments, world)},
        DELAYS,
        seeds=range(FIRST, FIRST + seeds),
        horizon=horizon,
        jobs=jobs,
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=60)
    parser.add_argument("--jobs", type=int, default=2)
    arguments = parser.parse_args()
    fixed = run("fixed", arguments.seeds, 10_000, arguments.jobs)
    digits = run("digits", max(1, arguments.seeds // 20), 4_000, arguments.jobs)
    print("| problem | delay | prior | regret | stuck |")
    print("|---|---|---|--:|--:|")
    for (world, delay, prior), group in pd.concat([fixed, digits]).groupby(
        ["environment", "delay", "policy"]
    ):
        regret = group["regret"]
        stuck = f"{int((regret > 250).sum())} of {len(regret)}" if world == "fixed" else ""
        print(f"| {world} | {delay} | {prior} | {regret.mean():.0f}±{regret.sem():.0f} | {stuck} |")


if __name__ == "__main__":
    main()
