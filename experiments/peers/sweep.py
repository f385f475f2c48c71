"""The peers and our two main policies on the same work: regret and CPU time, paired seeds.

Every finished run is written to ``runs.jsonl`` beside this file, from which an interrupted sweep
goes on; the table goes to ``table.csv``. Run install.py before, and analysis.py after.

Run: python experiments/peers/sweep.py [--seeds 10] [--jobs 2] [--entries "river LinUCB"] [--quick]
"""

from __future__ import annotations

import argparse
from pathlib import Path

import pandas as pd
from entries import ENTRIES, settings
from problems import DELAYS, HERE, PROBLEMS
from tasks import Task, run_all

QUICK = ["DelayedUCB", "coba LinUCB", "VW squarecb"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--problems", nargs="*", default=list(PROBLEMS))
    parser.add_argument("--entries", nargs="*", default=list(ENTRIES))
    parser.add_argument("--quick", action="store_true", help="one seed, one problem, few entries")
    parser.add_argument("--output", type=Path, default=HERE / "table.csv")
    arguments = parser.parse_args()
    if arguments.quick:
        arguments.seeds, arguments.problems, arguments.entries = 1, ["ball"], QUICK
    tasks = [
        Task(name, settings(name, problem), problem, tuple((seed, d) for d in DELAYS))
        for seed in range(arguments.seeds)
        for problem in arguments.problems
        for name in arguments.entries
    ]
    runs = run_all(tasks, jobs=arguments.jobs, resume=HERE / "runs.jsonl")
    names = ["problem", "delay", "seed", "entry"]
    table = pd.DataFrame(runs)[[*names, "regret", "cpu_seconds"]].sort_values(names)
    table.to_csv(arguments.output, index=False, float_format="%.2f")
    print(f"{len(table)} runs -> {arguments.output.name}")


if __name__ == "__main__":
    main()
