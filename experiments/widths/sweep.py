"""How wide is wide enough? The error of the default policy's estimate, over many runs.

Two problems (new rows every round, the same rows every round), ‖θ*‖ of 1, 3, 5 and 8, four rounds
up to 3,000, as ``errors.py`` describes. The errors of every run go to ``table.csv``; analysis.py
holds the widths against them. 250 seeds: some 4 minutes on two cores.

Run: python -m experiments.widths.sweep [--seeds 250] [--jobs 2]
"""

from __future__ import annotations

import os

os.environ["OPENBLAS_NUM_THREADS"] = "1"

import itertools
from pathlib import Path

from experiments.parallel import table_of
from experiments.runs import parse, write
from experiments.widths.errors import NORMS, WORLDS, measure


def main() -> None:
    arguments = parse(__doc__, Path(__file__).parent, seeds=250)
    cells = list(itertools.product(WORLDS, NORMS, arguments.seeds))
    table = table_of(measure, cells, jobs=arguments.jobs, unit="run")
    write(table, list(table.columns), arguments)


if __name__ == "__main__":
    main()
