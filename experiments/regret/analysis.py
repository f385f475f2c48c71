"""The regret table as text and as a picture, from ``table.csv``.

Mean final regret ± standard error in every cell, and beside each other policy how many standard
errors it is above the default on the same seeds (paired t; positive: worse than DelayedUCB).

Run: python -m experiments.regret.analysis
"""

from __future__ import annotations

import argparse
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd

from experiments.figures import COLOURS, GREY, save
from experiments.regret.policies import DELAYS, POLICIES, WORLDS

HERE = Path(__file__).parent
DEFAULT = "DelayedUCB"
TICKS = [20, 50, 100, 200, 500, 1000, 2000]


def cell(values: pd.Series, default: pd.Series) -> str:
    text = f"{values.mean():.0f}±{values.sem():.0f}"
    difference = values - default
    if difference.abs().max() == 0:
        return text
    return f"{text} ({difference.mean() / difference.sem():+.1f})"


def markdown(table: pd.DataFrame) -> str:
    lines = []
    for world in WORLDS:
        lines += [f"**{world}**", "", "| policy | " + " | ".join(DELAYS) + " |"]
        lines += ["|---|" + "--:|" * len(DELAYS)]
        for policy in [name for name in POLICIES if name in set(table["policy"])]:
            cells = []
            for delay in DELAYS:
                here = table[(table["environment"] == world) & (table["delay"] == delay)]
                wide = here.pivot_table("regret", "seed", "policy")
                cells.append(cell(wide[policy], wide[DEFAULT]))
            lines.append(f"| {policy} | " + " | ".join(cells) + " |")
        lines.append("")
    return "\n".join(lines)


def figure(table: pd.DataFrame) -> plt.Figure:
    names = [name for name in POLICIES if name in set(table["policy"])]
    chart, axes = plt.subplots(1, len(WORLDS), figsize=(11, 4.2), sharey=True)
    for axis, world in zip(axes, WORLDS, strict=True):
        here = table[table["environment"] == world]
        for name, colour in zip(names, COLOURS, strict=False):
            of = here[here["policy"] == name].groupby("delay")["regret"]
            means, errors = of.mean()[list(DELAYS)], of.sem()[list(DELAYS)]
            at = np.arange(len(DELAYS)) + (names.index(name) - len(names) / 2) * 0.06
            axis.errorbar(at, means, 2 * errors, fmt="o", ms=4, color=colour, label=name, lw=1.2)
        axis.set_title(world, loc="left", fontsize=10)
        axis.set_xticks(range(len(DELAYS)), list(DELAYS), rotation=40, ha="right", fontsize=8)
        axis.set_yscale("log")
        axis.set_yticks(TICKS, [f"{tick:,}" for tick in TICKS], minor=False)
        axis.minorticks_off()
        axis.grid(axis="y", which="both", alpha=0.25, lw=0.5)
        axis.spines[["top", "right"]].set_visible(False)
    axes[0].set_ylabel("regret after 10,000 rounds (log scale)")
    seeds = table["seed"].nunique()
    axes[0].text(
        0, 1.1, f"mean ± 2 standard errors, {seeds} paired seeds", transform=axes[0].transAxes,
        fontsize=8, color=GREY,
    )  # fmt: skip
    handles, labels = axes[0].get_legend_handles_labels()
    chart.legend(handles, labels, loc="lower center", ncols=4, fontsize=8, frameon=False)
    chart.tight_layout(rect=(0, 0.09, 1, 1))
    return chart


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--table", type=Path, default=HERE / "table.csv")
    arguments = parser.parse_args()
    table = pd.read_csv(arguments.table, dtype={"delay": str})
    text = markdown(table)
    print(text)
    (arguments.table.with_suffix(".md")).write_text(text, encoding="utf-8")
    chart = figure(table)
    save(chart, arguments.table)


if __name__ == "__main__":
    main()
