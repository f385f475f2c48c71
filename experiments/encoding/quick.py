"""Compare a few runs on other seeds with the committed table; fail if outside its intervals.

Prints the new mean, that of the table, and how many standard deviations they differ. Takes some
seconds.

Run: python -m experiments.encoding.quick [--seeds 3]
"""

from __future__ import annotations

import os

os.environ["OPENBLAS_NUM_THREADS"] = "1"

import argparse
from pathlib import Path

import pandas as pd

from belated import simulate_many
from experiments.checks import hold
from experiments.encoding.worlds import DELAYS, HORIZON, POLICIES, WORLDS


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=3)
    count = parser.parse_args().seeds
    table = simulate_many(
        POLICIES,
        {name: WORLDS[name] for name in ("mixed: by hand", "mixed: encoded")},
        {"geo100": DELAYS["geo100"]},
        seeds=range(1000, 1000 + count),
        horizon=HORIZON["mixed"],
    )
    committed = pd.read_csv(Path(__file__).with_name("table.csv"), dtype={"delay": str})
    hold(table, committed, ["environment", "delay"], "regret")


if __name__ == "__main__":
    main()
