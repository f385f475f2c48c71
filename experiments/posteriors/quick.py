"""A few other data sets, held against the committed table: fails if outside its intervals.

Takes some seconds.

Run: python -m experiments.posteriors.quick
"""

from __future__ import annotations

import os

os.environ["OPENBLAS_NUM_THREADS"] = "1"

import itertools
from pathlib import Path

import pandas as pd

from experiments.checks import hold
from experiments.parallel import table_of
from experiments.posteriors.cases import CASES
from experiments.posteriors.quality import measure

SEEDS = range(1000, 1003)
NAMES = [name for name, case in CASES.items() if case.n == 20]


def main() -> None:
    cells = list(itertools.product(NAMES, SEEDS))
    table = table_of(measure, cells, jobs=1, unit="data set")
    committed = pd.read_csv(Path(__file__).with_name("table.csv"))
    for value in ("error", "variation"):
        print(f"{value} in percent: the new mean, the table's, deviations between them")
        hold(table, committed, ["case", "method"], value)


if __name__ == "__main__":
    main()
