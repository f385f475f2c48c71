"""Regret if bad news comes late, by the age at which rewards are learned.

Fixed rows, 3,000 rounds. A success is reported after 50 rounds on average, a failure after 500.
Prints each figure next to its goal.

Run: python -m experiments.dependence.remedy [SEEDS] [FIRST SEED]
"""

from __future__ import annotations

import os

os.environ["OPENBLAS_NUM_THREADS"] = "1"

import sys
import warnings

import numpy as np

from belated import Bernoulli, DelayedThompson, DelayedUCB, delays, environments, simulate
from belated.core.inputs import Vector
from belated.policies import Policy

HORIZON = 3_000
LAW = delays.RewardDependent(zero_law=delays.Geometric(mean=500), one_law=delays.Geometric(mean=50))
#: Rounds after which a reward is learned; chosen on seeds 100 to 109.
AFTER = 200
GOAL = 165


def regrets(kind: type[Policy], after: int | None, seeds: range) -> Vector:
    """Return the regret of each seed."""
    totals = []
    for seed in seeds:
        world = environments.fixed(seed)
        policy = kind(world.dim, Bernoulli(), learn_after=after)
        totals.append(simulate(policy, world, LAW, horizon=HORIZON, seed=seed).regret[-1])
    return np.array(totals)


def main() -> None:
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 40
    first = int(sys.argv[2]) if len(sys.argv) > 2 else 1_000
    warnings.simplefilter("ignore")
    seeds = range(first, first + count)
    print(f"{HORIZON} rounds, {count} seeds from {first}")
    print("| policy | learned | regret | worst seed | goal |")
    print("|---|---|---|---|---|")
    for kind in (DelayedUCB, DelayedThompson):
        for after in (None, AFTER):
            values = regrets(kind, after, seeds)
            when = "on arrival" if after is None else f"after {after} rounds"
            goal = f"at most {GOAL}" if kind is DelayedUCB and after else ""
            error = values.std() / len(values) ** 0.5
            cells = f"{values.mean():.0f} ± {error:.0f} | {values.max():.0f} | {goal}"
            print(f"| {kind.__name__} | {when} | {cells} |", flush=True)


if __name__ == "__main__":
    main()
