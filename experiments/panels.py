"""Regret under each delay: a panel for each problem, a colour for each policy."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from experiments.figures import COLOURS, GREY
from experiments.regret.policies import HORIZON

TICKS = [5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000]


def key(chart: Figure, colours: Mapping[str, str], **where: object) -> None:
    """The names in their colours, in rows: a legend whose marks are its words."""
    marks = [plt.Line2D([], [], color=colour, label=name) for name, colour in colours.items()]
    settings = {"fontsize": 10, "frameon": False, "handlelength": 0, "handletextpad": 0}
    chart.legend(handles=marks, labelcolor="linecolor", **(settings | where))


def logarithmic(axes: Iterable[Axes]) -> None:
    """Vertical axes with a few plain numbers, once all is drawn."""
    for axis in axes:
        axis.set_yscale("log")
        low, high = axis.get_ylim()
        ticks = [tick for tick in TICKS if low <= tick <= high]
        axis.set_yticks(ticks, [f"{tick:,}" for tick in ticks])
        axis.minorticks_off()


def by_delay(
    table: pd.DataFrame,
    worlds: Iterable[str],
    delays: Iterable[str],
    policies: Sequence[str],
    columns: int = 3,
) -> Figure:
    """Points with two standard errors, all policies of a delay beside each other."""
    worlds, delays = list(worlds), list(delays)
    colours = dict(zip(policies, COLOURS, strict=False))
    chart, axes = plt.subplots(1, len(worlds), figsize=(9.6, 4.6), sharey=True)
    step = 0.72 / len(policies)
    for axis, world in zip(axes, worlds, strict=True):
        here = table[table["environment"] == world]
        for i, (name, colour) in enumerate(colours.items()):
            of = here[here["policy"] == name].groupby("delay")["regret"]
            means, errors = of.mean()[delays], of.sem()[delays]
            at = np.arange(len(delays)) + (i - (len(policies) - 1) / 2) * step
            axis.errorbar(at, means, 2 * errors, fmt="o", ms=4, color=colour, lw=1.3)
        for between in np.arange(len(delays) - 1) + 0.5:
            axis.axvline(between, color=GREY, lw=0.4, alpha=0.35)
        axis.set_title(world)
        axis.set_xticks(range(len(delays)), delays, rotation=40, ha="right", fontsize=9)
        axis.tick_params(axis="x", length=0)
        axis.set_xlim(-0.5, len(delays) - 0.5)
    logarithmic(axes)
    axes[0].set_ylabel(f"regret after {HORIZON:,} rounds (log scale)")
    axes[len(axes) // 2].set_xlabel("delay, in rounds")
    key(chart, colours, loc="upper left", ncols=columns)
    rows = -(-len(policies) // columns)
    chart.tight_layout(rect=(0, 0.03, 1, 0.98 - 0.05 * rows))
    return chart
