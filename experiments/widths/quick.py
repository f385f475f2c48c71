"""A few runs on other seeds, held against the committed table: fails if outside its intervals.

Takes some seconds.

Run: python -m experiments.widths.quick
"""

from __future__ import annotations

import os

os.environ["OPENBLAS_NUM_THREADS"] = "1"

import itertools
from pathlib import Path

import pandas as pd

from experiments.checks import hold
from experiments.parallel import table_of
from experiments.widths.errors import WORLDS, measure

SEEDS = range(1000, 1004)
NORMS = (1, 5)


def main() -> None:
    cells = list(itertools.product(WORLDS, NORMS, SEEDS))
    table = table_of(measure, cells, jobs=1, unit="run")
    committed = pd.read_csv(Path(__file__).with_name("table.csv"))
    for error in ("gram", "hessian"):
        print(f"{error}: the new mean, the table's, deviations between them")
        hold(table, committed, ["environment", "norm", "round"], error)


if __name__ == "__main__":
    main()
