"""Candidates for the defaults, on 26 problems unlike those of the regret table.

The seeds were not used for any choice. Finished runs are saved in ``runs.jsonl``, from which an
interrupted sweep continues; the table is written to ``table.csv``. Then run analysis.py.

Run: python -m experiments.defaults.sweep [--seeds 4] [--candidates "UCB .75" ...]
"""

from __future__ import annotations

import os

os.environ["OPENBLAS_NUM_THREADS"] = "1"

import argparse
import time
from pathlib import Path

import pandas as pd

from belated import delays, simulate_many
from experiments.defaults.candidates import CANDIDATES
from experiments.defaults.worlds import LONG, WORLDS

HERE = Path(__file__).parent
FIRST = 30_000
DELAYS = {"geo100": delays.Geometric(mean=100)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=4)
    parser.add_argument("--candidates", nargs="*", default=list(CANDIDATES))
    parser.add_argument("--jobs", type=int, default=-1)
    arguments = parser.parse_args()
    start = time.perf_counter()
    tables = [
        simulate_many(
            {name: CANDIDATES[name] for name in arguments.candidates},
            worlds,
            DELAYS,
            seeds=range(FIRST, FIRST + seeds),
            horizon=horizon,
            resume=HERE / "runs.jsonl",
            jobs=arguments.jobs,
        )
        for worlds, horizon, seeds in (
            (WORLDS, 10_000, arguments.seeds),
            (LONG, 50_000, max(1, arguments.seeds // 2)),
        )
    ]
    table = pd.concat(tables)[["policy", "environment", "seed", "regret"]]
    table.to_csv(HERE / "table.csv", index=False, float_format="%.2f")
    minutes = (time.perf_counter() - start) / 60
    print(f"{len(table)} runs in {minutes:.1f} minutes -> table.csv")


if __name__ == "__main__":
    main()
