"""The table of how far frozen rows are off: table.csv to table.md.

Run: python -m experiments.blocks.analysis [--table table.csv]
"""

from __future__ import annotations

from pathlib import Path

import pandas as pd

from experiments.runs import publish, read
from experiments.tables import rule

COLUMNS = (
    "seeds",
    "estimate off",
    "one step off",
    "precision off",
    "rows kept",
    "regret",
    "less that of all",
)


def line(name: str, dim: int, store: str, here: pd.DataFrame, everything: pd.DataFrame) -> str:
    """One cell: the worst of its seeds, and the paired difference in regret."""
    regret = here.set_index("seed")["regret"]
    difference = regret - everything.set_index("seed")["regret"]
    error = f" ± {difference.sem():.2f}" if len(difference) > 1 else ""
    return (
        f"| {name}, d = {dim}, {store} | {len(here)} |"
        f" {here['off'].max():.3f} | {here['step'].max():.3f} |"
        f" {100 * here['precision'].max():.1f} % | {here['rows'].max():,.0f} |"
        f" {regret.mean():.0f} | {difference.mean():+.2f}{error} |"
    )


def main() -> None:
    table, path = read(__doc__, Path(__file__).parent)
    table["store"] = table["store"].astype(str)
    lines = [
        "Frozen rows against all rows, 10⁶ rewards: the worst of some seeds, in posterior"
        " standard deviations of the full fit; regret as a mean, and its paired difference"
        " ± standard error.",
        "",
        *rule("family, features, partitions", COLUMNS),
    ]
    for (dim, name), cell in table.groupby(["dim", "family"]):
        complete = cell[cell["store"] == "all"]
        for store in ("1", "4", "16"):
            here = cell[cell["store"] == store]
            lines.append(line(name, dim, store, here, complete))
    publish("\n".join([*lines, ""]), path)


if __name__ == "__main__":
    main()
