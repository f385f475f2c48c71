"""Half-lives against problems that change: "auto", none, and single ones.

Three parts: θ replaced in a short run; problems that stay, which forgetting must not hurt; and
those that change, where "auto" is held against the best single half-life. The seeds had no part in
any choice. Finished runs are kept (``runs.jsonl``), from which an interrupted sweep goes on; the
table goes to ``table.csv``. Then run analysis.py.

Run: python -m experiments.forgetting.sweep [--seeds 24] [--jobs 1]
"""

from __future__ import annotations

import os

os.environ["OPENBLAS_NUM_THREADS"] = "1"

import argparse
import time
from pathlib import Path

import pandas as pd

from belated import simulate_many
from experiments.forgetting.problems import DELAYS, POLICIES, WORLDS

HERE = Path(__file__).parent
FIRST = 50_000
SHORT, LONG = 3_000, 6_000
#: Seeds after which the table is written.
TOGETHER = 4


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=24)
    parser.add_argument("--jobs", type=int, default=-1)
    arguments = parser.parse_args()
    start = time.perf_counter()
    tables = []
    last = FIRST + arguments.seeds
    for first in range(FIRST, last, TOGETHER):
        for policies, worlds, delays, horizon in parts():
            tables.append(
                simulate_many(
                    {name: POLICIES[name] for name in policies},
                    {name: WORLDS[name] for name in worlds},
                    {name: DELAYS[name] for name in delays},
                    seeds=range(first, min(first + TOGETHER, last)),
                    horizon=horizon,
                    resume=HERE / "runs.jsonl",
                    jobs=arguments.jobs,
                )
            )
        table = pd.concat(tables)[["policy", "environment", "delay", "round", "seed", "regret"]]
        table.to_csv(HERE / "table.csv", index=False, float_format="%.2f")
    minutes = (time.perf_counter() - start) / 60
    print(f"{len(table)} runs in {minutes:.1f} minutes -> table.csv")


def parts() -> list[tuple[list[str], list[str], list[str], int]]:
    """Policies, worlds and delays of each part, and its horizon."""
    stays = [name for name in WORLDS if name.startswith("stays")]
    changes = [name for name in WORLDS if name not in stays]
    return [
        (["auto", "none", "500"], ["replaced, fresh"], ["0"], SHORT),
        (["auto", "none"], stays, list(DELAYS), LONG),
        (list(POLICIES), changes, list(DELAYS), LONG),
    ]


if __name__ == "__main__":
    main()
