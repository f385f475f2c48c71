"""Which settings suit each peer: all that entries.py says to try, on seeds the table does not use.

One setting for `ball` (a θ for all) and one for `arms` (a θ for each, as in `digits`, which takes
the same), by the mean regret over three seeds with geometric delays of mean 100. The means go to
``tuning.csv``, from which the table takes the best.

Run: python experiments/peers/tuning.py [--jobs 2]
"""

from __future__ import annotations

import argparse
import json

import pandas as pd
from entries import ENTRIES, TUNED, TUNING
from problems import HERE
from tasks import Task, run_all

CELLS = tuple((seed, "geo100") for seed in range(100, 103))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--jobs", type=int, default=2)
    arguments = parser.parse_args()
    tasks = [
        Task(name, entry.fixed | tried, problem, CELLS)
        for problem in TUNED
        for name, entry in ENTRIES.items()
        for tried in entry.tried
    ]
    table = pd.DataFrame(run_all(tasks, jobs=arguments.jobs, resume=HERE / "runs.jsonl"))
    table["settings"] = table["settings"].map(json.dumps)
    means = table.groupby(["problem", "entry", "settings"], sort=False)["regret"].mean()
    means.to_csv(TUNING, float_format="%.1f")
    best = means.loc[means.groupby(["problem", "entry"], sort=False).idxmin()]
    print(best.round(1).to_string())


if __name__ == "__main__":
    main()
