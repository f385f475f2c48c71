"""What does a warm-up cost, and does it bring anything?

The theorems explore uniformly for τ rounds first, until the least eigenvalue of W, the information
that has arrived, is large. DelayedUCB starts from a prior and waits for nothing. Here it is held
against itself after a warm-up of 50, 200 or 1,000 rounds, and after one that ends when λ_min(W) is
1, 4 or 16, on two problems and three delays: 840 runs of 10,000 rounds with 20 paired seeds, some
three minutes on two cores.

Finished runs are kept in ``runs.jsonl`` beside the table, from which an interrupted sweep goes on;
the final regrets go to ``table.csv``. How long the warm-ups that wait for λ_min(W) took goes to
``waits.csv``, for up to five of the seeds. Then run analysis.py.

Run: python -m experiments.waiting.sweep [--seeds 20] [--jobs 2]
"""

from __future__ import annotations

import os

os.environ["OPENBLAS_NUM_THREADS"] = "1"

from pathlib import Path

from experiments.runs import parse, simulate
from experiments.waiting.policies import DELAYS, HORIZON, RULES, WORLDS
from experiments.waiting.waits import waits


def main() -> None:
    arguments = parse(__doc__, Path(__file__).parent, seeds=20)
    simulate(RULES, WORLDS, DELAYS, HORIZON, arguments)
    lengths = waits(arguments.seeds[:5], arguments.jobs)
    lengths.to_csv(arguments.output.with_name("waits.csv"), index=False)


if __name__ == "__main__":
    main()
