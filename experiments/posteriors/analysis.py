"""The quality of the posteriors, as text and as a picture, from ``table.csv``.

Two tables, of the error of the mean and of the total variation of the row chosen, both in percent
(``quality.py`` says of what): the mean over data sets ± its standard error. The last column is the
noise of the draws.

Run: python -m experiments.posteriors.analysis
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from experiments.figures import COLOURS, GREY, INK, figure as empty, head, save
from experiments.posteriors.cases import CASES
from experiments.posteriors.quality import ESTIMATORS, NOISE
from experiments.runs import publish, read
from experiments.tables import rule

TITLE = "Laplace with a corrected mean is nearest to exact draws"
TITLES = {
    "error": "Error of the mean\n(% of a posterior deviation)",
    "variation": "Total variation of the row chosen\n(% of choices)",
}
SHORT = {"Laplace, mean corrected": "corrected Laplace"}
TICKS = [0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 50, 100, 200]


def markdown(table: pd.DataFrame) -> str:
    methods = [*ESTIMATORS, NOISE]
    lines = []
    for value, title in TITLES.items():
        lines += [f"**{' '.join(title.split())}**", "", *rule("case", methods)]
        groups = table.groupby(["case", "method"])[value]
        means, errors = groups.mean(), groups.sem()
        for case in CASES:
            cells = [f"{means[case, name]:.1f}±{errors[case, name]:.1f}" for name in methods]
            lines.append(f"| {case} | " + " | ".join(cells) + " |")
        lines.append("")
    return "\n".join(lines)


def draw(axis: Axes, table: pd.DataFrame, value: str, colours: dict[str, str]) -> None:
    """A line of points for each case, and the noise as a grey bar from the left."""
    groups = table.groupby(["method", "case"])[value]
    means, errors = groups.mean(), groups.sem().fillna(0.0)
    y = np.arange(len(CASES))
    axis.set_xscale("log")
    for k, (name, colour) in enumerate(colours.items()):
        middle, spread = means[name][list(CASES)], 2 * errors[name][list(CASES)]
        # On a logarithmic scale a bar must not reach 0.
        low = np.minimum(spread, 0.9 * middle)
        at = y + 0.2 * (k - 1)
        axis.errorbar(middle, at, xerr=[low, spread], fmt="o", ms=5, color=colour, lw=1.4)
    noise = means[NOISE][list(CASES)]
    least = 0.5 * noise.min()
    axis.barh(y, noise - least, left=least, height=0.7, color=GREY, alpha=0.2)
    axis.set_xlim(least, 1.6 * (means + 2 * errors).max())
    ticks = [tick for tick in TICKS if axis.get_xlim()[0] <= tick <= axis.get_xlim()[1]]
    axis.set_xticks(ticks, [f"{tick:g}" for tick in ticks])
    axis.minorticks_off()
    axis.grid(axis="x")
    axis.grid(visible=False, axis="y")
    axis.set_xlabel(TITLES[value] + ", log scale")


def name_them(axis: Axes, table: pd.DataFrame, colours: dict[str, str]) -> None:
    """Words left of the points of the last case, which lie far apart."""
    means = table[table["case"] == list(CASES)[-1]].groupby("method")["error"].mean()
    for k, (name, colour) in enumerate(colours.items()):
        axis.annotate(
            SHORT.get(name, name), (means[name], len(CASES) - 1 + 0.2 * (k - 1)), xytext=(-19, 0),
            color=colour, textcoords="offset points", ha="right", va="center",
        )  # fmt: skip


def figure(table: pd.DataFrame) -> Figure:
    colours = dict(zip(ESTIMATORS, COLOURS, strict=False))
    chart = empty(4.6)
    counts = table.groupby("case")["seed"].nunique()
    sets = " or ".join(str(count) for count in sorted(set(counts), reverse=True))
    top = head(
        chart,
        TITLE,
        f"Against a Pólya–Gamma Gibbs run; mean ± 2 standard errors over {sets} data sets."
        " d features, n rewards, prior precision 1 unless named. Grey: the noise of the draws.",
    )
    axes = chart.subplots(1, 2, sharey=True)
    for axis, value in zip(axes, TITLES, strict=True):
        draw(axis, table, value, colours)
    axes[0].set_yticks(range(len(CASES)), list(CASES))
    axes[0].set_ylim(len(CASES) - 0.4, -0.6)
    axes[0].tick_params(axis="y", labelcolor=INK)
    chart.tight_layout(rect=(0, 0, 1, top))
    name_them(axes[0], table, colours)
    return chart


def main() -> None:
    table, path = read(__doc__, Path(__file__).parent)
    publish(markdown(table), path)
    save(figure(table), path)


if __name__ == "__main__":
    main()
