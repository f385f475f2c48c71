"""The table of the sweep, and whether what was asked of half-lives holds.

Prints and writes ``table.md``: mean regrets with their standard errors, the ratio of "auto" to
what it is held against in the same runs, and the bound on it.

Run: python -m experiments.forgetting.analysis
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pandas as pd

from experiments.forgetting.problems import SINGLE, name_of

HERE = Path(__file__).parent
SHORT = 3_000
#: Regret in the short run: of "auto", and of one half-life of 500 rounds.
MOST = {"auto": 150.0, "500": 240.0}
#: How much worse "auto" may be than the best: where nothing changes, and by the delay elsewhere.
STAYS = 1.05
CHANGES = {"0": 1.15, "geo100": 1.15, "geo1000": 1.25, "batch1000": 1.25}
#: The same 20 rows with rewards once in 1,000 rounds.
REPEATED_BATCHES = 1.3


class Line(NamedTuple):
    """A cell: what was found, and whether it is within its bound."""

    cell: str
    seeds: int
    none: str
    best: str
    auto: str
    ratio: str
    bound: str
    holds: str


def main() -> None:
    table = pd.read_csv(HERE / "table.csv", dtype={"policy": str, "delay": str})
    lines = [*short(table), *cells(table)]
    text = "\n".join(_written(lines))
    (HERE / "table.md").write_text(text + "\n", encoding="utf-8")
    print(text)
    missed = [line.cell for line in lines if line.holds == "no"]
    print(f"{len(lines) - len(missed)} of {len(lines)} bounds hold; not: {missed or 'none'}")


def short(table: pd.DataFrame) -> Iterator[Line]:
    """θ replaced in the middle of a short run, rows fresh, no delay."""
    runs = _paired(table[table["round"] == SHORT])
    for policy, most in MOST.items():
        mean = float(runs[policy].mean())
        cell = f"replaced, fresh, T = {SHORT:,}: {policy}"
        none, shown = _shown(runs["none"]), _shown(runs[policy])
        holds = "yes" if mean <= most else "no"
        yield Line(cell, len(runs), none, "", shown, "", f"{most:.0f}", holds)


def cells(table: pd.DataFrame) -> Iterator[Line]:
    """Every problem and delay of the long runs."""
    long = table[table["round"] != SHORT]
    for (world, delay), part in long.groupby(["environment", "delay"], sort=False):
        runs = _paired(part)
        if len(runs) < 2:
            continue
        stays = world.startswith("stays")
        singles = ["none"] if stays else [name_of(policy) for policy in SINGLE]
        best = min(singles, key=lambda name: float(runs[name].mean()))
        ratio, error = _ratio(runs["auto"], runs[best])
        bound = STAYS if stays else CHANGES[delay]
        if world.endswith("fixed") and delay == "batch1000" and not stays:
            bound = REPEATED_BATCHES
        # Two standard errors are allowed only where nothing changes.
        holds = ratio - (2.0 * error if stays else 0.0) <= bound
        named = _shown(runs[best]) + ("" if stays else f" ({best})")
        yield Line(
            f"{world}, {delay}", len(runs), _shown(runs["none"]), named, _shown(runs["auto"]),
            f"{ratio:.2f} ± {error:.2f}", f"{bound:.2f}", "yes" if holds else "no",
        )  # fmt: skip


def _paired(part: pd.DataFrame) -> pd.DataFrame:
    """A line for each seed that all policies have, a column for each policy."""
    return part.pivot_table(index="seed", columns="policy", values="regret").dropna()


def _ratio(found: pd.Series, best: pd.Series) -> tuple[float, float]:
    """Of the means, with its standard error by the paired differences."""
    ratio = float(found.mean() / best.mean())
    spread = np.std(found - ratio * best, ddof=1) / math.sqrt(len(found))
    return ratio, float(spread / best.mean())


def _shown(values: pd.Series) -> str:
    error = np.std(values, ddof=1) / math.sqrt(len(values)) if len(values) > 1 else math.nan
    return f"{values.mean():.0f} ± {error:.0f}"


def _written(lines: list[Line]) -> Iterator[str]:
    yield "| problem, delay | seeds | no half-life | best single | auto | ratio | bound | holds |"
    yield "|---|--:|--:|--:|--:|--:|--:|---|"
    for line in lines:
        yield "| " + " | ".join(map(str, line)) + " |"


if __name__ == "__main__":
    main()
