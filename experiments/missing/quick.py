"""A few other paths, held against the committed table: fails if outside its intervals.

Takes some seconds.

Run: python -m experiments.missing.quick
"""

from __future__ import annotations

import os

os.environ["OPENBLAS_NUM_THREADS"] = "1"

from pathlib import Path

import pandas as pd

from experiments.checks import hold
from experiments.missing.counts import count, each
from experiments.missing.processes import PROCESSES
from experiments.parallel import table_of

SEEDS = range(100_000, 100_200)


def main() -> None:
    table = table_of(count, [(name, SEEDS) for name in PROCESSES], jobs=1, unit="process")
    committed = pd.read_csv(Path(__file__).with_name("table.csv"))
    print("rewards missing: the new mean, the table's, deviations between them")
    hold(each(table), each(committed), ["process", "what"], "missing")


if __name__ == "__main__":
    main()
