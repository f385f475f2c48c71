"""The cost of encoding as a table, from ``table.csv``.

Mean regret ± standard error, and in brackets how many standard errors it is above that of hand-made
rows on the same seeds (paired t; positive: worse than hand-made). The encoding was chosen on seeds
below 300, which are not among these.

Run: python -m experiments.encoding.analysis
"""

from __future__ import annotations

from pathlib import Path

import pandas as pd

from experiments import tables
from experiments.encoding.worlds import DELAYS, HORIZON, WORLDS
from experiments.runs import publish, read


def summary(table: pd.DataFrame) -> str:
    problems = table["environment"].str.split(": ", expand=True)
    table = table.assign(environment=problems[0], policy=problems[1])
    parts = []
    for problem, horizon in HORIZON.items():
        here = table[table["environment"] == problem]
        rows = [world.rows for world in WORLDS.values() if world.kind == problem]
        parts.append(tables.by_delay(here, [problem], DELAYS, rows, "by hand"))
        parts.append(f"{horizon:,} rounds, {here['seed'].nunique()} paired seeds\n")
    return "\n".join(parts).replace("| policy |", "| rows |")


def main() -> None:
    table, path = read(__doc__, Path(__file__).parent)
    publish(summary(table), path)


if __name__ == "__main__":
    main()
