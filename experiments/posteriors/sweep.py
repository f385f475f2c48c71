"""How good are the normal posteriors that Thompson sampling draws from?

Laplace, Laplace with its mean corrected, and Online, against the exact posterior of logistic
rewards (``quality.py``), in four cases with the prior N(0, I) and two with a weak prior and few
rewards (``cases.py``). 20 data sets of each case, 8 where there are 1,000 rewards: some 4 minutes
on two cores. The measures go to ``table.csv``; then run analysis.py.

Run: python -m experiments.posteriors.sweep [--seeds 20] [--jobs 2]
"""

from __future__ import annotations

import os

os.environ["OPENBLAS_NUM_THREADS"] = "1"

from pathlib import Path

from experiments.parallel import table_of
from experiments.posteriors.cases import CASES
from experiments.posteriors.quality import measure
from experiments.runs import parse, write


def main() -> None:
    arguments = parse(__doc__, Path(__file__).parent, seeds=20)
    cells = [(name, seed) for name, case in CASES.items() for seed in arguments.seeds[: case.sets]]
    table = table_of(measure, cells, jobs=arguments.jobs, unit="data set")
    write(table, list(table.columns), arguments)


if __name__ == "__main__":
    main()
