"""The widths against what was needed, as text and as a picture, from ``table.csv``.

Needed is the 95 % quantile of an error over runs, with its 95 % interval. For each width: its mean,
how many times it is what was needed, and in how many runs it covered the error. The first table is
in the metric of the paper, where a width must be told ‖θ*‖. The second is in the metric of this
library: for all directions at once, for the 20 rows that were on offer, and for the best of them.
Where rows are the same every round, directions that do not pay are hardly explored: there the pull
of the prior remains, and with ‖θ*‖ it grows.

Run: python -m experiments.widths.analysis
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from belated.theory import min_slope
from experiments.figures import COLOURS, figure as empty, head, save
from experiments.labels import end_labels
from experiments.quantiles import quantile
from experiments.runs import publish, read
from experiments.tables import rule
from experiments.widths.errors import FAMILY, NORMS, ROUNDS
from experiments.widths.widths import DELTA, OURS, PAPER, POLICY, WIDTHS

TITLE = "The paper's width grows far beyond what is needed"
CELL = ["environment", "norm", "round"]
#: How a problem is drawn: its line, and how far it is moved to the side.
LINES = {"fresh": ("-", -0.06), "fixed": ((0, (1, 1.5)), 0.06)}
TICKS = [10, 100, 1_000, 10_000]
#: y, words and colour of what is named at the end of a line.
Names = list[tuple[float, str, str]]


def with_widths(table: pd.DataFrame) -> pd.DataFrame:
    return table.assign(**{name: table.apply(width.of, axis=1) for name, width in WIDTHS.items()})


def number(value: float) -> str:
    return f"{value:,.0f}" if value >= 10 else f"{value:.2f}"


def times(group: pd.DataFrame, width: str, error: str) -> str:
    """How many times what was needed."""
    return number(group[width].mean() / quantile(group[error], 1 - DELTA)[0]) + "×"


def needed(errors: pd.Series) -> str:
    middle, low, high = quantile(errors, 1 - DELTA)
    return f"{middle:.1f} [{low:.1f}, {high:.1f}]"


def given(group: pd.DataFrame, name: str) -> list[str]:
    """The width, and beside it for each of its errors the ratio and the coverage."""
    cells = [number(group[name].mean())]
    for error in WIDTHS[name].errors:
        covered = (group[error] <= group[name]).mean()
        cells.append(f"{times(group, name, error)}, {covered:.0%}")
    return cells


def lines(table: pd.DataFrame, errors: tuple[str, ...], titles: list[str]) -> list[str]:
    """The part of the table whose widths are held against these errors."""
    names = [name for name, width in WIDTHS.items() if width.errors == errors]
    head = ["‖θ*‖", "κ", "round", *(f"needed, {title}" for title in titles)]
    head += [column for name in names for column in (name, *titles)]
    out = rule("problem", head)
    for (world, norm, at), group in table.groupby(CELL, sort=False):
        cells = [world, str(norm), f"{min_slope(FAMILY, norm):.2g}", f"{at:,}"]
        cells += [needed(group[error]) for error in errors]
        cells += [cell for name in names for cell in given(group, name)]
        out.append("| " + " | ".join(cells) + " |")
    return out


def markdown(table: pd.DataFrame) -> str:
    second = f"H counts g' x xᵀ; the default's α is {POLICY.alpha}, that of log .75"
    parts = [
        "**In the metric of the paper** (V counts x xᵀ)",
        "",
        *lines(table, PAPER, ["V"]),
        "",
        f"**In the metric of this library** ({second})",
        "",
        *lines(table, OURS, ["all directions", "rows on offer", "best row"]),
    ]
    return "\n".join(parts) + "\n"


def draw_needed(axis: Axes, table: pd.DataFrame, error: str, colour: str, words: str) -> Names:
    """The quantile by ‖θ*‖ with its interval, a line for each problem."""
    names = []
    for world, (line, shift) in LINES.items():
        here = table[table["environment"] == world]
        quantiles = [quantile(here[here["norm"] == norm][error], 1 - DELTA) for norm in NORMS]
        middle, low, high = np.array(quantiles).T
        at = np.array(NORMS) + shift
        axis.errorbar(
            at, middle, [middle - low, high - middle], color=colour, ls=line, marker="o", ms=4,
            lw=1.6, elinewidth=1.2, capsize=2,
        )  # fmt: skip
        names.append((middle[-1], f"{words}, {world}", colour))
    return names


def draw_width(axis: Axes, table: pd.DataFrame, name: str, colour: str, words: str) -> Names:
    """The mean width by ‖θ*‖, of both problems together."""
    means = table.groupby("norm")[name].mean()[list(NORMS)]
    axis.plot(NORMS, means, color=colour, lw=1.8, marker="s", ms=4)
    return [(means[NORMS[-1]], words, colour)]


def figure(table: pd.DataFrame) -> Figure:
    last = table[table["round"] == max(ROUNDS)]
    chart = empty(4.4)
    runs = last.groupby(["environment", "norm"]).size().min()
    top = head(
        chart,
        TITLE,
        f"Round {max(ROUNDS):,}. Needed: 95 % quantile of {runs} runs, with its 95 % interval."
        " Rows are new every round (fresh) or the same 20 (fixed).",
    )
    left, right = chart.subplots(1, 2)
    on_left = draw_width(left, last, "paper", COLOURS[1], "the paper's")
    on_left += draw_needed(left, last, "gram", COLOURS[0], "needed")
    for norm, group in last[last["environment"] == "fresh"].groupby("norm"):
        width = group["paper"].mean()
        left.annotate(
            f"{width / quantile(group['gram'], 1 - DELTA)[0]:.0f}×", (norm, width), xytext=(-3, 6),
            textcoords="offset points", ha="right", color=COLOURS[1], fontsize=9,
        )  # fmt: skip
    left.set_yscale("log")
    left.set_yticks(TICKS, [f"{tick:,}" for tick in TICKS])
    left.set_ylim(5, 60_000)
    left.set_title("In the metric of the paper")
    left.set_ylabel("width, and the error it must exceed (log scale)")
    on_right = draw_needed(right, last, "hessian", COLOURS[0], "all directions")
    on_right += draw_needed(right, last, "best", COLOURS[2], "best row")
    on_right += draw_width(right, last, "default", COLOURS[1], "the default's")
    right.set_ylim(0, None)
    right.set_title("In the metric of this library")
    right.set_ylabel("the same, in posterior deviations")
    for axis in (left, right):
        axis.set_xlabel("‖θ*‖, the strength of the effects (logits)")
        axis.set_xticks(NORMS)
        axis.set_xlim(-0.4, NORMS[-1] + 0.3)
    chart.tight_layout(rect=(0, 0, 0.85, top), w_pad=7)
    end_labels(left, NORMS[-1], on_left)
    end_labels(right, NORMS[-1], on_right)
    return chart


def main() -> None:
    table, path = read(__doc__, Path(__file__).parent)
    table = with_widths(table)
    publish(markdown(table), path)
    save(figure(table), path)


if __name__ == "__main__":
    main()
