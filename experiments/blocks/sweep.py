"""Deviation of estimates with frozen rows from those with all rows, and its cost in regret.

Each bandit gets 10⁶ rewards: with the default limit of 100,000 exact rows in 1, 4 and 16
partitions, and with all rows exact.

Run: python -m experiments.blocks.sweep [--seeds 4] [--first-seed 100]
"""

from __future__ import annotations

import os

os.environ["OPENBLAS_NUM_THREADS"] = "1"

import time
from itertools import product
from pathlib import Path

import pandas as pd

from belated.core.tuning import USUAL
from experiments.blocks.runs import ALL, FAMILIES, run
from experiments.runs import parse

REWARDS = 10**6
DIMS = 20, 50
#: Partitions and exact rows; the last is the reference.
STORES = {"1": (1, USUAL.exact), "4": (4, USUAL.exact), "16": (16, USUAL.exact), "all": (1, ALL)}


def main() -> None:
    arguments = parse(__doc__, Path(__file__).parent, seeds=4, first_seed=100)
    lines = []
    for seed, dim, family in product(arguments.seeds, DIMS, FAMILIES):
        for store, (partitions, exact) in STORES.items():
            start = time.process_time()
            outcome = run(family, dim, partitions, seed, REWARDS, exact)
            lines.append(
                {"family": family, "dim": dim, "store": store, "seed": seed} | outcome._asdict()
            )
            print(lines[-1], f"{time.process_time() - start:.0f} s", flush=True)
        # After each cell, so that an interrupted sweep keeps its results.
        pd.DataFrame(lines).to_csv(arguments.output, index=False, float_format="%.8g")


if __name__ == "__main__":
    main()
