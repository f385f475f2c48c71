"""A few runs on other seeds, held against the intervals of the committed table: fails if outside.

Takes some seconds.

Run: python -m experiments.regret.quick
"""

from __future__ import annotations

import os

os.environ["OPENBLAS_NUM_THREADS"] = "1"

import pandas as pd

from belated import simulate_many
from experiments.checks import hold
from experiments.regret.policies import DELAYS, HORIZON, POLICIES, WORLDS
from experiments.regret.sweep import HERE

SEEDS = range(1000, 1002)


def main() -> None:
    table = simulate_many(
        {name: POLICIES[name] for name in ("DelayedUCB", "DelayedThompson")},
        WORLDS,
        {name: DELAYS[name] for name in ("geo100", "batch1000")},
        seeds=SEEDS,
        horizon=HORIZON,
    )
    committed = pd.read_csv(HERE / "table.csv", dtype={"delay": str})
    hold(table, committed, ["environment", "delay", "policy"], "regret")


if __name__ == "__main__":
    main()
