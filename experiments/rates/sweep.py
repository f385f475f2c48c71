"""How does the regret of the default policy grow?

With the rounds T, the features d, the actions K, the mean delay, and the weight of the delay's
tail: one at a time around a base case (``problems.py``), on problems with the same rows every round
(``fixed``) and with new ones (``fresh``), DelayedUCB with its defaults throughout. With 20 paired
seeds these are 720 runs of 30,000 rounds (mean delays 0 to 3,000, recorded at seven rounds, with
three times as many seeds: what a delay costs is a small difference), 280 of 10,000 (d and K) and
200 of 10,000 (Lomax delays), some ten minutes on two cores.

Finished runs are kept in ``runs.jsonl`` beside the table, from which an interrupted sweep goes on;
the regrets go to ``table.csv``. Then run analysis.py.

Run: python -m experiments.rates.sweep [--seeds 20] [--jobs 2]
"""

from __future__ import annotations

import os

os.environ["OPENBLAS_NUM_THREADS"] = "1"

from pathlib import Path

import pandas as pd

from belated import simulate_many
from experiments.rates.problems import (
    BASE,
    GEOMETRIC,
    HORIZON,
    LOMAX,
    LONG,
    POLICY,
    ROUNDS,
    SIZES,
    WORLDS,
)
from experiments.runs import parse, write


def main() -> None:
    arguments = parse(__doc__, Path(__file__).parent, seeds=20)
    tables = []
    few = arguments.seeds
    many = range(few.start, few.start + 3 * len(few))
    for title, worlds, delays, seeds, horizon, checkpoints in (
        ("rounds and mean delays", WORLDS, GEOMETRIC, many, LONG, ROUNDS),
        ("features and actions", SIZES, {BASE: GEOMETRIC[BASE]}, few, HORIZON, ()),
        ("tails", WORLDS, LOMAX, few, HORIZON, ()),
    ):
        print(title, flush=True)
        table = simulate_many(
            POLICY,
            worlds,
            delays,
            seeds=seeds,
            horizon=horizon,
            checkpoints=checkpoints,
            resume=arguments.resume,
            jobs=arguments.jobs,
        )
        tables.append(table)
    write(pd.concat(tables), ["environment", "delay", "seed", "round", "regret"], arguments)


if __name__ == "__main__":
    main()
