"""Cost of exploring in 2 % of the decisions, the default of ``Bandit``, compared with no floor.

Both policies get the same contexts, random numbers and delays. Prints the regret of each with its
standard error, and the paired difference.

Run: python -m experiments.defaults.floor [--seeds 20] [--jobs 2] [--horizon 5000]
"""

from __future__ import annotations

import os

os.environ["OPENBLAS_NUM_THREADS"] = "1"

import argparse
from collections.abc import Callable

from belated import DelayedUCB, delays, environments, simulate_many
from belated.policies import Policy
from belated.simulation.environments import Environment

FIRST = 130_000
FLOORS = (0.0, 0.02)
WORLDS = {name: getattr(environments, name) for name in ("fixed", "users", "fresh")}


def ucb(floor: float) -> Callable[[Environment], Policy]:
    return lambda world: DelayedUCB(family=world.family, floor=floor)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--horizon", type=int, default=5_000)
    arguments = parser.parse_args()
    table = simulate_many(
        {f"floor {floor}": ucb(floor) for floor in FLOORS},
        WORLDS,
        {"geo100": delays.Geometric(mean=100)},
        seeds=range(FIRST, FIRST + arguments.seeds),
        horizon=arguments.horizon,
        jobs=arguments.jobs,
    )
    print("| problem | no floor | floor .02 | difference |")
    print("|---|--:|--:|--:|")
    for world, group in table.groupby("environment", sort=False):
        runs = group.pivot(index="seed", columns="policy", values="regret")
        columns = [runs[f"floor {floor}"] for floor in FLOORS]
        cells = [f"{column.mean():.0f} ± {column.sem():.0f}" for column in columns]
        difference = columns[1] - columns[0]
        print(
            f"| {world} | {' | '.join(cells)} | {difference.mean():+.0f} ± {difference.sem():.0f} |"
        )


if __name__ == "__main__":
    main()
