"""The regret table: policies x three problems x seven delays, paired seeds.

Every finished run is written to ``runs.jsonl`` beside this file, from which an interrupted sweep
goes on; the table of final regrets goes to ``table.csv``. Then run analysis.py.

Run: python -m experiments.regret.sweep [--seeds 40] [--policies DelayedUCB DelayedThompson]
"""

from __future__ import annotations

import os

os.environ["OPENBLAS_NUM_THREADS"] = "1"

import argparse
import time
from pathlib import Path

from belated import simulate_many
from experiments.regret.policies import DELAYS, HORIZON, POLICIES, WORLDS

HERE = Path(__file__).parent


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=40)
    parser.add_argument("--first-seed", type=int, default=0)
    parser.add_argument("--policies", nargs="*", default=list(POLICIES))
    parser.add_argument("--output", type=Path, default=HERE / "table.csv")
    arguments = parser.parse_args()
    start = time.perf_counter()
    table = simulate_many(
        {name: POLICIES[name] for name in arguments.policies},
        WORLDS,
        DELAYS,
        seeds=range(arguments.first_seed, arguments.first_seed + arguments.seeds),
        horizon=HORIZON,
        resume=arguments.output.with_name("runs.jsonl"),
    )
    columns = ["policy", "environment", "delay", "seed", "regret"]
    table[columns].to_csv(arguments.output, index=False, float_format="%.2f")
    minutes = (time.perf_counter() - start) / 60
    print(f"{len(table)} runs in {minutes:.1f} minutes -> {arguments.output.name}")


if __name__ == "__main__":
    main()
