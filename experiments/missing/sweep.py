"""How many rewards are missing at once, under every kind of delay?

10,000 paths of 3,000 rounds under each process of ``processes.py``: the number of rewards missing
in the last round, and the largest number in any round. The counts of paths go to ``table.csv``;
analysis.py holds every bound against them. Some 1 minute on two cores.

Run: python -m experiments.missing.sweep [--seeds 10000] [--jobs 2]
"""

from __future__ import annotations

import os

os.environ["OPENBLAS_NUM_THREADS"] = "1"

from pathlib import Path

from experiments.missing.counts import count
from experiments.missing.processes import PROCESSES
from experiments.parallel import table_of
from experiments.runs import parse, write

#: Paths that a process draws at a time.
TOGETHER = 500


def main() -> None:
    arguments = parse(__doc__, Path(__file__).parent, seeds=10_000)
    seeds = arguments.seeds
    parts = [seeds[start : start + TOGETHER] for start in range(0, len(seeds), TOGETHER)]
    cells = [(name, part) for name in PROCESSES for part in parts]
    table = table_of(count, cells, jobs=arguments.jobs, unit="part")
    keys = ["process", "what", "missing"]
    table = table.groupby(keys, sort=False, as_index=False)["paths"].sum()
    write(table, [*keys, "paths"], arguments)


if __name__ == "__main__":
    main()
