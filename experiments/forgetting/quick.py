"""A few runs on other seeds, held against the committed table: fails if outside its intervals.

Prints the new mean, the table's and how many standard deviations they are apart. Takes some
seconds.

Run: python -m experiments.forgetting.quick
"""

from __future__ import annotations

import os

os.environ["OPENBLAS_NUM_THREADS"] = "1"

from pathlib import Path

import pandas as pd

from belated import simulate_many
from experiments.checks import hold
from experiments.forgetting.problems import DELAYS, POLICIES, WORLDS
from experiments.forgetting.sweep import SHORT

SEEDS = range(1000, 1003)


def main() -> None:
    table = simulate_many(
        {name: POLICIES[name] for name in ("auto", "none", "500")},
        {"replaced, fresh": WORLDS["replaced, fresh"]},
        {"0": DELAYS["0"]},
        seeds=SEEDS,
        horizon=SHORT,
    )
    kinds = {"policy": str, "delay": str}
    committed = pd.read_csv(Path(__file__).with_name("table.csv"), dtype=kinds)
    committed = committed[committed["round"] == SHORT]
    hold(table, committed, ["policy", "environment", "delay", "round"], "regret")


if __name__ == "__main__":
    main()
