"""The cost of encoded fields compared with hand-made rows.

Records with numbers on very different scales, a category and a flag, and the pixels of digits:
DelayedUCB with hand-made rows (standardized, one-hot, a typical row of length 1), with rows that
``PerArm(..., context=[names]).fit(sample)`` makes of 500 records, and with the raw numbers. 48
paired seeds of 3,000 rounds, for the digits 16 of 500, from seed 300 on: the encoding was chosen on
others. About ten minutes on two cores.

Finished runs are saved in ``runs.jsonl``, from which an interrupted sweep continues; the final
regrets are written to ``table.csv``. Then run analysis.py.

Run: python -m experiments.encoding.sweep [--seeds 48] [--first-seed 300] [--jobs 2]
"""

from __future__ import annotations

import os

os.environ["OPENBLAS_NUM_THREADS"] = "1"

import argparse
from pathlib import Path

import pandas as pd

from belated import simulate_many
from experiments.encoding.worlds import DELAYS, HORIZON, POLICIES, WORLDS
from experiments.runs import parse, write


def sweep(arguments: argparse.Namespace) -> pd.DataFrame:
    tables = []
    for problem, horizon in HORIZON.items():
        worlds = {name: make for name, make in WORLDS.items() if make.kind == problem}
        seeds = (
            arguments.seeds
            if problem == "mixed"
            else arguments.seeds[: -(-len(arguments.seeds) // 3)]
        )
        tables.append(
            simulate_many(
                POLICIES,
                worlds,
                DELAYS,
                seeds=seeds,
                horizon=horizon,
                resume=arguments.resume,
                jobs=arguments.jobs,
            )
        )
    return pd.concat(tables)


def main() -> None:
    arguments = parse(__doc__, Path(__file__).parent, seeds=48, first_seed=300)
    write(sweep(arguments), ["environment", "delay", "seed", "regret"], arguments)


if __name__ == "__main__":
    main()
