"""A few runs on other seeds, held against the intervals of the committed table: fails if outside.

The mean of k new seeds should lie within the table's mean ± 4 standard deviations of its
difference, sd √(1/k + 1/n). Takes some seconds.

Run: python experiments/regret/quick.py
"""

from __future__ import annotations

import os

os.environ["OPENBLAS_NUM_THREADS"] = "1"

import sys

import pandas as pd
from policies import DELAYS, HORIZON, POLICIES, WORLDS
from sweep import HERE

from belated import simulate_many

SEEDS = range(1000, 1004)
WIDTH = 4.0


def main() -> None:
    full = pd.read_csv(HERE / "table.csv", dtype={"delay": str})
    names = ["DelayedUCB", "DelayedThompson"]
    table = simulate_many(
        {name: POLICIES[name] for name in names},
        WORLDS,
        {name: DELAYS[name] for name in ("geo100", "batch1000")},
        seeds=SEEDS,
        horizon=HORIZON,
    )
    cell = ["environment", "delay", "policy"]
    outside = 0
    for key, group in table.groupby(cell):
        known = full.set_index(cell).sort_index().loc[key]["regret"]
        spread = known.std() * (1 / len(group) + 1 / len(known)) ** 0.5
        away = (group["regret"].mean() - known.mean()) / spread
        outside += abs(away) > WIDTH
        print(
            f"{', '.join(key):<40} {group['regret'].mean():6.0f} {known.mean():6.0f} {away:+5.1f}"
        )
    if outside:
        sys.exit(f"{outside} cells are outside: run sweep.py and analysis.py, and see what changed")


if __name__ == "__main__":
    main()
