"""A small bandit that freezes at 3,000 rows must meet the same bounds as the full size.

30,000 rewards, d = 10, in 1 and 4 partitions. Takes some seconds.

Run: python -m experiments.blocks.quick
"""

from __future__ import annotations

import os

os.environ["OPENBLAS_NUM_THREADS"] = "1"

import sys

from experiments.blocks.runs import ALL, FAMILIES, run

#: Tolerances: in posterior deviations, and relative.
OFF, PRECISION = 0.15, 0.06
#: Relative tolerance of the regret: choices differ if two rows are nearly as good.
REGRET = 0.05


def main() -> None:
    outside = 0
    for family in FAMILIES:
        full = run(family, 10, 1, 1_000, 30_000, ALL)
        for partitions in (1, 4):
            outcome = run(family, 10, partitions, 1_000, 30_000, 3_000)
            excess = outcome.regret / full.regret - 1.0
            print(
                f"{family}, {partitions} partitions: off {outcome.off:.3f},"
                f" one step {outcome.step:.3f}, precision {outcome.precision:.3f},"
                f" regret {excess:+.3f}, {outcome.rows} rows"
            )
            good = max(outcome.off, outcome.step) < OFF and outcome.precision < PRECISION
            outside += not good or abs(excess) > REGRET or outcome.rows > 4_000
    if outside:
        sys.exit(f"{outside} cells are outside: run sweep.py and analysis.py, and see what changed")


if __name__ == "__main__":
    main()
