"""The table of the peers as text and as a picture, from ``table.csv``.

Mean final regret ± standard error in every cell, and beside each other entry how many standard
errors it is above our default on the same seeds (paired t; negative: better than DelayedUCB). Then
the CPU time of a round, and the version and settings behind every row.

Run: python -m experiments.peers.analysis
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
import pandas as pd

from experiments import panels
from experiments.figures import save
from experiments.peers.entries import ENTRIES, settings
from experiments.peers.problems import DELAYS, HERE, HORIZON, PROBLEMS

DEFAULT = "DelayedUCB"
TITLE = "No other library has clearly less regret than DelayedUCB"
ABOUT = (
    "Settings of other libraries were tuned for each problem; those of belated are its defaults."
)


def cell(values: pd.Series, default: pd.Series) -> str:
    text = f"{values.mean():.0f}±{values.sem():.0f}"
    difference = (values - default).dropna()
    if len(difference) < 2 or difference.abs().max() == 0:
        return text
    return f"{text} ({difference.mean() / difference.sem():+.1f})"


def problems_of(table: pd.DataFrame) -> list[str]:
    """Those that were run."""
    return [problem for problem in PROBLEMS if problem in set(table["problem"])]


def regret(table: pd.DataFrame) -> list[str]:
    lines = []
    for problem in problems_of(table):
        wide = table[table["problem"] == problem].pivot_table("regret", ["delay", "seed"], "entry")
        lines += [f"**{problem}**, regret after {HORIZON:,} rounds", ""]
        lines += ["| entry | " + " | ".join(DELAYS) + " |", "|---|" + "--:|" * len(DELAYS)]
        wide = wide.reindex(columns=list(ENTRIES))
        for name in wide.columns[wide.notna().any()]:
            cells = [cell(wide.loc[delay, name], wide.loc[delay, DEFAULT]) for delay in DELAYS]
            lines.append(f"| {name} | " + " | ".join(cells) + " |")
        lines.append("")
    return lines


def time(table: pd.DataFrame, names: list[str]) -> list[str]:
    micros = table.assign(micros=table["cpu_seconds"] / HORIZON * 1e6)
    wide = micros.pivot_table("micros", "entry", "problem", aggfunc="median")
    problems = problems_of(table)
    lines = ["**CPU µs per round**, the median of all delays and seeds", ""]
    lines += ["| entry | " + " | ".join(problems) + " |", "|---|" + "--:|" * len(problems)]
    for name in names:
        times = wide.reindex(columns=problems).loc[name]
        cells = ["" if np.isnan(value) else f"{value:,.0f}" for value in times]
        lines.append(f"| {name} | " + " | ".join(cells) + " |")
    return [*lines, ""]


def chosen(names: list[str], problems: list[str]) -> list[str]:
    lines = ["**Settings**: of peers the best of those tried for each problem (`tuning.csv`), on"]
    lines += [
        "other seeds; linear learners are told y - 1/2. Ours are the defaults everywhere.",
        "",
    ]
    lines += ["| entry | version | " + " | ".join(problems) + " |"]
    lines += ["|---|---|" + "---|" * len(problems)]
    for name in names:
        cells = [f"`{_words(settings(name, problem))}`" for problem in problems]
        lines.append(f"| {name} | {version(ENTRIES[name].peer)} | " + " | ".join(cells) + " |")
    return [*lines, ""]


def version(peer: str) -> str:
    if peer == "belated":
        return "this one"
    pins = (HERE / "requirements" / f"{peer}.txt").read_text(encoding="utf-8").split()
    return dict(pin.split("==") for pin in pins)[peer]


def _words(of: dict[str, object]) -> str:
    return ", ".join(f"{name} {value}" for name, value in of.items())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--table", type=Path, default=HERE / "table.csv")
    arguments = parser.parse_args()
    table = pd.read_csv(arguments.table, dtype={"delay": str})
    names = [name for name in ENTRIES if name in set(table["entry"])]
    text = "\n".join([*regret(table), *time(table, names), *chosen(names, problems_of(table))])
    print(text)
    arguments.table.with_suffix(".md").write_text(text, encoding="utf-8")
    renamed = table.rename(columns={"problem": "environment", "entry": "policy"})
    problems, delays = problems_of(table), list(DELAYS)
    save(panels.multiples(renamed, problems, delays, names, TITLE, ABOUT), arguments.table)


if __name__ == "__main__":
    main()
