"""What do forged rewards do to the regret?

Each run is a bandit of its own in a real service on a real PostgreSQL: 2 problems, 20 seeds, 900
rounds. Every seed is played five times: twice honestly, and three times with an attacker who adds
10 % of forged rewards (every kind of token in turn, values that mislead) and some replays, with
tokens enforced, reported and off. A step of 50 rounds begins when the model knows all that was told
before, so that two runs which learn the same choose the same. Without this nothing as small as 1 %
could be seen: of two honest runs of ``experiments.over_http`` on the same seed under the same delay
one had on average 40 % more or less regret than the other (two sweeps of four seeds). About eight
minutes.

Run: python -m experiments.forged.sweep [--seeds 20]; then -m experiments.forged.analysis
"""

from __future__ import annotations

import os

os.environ["OPENBLAS_NUM_THREADS"] = "1"

from itertools import product
from pathlib import Path

import pandas as pd
from tqdm import tqdm

from experiments.forged.runs import Run, play_all
from experiments.forged.worlds import HORIZON, WAYS, WORLDS
from experiments.runs import parse, write
from tests.integration.postgres_server import database

#: Seeds at a time, each in every way: each run takes some connections of the database.
TOGETHER = 2


def main() -> None:
    arguments = parse(__doc__, Path(__file__).parent, seeds=20)
    cells = list(product(WORLDS, arguments.seeds))
    results = []
    with database() as dsn, tqdm(total=len(cells), unit="seed") as bar:
        for start in range(0, len(cells), TOGETHER):
            part = cells[start : start + TOGETHER]
            results.append(
                play_all(dsn, [Run(*cell, way) for cell, way in product(part, WAYS)], HORIZON)
            )
            bar.update(len(part))
    runs, answers = (pd.concat(tables) for tables in zip(*results, strict=True))
    counts = answers.groupby(["way", "token", "answer"], sort=False)["count"].sum()
    counts.to_csv(arguments.output.with_name("answers.csv"))
    columns = ["way", "environment", "seed", "regret", "others", "told", "learned"]
    write(runs, columns, arguments)


if __name__ == "__main__":
    main()
