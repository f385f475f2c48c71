"""Candidates for the defaults, on 26 problems unlike those of the regret table.

``--choosing`` runs the seeds on which defaults may be chosen, into ``choosing.csv``; without it the
seeds that no choice has seen, into ``table.csv``. Finished runs are kept beside it (``*.jsonl``),
from which an interrupted sweep goes on. Then run analysis.py.

Run: python experiments/defaults/sweep.py [--seeds 20] [--choosing] [--candidates "UCB .75" ...]
"""

from __future__ import annotations

import os

os.environ["OPENBLAS_NUM_THREADS"] = "1"

import argparse
import time
from pathlib import Path

import pandas as pd
from candidates import CANDIDATES
from worlds import LONG, WORLDS

from belated import delays, simulate_many

HERE = Path(__file__).parent
CHOOSING, FRESH = 20_000, 30_000
DELAYS = {"geo100": delays.Geometric(mean=100)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--choosing", action="store_true")
    parser.add_argument("--candidates", nargs="*", default=list(CANDIDATES))
    parser.add_argument("--jobs", type=int, default=-1)
    arguments = parser.parse_args()
    first = CHOOSING if arguments.choosing else FRESH
    output = HERE / ("choosing.csv" if arguments.choosing else "table.csv")
    start = time.perf_counter()
    tables = [
        simulate_many(
            {name: CANDIDATES[name] for name in arguments.candidates},
            worlds,
            DELAYS,
            seeds=range(first, first + seeds),
            horizon=horizon,
            resume=output.with_suffix(".jsonl"),
            jobs=arguments.jobs,
        )
        for worlds, horizon, seeds in (
            (WORLDS, 10_000, arguments.seeds),
            (LONG, 50_000, max(1, arguments.seeds // 2)),
        )
    ]
    table = pd.concat(tables)[["policy", "environment", "seed", "regret"]]
    table.to_csv(output, index=False, float_format="%.2f")
    minutes = (time.perf_counter() - start) / 60
    print(f"{len(table)} runs in {minutes:.1f} minutes -> {output.name}")


if __name__ == "__main__":
    main()
