"""What does it bring to count pending decisions, and what to widen by √G_t?

A policy can do two things about rewards that are still out: count the pending decisions as explored
(with all of their information, with half of it or with none), and add √G_t, the root of their
number, to the width. The paper does both; the default only counts. Five variants of DelayedUCB, the
same in all else, on three problems and six delays: 1,800 runs of 10,000 rounds with 20 paired
seeds, some five minutes on two cores.

Finished runs are kept in ``runs.jsonl`` beside the table, from which an interrupted sweep goes on;
the final regrets go to ``table.csv``. Then run analysis.py.

Run: python -m experiments.pending.sweep [--seeds 20] [--jobs 2]
"""

from __future__ import annotations

import os

os.environ["OPENBLAS_NUM_THREADS"] = "1"

from pathlib import Path

from experiments.pending.variants import DELAYS, HORIZON, VARIANTS, WORLDS
from experiments.runs import parse, simulate


def main() -> None:
    arguments = parse(__doc__, Path(__file__).parent, seeds=20)
    simulate(VARIANTS, WORLDS, DELAYS, HORIZON, arguments)


if __name__ == "__main__":
    main()
