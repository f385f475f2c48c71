"""Regret as a multiple of one policy's: a column per delay, a row per policy."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from experiments.figures import COLOURS, GREY, below, columns
from experiments.regret.policies import HORIZON

#: Axis limits of regret, and of multiples of it.
TICKS = [5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000]
MULTIPLES = {1: "1×", 3: "", 10: "10×"}
DELAYS = {
    "0": "no delay",
    "geo100": "geometric,\nmean 100",
    "geo1000": "geometric,\nmean 1,000",
    "lomax": "Lomax, no\nvariance",
    "const1000": "constant\n1,000",
    "batch1000": "batches\nof 1,000",
    "never30": "geo. 100,\n30 % lost",
}
#: Colour and marker by problem.
MARKS = list(zip(COLOURS, "osD", strict=False))
#: Offset between the problems of a policy, in rows.
STEP = 0.28


def logarithmic(axes: Iterable[Axes]) -> None:
    """Give vertical log axes a few plain tick labels, once everything is drawn."""
    for axis in axes:
        axis.set_yscale("log")
        low, high = axis.get_ylim()
        ticks = [tick for tick in TICKS if low <= tick <= high]
        axis.set_yticks(ticks, [f"{tick:,}" for tick in ticks])
        axis.minorticks_off()


def multiples(
    table: pd.DataFrame,
    worlds: Iterable[str],
    delays: Sequence[str],
    policies: Sequence[str],
    title: str,
    about: str,
) -> Figure:
    """Compare each policy with the first, whose own regret is written in its row.

    Points are ratios of means over the same seeds, with two standard errors on either side.
    """
    base, *rivals = policies
    heads = [DELAYS[delay] for delay in delays]
    seeds = table["seed"].nunique()
    about += f" Bars: ± 2 standard errors, {seeds} paired seeds."
    chart, axes = columns(title, about, heads, [f"{base},\nits regret", *rivals], row=0.44)
    for k, (world, (colour, mark)) in enumerate(zip(worlds, MARKS, strict=True)):
        selected = table[table["environment"] == world]
        up = (k - 1) * STEP
        for axis, delay in zip(axes, delays, strict=True):
            regrets = selected[selected["delay"] == delay].pivot_table("regret", "seed", "policy")
            name = f" {world}" if axis is axes[0] else ""
            words = f"{regrets[base].mean():,.0f}{name}"
            axis.text(1.0, up, words, color=colour, va="center", fontsize=9)
            for row, policy in enumerate(rivals, start=1):
                middle, low, high = ratio(regrets[policy], regrets[base])
                axis.errorbar(
                    middle, row + up, xerr=[[middle - low], [high - middle]], fmt=mark, ms=4,
                    color=colour, lw=1.3,
                )  # fmt: skip
    for axis in axes:
        axis.axvline(1.0, 0.0, 1.0 - 1.0 / len(policies), color=GREY, lw=0.8, zorder=1)
        axis.set_xscale("log")
        axis.set_xticks(list(MULTIPLES), list(MULTIPLES.values()))
        axis.minorticks_off()
    below(chart, f"regret after {HORIZON:,} rounds, as a multiple of the first row's (log scale)")
    return chart


def ratio(values: pd.Series, base: pd.Series) -> tuple[float, float, float]:
    """Return the ratio of two paired means, and two standard errors of its logarithm either way."""
    middle = values.mean() / base.mean()
    error = float((values / values.mean() - base / base.mean()).std() / len(base) ** 0.5)
    return middle, middle * math.exp(-2.0 * error), middle * math.exp(2.0 * error)
