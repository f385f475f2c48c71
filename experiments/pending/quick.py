"""A few runs on other seeds, held against the committed table: fails if outside its intervals.

Prints the new mean, the table's and how many standard deviations they are apart. Takes some
seconds.

Run: python -m experiments.pending.quick
"""

from __future__ import annotations

import os

os.environ["OPENBLAS_NUM_THREADS"] = "1"

from pathlib import Path

import pandas as pd

from belated import simulate_many
from experiments.checks import hold
from experiments.pending.variants import DELAYS, HORIZON, VARIANTS, WORLDS

SEEDS = range(1000, 1002)


def main() -> None:
    table = simulate_many(
        VARIANTS,
        {"fixed": WORLDS["fixed"]},
        {name: DELAYS[name] for name in ("geo1000", "batch1000")},
        seeds=SEEDS,
        horizon=HORIZON,
    )
    committed = pd.read_csv(Path(__file__).with_name("table.csv"), dtype={"delay": str})
    hold(table, committed, ["environment", "delay", "policy"], "regret")


if __name__ == "__main__":
    main()
