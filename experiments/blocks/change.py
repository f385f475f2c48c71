"""Frozen rows after a change of θ, with rows that are gone and with rows frozen again.

60,000 rewards, d = 10, 6,000 exact rows; θ is replaced after half of them, or never. Without
forgetting, the estimate is then a compromise between the two, with all rows as with frozen ones:
the table shows how far apart these estimates are.

Run: python -m experiments.blocks.change [--seeds 5]
"""

from __future__ import annotations

import os

os.environ["OPENBLAS_NUM_THREADS"] = "1"

import argparse
from itertools import product
from pathlib import Path

import numpy as np

from experiments.blocks.runs import FAMILIES, run
from experiments.tables import rule

REWARDS, DIM, EXACT = 60_000, 10, 6_000


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=5)
    seeds = range(200, 200 + parser.parse_args().seeds)
    lines = [
        f"Mean and worst of {len(seeds)} seeds: the worst coordinate, in posterior standard"
        " deviations of the full fit, and the precision in the worst direction.",
        "",
        *rule("", ["estimate off", "precision off"]),
    ]
    for name, changes, remembered in product(FAMILIES, (False, True), (False, True)):
        differences = np.array(
            [
                (outcome.off, outcome.precision)
                for outcome in (
                    run(
                        name, DIM, 1, seed, REWARDS, EXACT, remembered=remembered, changes=changes
                    )
                    for seed in seeds
                )
            ]
        )  # fmt: skip
        mean, worst = differences.mean(axis=0), differences.max(axis=0)
        lines.append(
            f"| {name}, {'θ replaced' if changes else 'no change'},"
            f" {'rows remembered' if remembered else 'rows gone'} |"
            f" {mean[0]:.3f}, {worst[0]:.3f} | {100 * mean[1]:.1f} %, {100 * worst[1]:.1f} % |"
        )
    text = "\n".join([*lines, ""])
    print(text)
    Path(__file__).with_name("change.md").write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
