"""The price of encoding as a table, from ``table.csv``.

Mean regret ± standard error, and in brackets how many standard errors it is above that of rows made
by hand on the same seeds (paired t; positive: worse than by hand). How fields are encoded was
chosen among seven variants on seeds 0 to 15 of ``mixed`` under ``geo100``: there, later seeds alone
are a fair test.

Run: python -m experiments.encoding.analysis
"""

from __future__ import annotations

from pathlib import Path

import pandas as pd

from experiments import tables
from experiments.encoding.worlds import DELAYS, HORIZON, WORLDS
from experiments.runs import publish, read

#: The last seed on which the encoding was chosen.
CHOSEN_ON = 15


def summary(table: pd.DataFrame) -> str:
    problems = table["environment"].str.split(": ", expand=True)
    table = table.assign(environment=problems[0], policy=problems[1])
    parts = []
    for problem, horizon in HORIZON.items():
        here = table[table["environment"] == problem]
        rows = [one.rows for one in WORLDS.values() if one.kind == problem]
        parts.append(tables.by_delay(here, [problem], DELAYS, rows, "by hand"))
        parts.append(f"{horizon:,} rounds, {here['seed'].nunique()} paired seeds\n")
        if problem == "mixed":
            later = here[here["seed"] > CHOSEN_ON]
            parts.append("Seeds that had no part in choosing how fields are encoded:\n")
            parts.append(tables.by_delay(later, [problem], DELAYS, rows, "by hand"))
    return "\n".join(parts).replace("| policy |", "| rows |")


def main() -> None:
    table, path = read(__doc__, Path(__file__).parent)
    publish(summary(table), path)


if __name__ == "__main__":
    main()
