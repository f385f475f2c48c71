"""The picture of the rates: T, d and K above, the mean delay and the tail below."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from experiments.figures import COLOURS, GREY, PAPER, band, figure as empty, head
from experiments.labels import end_labels
from experiments.panels import logarithmic
from experiments.rates import fits
from experiments.rates.fits import Array, Fit
from experiments.rates.problems import (
    ARMS,
    BASE,
    DIMS,
    GEOMETRIC,
    HORIZON,
    LOMAX,
    LONG,
    MEDIAN,
    ROUNDS,
    SHAPES,
    WORLDS,
)
from experiments.rates.regrets import Regrets, paired

COLOUR = dict(zip(WORLDS, COLOURS, strict=False))
TITLE = "A delay costs a fixed sum of regret; the paper's rate would go on growing"
#: The mean delay at which the paper's law is made to pass through the extra regret at T = 10,000.
ANCHOR = 1_000


def growth(axis: Axes, name: str, x: Sequence[int], values: dict[str, Array], rate: float) -> None:
    """Regret over x, its exponents, and the rate of the bound from the first point of ``fresh``."""
    at = np.array(x, dtype=float)
    for i, (world, table) in enumerate(values.items()):
        colour = COLOUR[world]
        band(axis, at, table.mean(axis=0), fits.errors(table), colour, marker="o", ms=3.5)
        _write(axis, 0.96 - 0.09 * i, f"{world} {_power(name, fits.exponent(at, table))}", colour)
    bound = values["fresh"].mean(axis=0)[0] * (at / at[0]) ** rate
    axis.plot(at, bound, color=GREY, lw=1.2, ls="--")
    middle, flat = len(x) // 2, rate == 0.0
    axis.annotate(
        "paper: not with K" if flat else f"paper {_rate(name, rate)}",
        (at[-1 if flat else middle], bound[middle]), xytext=(0, -4) if flat else (-4, 4),
        textcoords="offset points", ha="right", va="top" if flat else "bottom", color=GREY,
        fontsize=9,
    )  # fmt: skip
    _horizontal(axis, at)


def delay(axis: Axes, regrets: Regrets, world: str) -> None:
    """The extra regret at both horizons, and the paper's law for both."""
    means, colour = regrets.means, COLOUR[world]
    short, long = regrets.extra(world, HORIZON), regrets.extra(world, LONG)
    anchor = short.mean(axis=0)[list(means).index(ANCHOR)]
    # Side by side, so that both can be seen; a point below the axis still shows its upper error.
    for t, values, side, mark in ((HORIZON, short, 0.91, "o"), (LONG, long, 1.1, "s")):
        filled = colour if t == HORIZON else PAPER
        axis.errorbar(
            side * means, values.mean(axis=0), 2 * fits.errors(values), color=colour, fmt=mark,
            ms=5, mfc=filled, lw=1.5,
        )  # fmt: skip
        law = anchor * np.sqrt(means / ANCHOR * t / HORIZON)
        axis.plot(means, law, color=GREY, lw=1.2, ls="--" if t == HORIZON else ":", zorder=1)
    x, y = means[-2], anchor * np.sqrt(means[-2] / ANCHOR * LONG / HORIZON)
    axis.text(x, y + 8, f"√(μT), T = {LONG:,} ", color=GREY, fontsize=9, ha="right")
    _write(axis, 0.96, _power("μ", fits.power(means, short)), colour)
    _write(axis, 0.87, f"a·μ, a = {fits.slope(means, short):.2f}", colour)
    _write(axis, 0.78, f"T = {HORIZON:,} ●  {LONG:,} □", colour)
    _horizontal(axis, means)


def tail(axis: Axes, regrets: Regrets) -> list[tuple[float, str, str]]:
    """Regret under delays of one median, heavier from left to right; gives what to name."""
    ends = []
    laws = {BASE: GEOMETRIC[BASE], **LOMAX}
    at = np.arange(len(laws))
    for world, colour in COLOUR.items():
        values = paired([regrets.at(world, name) for name in laws])
        band(axis, at, values.mean(axis=0), fits.errors(values), colour, marker="o", ms=3.5)
        ends.append((values.mean(axis=0)[-1], world, colour))
    means = [f"{law.mean:,.0f}".replace("inf", "∞") for law in laws.values()]
    names = ["geo.", *(f"{shape:g}" for shape in SHAPES)]
    axis.set_xticks(at, [f"{name}\n{mean}" for name, mean in zip(names, means, strict=True)])
    axis.tick_params(axis="x", labelsize=8)
    return ends


def figure(regrets: Regrets) -> Figure:
    chart = empty(7.6)
    top = head(
        chart,
        TITLE,
        f"DelayedUCB, defaults; T = {HORIZON:,}, d = 10, K = 20, mean delay 100 where not varied."
        " Rows are the same every round (fixed) or new (fresh)."
        f" Bands and bars: ± 2 standard errors; {regrets.seeds} paired seeds,"
        f" {regrets.more_seeds} for T and the mean delay; intervals: 95 %. The paper's √(μT) passes"
        f" through T = {HORIZON:,}, μ = {ANCHOR:,}: dashed for that T, dotted for {LONG:,}.",
    )
    grid = chart.add_gridspec(2, 3)
    above = [chart.add_subplot(grid[0, 0])]
    above += [chart.add_subplot(grid[0, i], sharey=above[0]) for i in (1, 2)]
    under = [chart.add_subplot(grid[1, 0])]
    under += [chart.add_subplot(grid[1, 1], sharey=under[0]), chart.add_subplot(grid[1, 2])]
    rounds = {world: regrets.over_rounds(world, BASE, ROUNDS) for world in WORLDS}
    growth(above[0], "T", ROUNDS, rounds, 0.5)
    growth(above[1], "d", DIMS, {world: regrets.over_dims(world) for world in WORLDS}, 1.0)
    growth(above[2], "K", ARMS, {world: regrets.over_arms(world) for world in WORLDS}, 0.0)
    for axis, world in zip(under, WORLDS, strict=False):
        delay(axis, regrets, world)
        axis.set_title(f"mean delay μ, {world}")
        axis.set_xlabel("mean of a geometric delay, rounds")
    ends = tail(under[2], regrets)
    for axis, words in zip(above, ("rounds T", "features d", "actions K"), strict=True):
        axis.set_title(words)
        axis.set_xlabel(words[:-2])
    above[0].set_ylabel("regret (log scale)")
    under[0].set_ylabel("extra regret over no delay")
    under[2].set_title("tail of the delay")
    under[2].set_ylabel("regret")
    under[2].set_xlabel(f"Lomax shape, and mean delay\n(median {MEDIAN} rounds)")
    under[2].set_ylim(0, None)
    above[0].set_ylim(20, 1_000)
    under[0].set_ylim(-40, 300)
    logarithmic(above)
    for axis in (*above[1:], under[1]):
        axis.tick_params(labelleft=False)
    chart.tight_layout(rect=(0, 0, 0.96, top), h_pad=2)
    end_labels(under[2], len(LOMAX), ends)
    return chart


def _write(axis: Axes, y: float, text: str, colour: str, x: float = 0.04) -> None:
    axis.text(x, y, text, color=colour, transform=axis.transAxes, va="top", fontsize=9)


def _power(name: str, fit: Fit) -> str:
    return rf"${name}^{{\,{fit.value:.2f}}}$ [{fit.low:.2f}, {fit.high:.2f}]"


def _rate(name: str, rate: float) -> str:
    return f"${name}$" if rate == 1.0 else rf"$\sqrt{{{name}}}$"


def _horizontal(axis: Axes, x: Array) -> None:
    axis.set_xscale("log")
    ticks = x if len(x) < 5 else x[::2]  # as many as there is room for
    axis.set_xticks(ticks, [f"{tick:,.0f}" for tick in ticks], fontsize=9)
    axis.minorticks_off()
