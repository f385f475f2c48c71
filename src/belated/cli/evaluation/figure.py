"""Pictures of ``belated evaluate | lift | delays``: intervals, and the curve of delays."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import NamedTuple

from belated.cli.simulation.figures import (
    FOOT,
    HEAD,
    LIGHT,
    MARGIN,
    SMALL,
    WIDTH,
    add_axes,
    add_head,
    drawn,
    width_of,
)
from belated.cli.text import several, span
from belated.evaluation import DelayCurve

#: Inches of a line with an interval, and of the curve.
LINE, CURVE = 0.55, 3.2


class Interval(NamedTuple):
    """A number with the ends of its interval."""

    name: str
    value: float
    low: float
    high: float


def add_figure(parser: argparse.ArgumentParser) -> None:
    """Into which file to draw."""
    parser.add_argument("--figure", metavar="FILE", help="draw it: .png, .svg or .pdf")


def save_intervals(path: str, title: str, about: str, lines: Sequence[Interval]) -> None:
    """Draw numbers with their intervals, one below the other."""
    labels = [[one.name] for one in lines]
    left = max(map(width_of, labels)) + 3 * MARGIN
    height = HEAD + LINE * len(lines) + FOOT
    with drawn(path, height) as figure:
        add_head(figure, title, [about])
        plot = WIDTH - left - 8 * MARGIN
        axes = add_axes(figure, left, HEAD, plot, LINE * len(lines))
        for place, one in enumerate(lines):
            colour = LIGHT.colours[place % len(LIGHT.colours)]
            axes.plot([one.low, one.high], [place, place], lw=2.2, color=colour)
            axes.plot([one.value], [place], "o", ms=7, color=colour)
            axes.annotate(
                f"{one.value:.4g}",
                (one.value, place),
                xytext=(0, 9),
                textcoords="offset points",
                ha="center",
                fontsize=SMALL,
                color=LIGHT.ink,
            )
        if min(one.low for one in lines) < 0.0 < max(one.high for one in lines):
            axes.axvline(0.0, color=LIGHT.pale, lw=0.8, zorder=0)
        axes.set_yticks(range(len(lines)), [one.name for one in lines], parse_math=False)
        axes.set_ylim(len(lines) - 0.5, -0.6)
        axes.grid(axis="x", color=LIGHT.grid, lw=0.6)


def save_curve(path: str, curve: DelayCurve) -> None:
    """Draw which share of the rewards has come by which age."""
    if not len(curve.delays):
        return
    unit, name = _unit(float(curve.delays[-1]))
    with drawn(path, HEAD + CURVE + FOOT) as figure:
        half = curve.quantile(0.5)
        title = "When rewards come"
        if half is not None:
            title = f"Half of the rewards come within {span(round(half.total_seconds() * 1e6))}"
        about = f"{several(curve.rewards, 'reward')}; band: {curve.level:.0%} for each age"
        add_head(figure, title, [about])
        axes = add_axes(figure, 4 * MARGIN, HEAD, WIDTH - 6 * MARGIN, CURVE)
        age = curve.delays / unit
        colour = LIGHT.colours[0]
        axes.fill_between(age, curve.low, curve.high, step="post", color=colour, alpha=0.16, lw=0)
        axes.step(age, curve.share, where="post", lw=1.8, color=colour)
        axes.set_xlim(0.0, float(age[-1]))
        axes.set_ylim(0.0, 1.02)
        axes.set_xlabel(f"{name} since the decision", fontsize=SMALL, color=LIGHT.grey)
        axes.grid(axis="y", color=LIGHT.grid, lw=0.6)


def _unit(longest: float) -> tuple[float, str]:
    """Microseconds of the unit in which a delay is read best, and its name.

    >>> _unit(3 * 86_400e6)
    (86400000000.0, 'days')
    """
    for size, name in ((86_400e6, "days"), (3_600e6, "hours"), (60e6, "minutes")):
        if longest >= 2 * size:
            return size, name
    return 1e6, "seconds"
