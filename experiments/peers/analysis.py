"""The table of the peers as text and as a picture, from ``table.csv``.

Mean final regret ± standard error in every cell, and beside each other entry how many standard
errors it is above our default on the same seeds (paired t; negative: better than DelayedUCB). Then
the CPU time of a round, and the version and settings behind every row.

Run: python experiments/peers/analysis.py
"""

from __future__ import annotations

import argparse
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from entries import ENTRIES, settings
from problems import DELAYS, HERE, HORIZON, PROBLEMS

DEFAULT = "DelayedUCB"
#: Okabe and Ito's palette, safe for colour-blind readers: a colour for each library.
COLOURS = {
    "belated": "#000000",
    "bayesianbandits": "#0072B2",
    "coba": "#009E73",
    "contextualbandits": "#E69F00",
    "mabwiser": "#D55E00",
    "river": "#56B4E9",
    "vowpalwabbit": "#CC79A7",
}
#: The entries of one library differ by their mark.
MARKS = "osD"
TICKS = [50, 100, 200, 500, 1000, 2000, 5000]


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


def figure(table: pd.DataFrame, names: list[str]) -> plt.Figure:
    problems = problems_of(table)
    chart, axes = plt.subplots(1, len(problems), figsize=(11, 5), sharey=True)
    peers = [ENTRIES[name].peer for name in names]
    for axis, problem in zip(axes, problems, strict=True):
        here = table[table["problem"] == problem]
        for i, name in enumerate(names):
            of = here[here["entry"] == name].groupby("delay")["regret"]
            means, errors = of.mean().reindex(list(DELAYS)), of.sem().reindex(list(DELAYS))
            at = np.arange(len(DELAYS)) + (i - len(names) / 2) * 0.06
            mark = MARKS[peers[:i].count(peers[i])]
            colour = COLOURS[peers[i]]
            axis.errorbar(at, means, 2 * errors, fmt=mark, ms=4, color=colour, label=name, lw=1.2)
        axis.set_title(problem, loc="left", fontsize=10)
        axis.set_xticks(range(len(DELAYS)), list(DELAYS), rotation=40, ha="right", fontsize=9)
        axis.set_yscale("log")
        axis.set_yticks(TICKS, [f"{tick:,}" for tick in TICKS], minor=False)
        axis.minorticks_off()
        axis.grid(axis="y", which="both", alpha=0.25, lw=0.5)
        axis.spines[["top", "right"]].set_visible(False)
    axes[0].set_ylabel(f"regret after {HORIZON:,} rounds (log scale)")
    axes[0].text(
        0, 1.08, f"mean ± 2 standard errors, {table['seed'].nunique()} paired seeds",
        transform=axes[0].transAxes, fontsize=8, color="#555555",
    )  # fmt: skip
    handles, labels = axes[0].get_legend_handles_labels()
    chart.legend(handles, labels, loc="lower center", ncols=4, fontsize=9, frameon=False)
    chart.tight_layout(rect=(0, 0.13, 1, 1))
    return chart


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--table", type=Path, default=HERE / "table.csv")
    arguments = parser.parse_args()
    table = pd.read_csv(arguments.table, dtype={"delay": str})
    names = [name for name in ENTRIES if name in set(table["entry"])]
    text = "\n".join([*regret(table), *time(table, names), *chosen(names, problems_of(table))])
    print(text)
    arguments.table.with_suffix(".md").write_text(text, encoding="utf-8")
    chart = figure(table, names)
    for kind in ("png", "svg"):
        chart.savefig(arguments.table.with_suffix(f".{kind}"), dpi=150)


if __name__ == "__main__":
    main()
