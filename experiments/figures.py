"""How every picture of the experiments looks: as those of `belated compare`, for light and dark."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import astuple, dataclass
from pathlib import Path
from typing import Any

import matplotlib as mpl
import matplotlib.pyplot as plt
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from belated.cli import figures as commands
from belated.cli.figures import (
    LINE,
    MARGIN,
    SMALL,
    TEXT,
    WIDTH,
    add_head,
    lines_of,
)


@dataclass(frozen=True)
class Theme:
    """Colours for a page: of the paper, of text and lines, and of curves."""

    paper: str
    ink: str
    grey: str
    pale: str
    grid: str
    colours: tuple[str, ...]


#: As in the figures of commands.
LIGHT = Theme(
    paper=commands.PAPER,
    ink=commands.INK,
    grey=commands.GREY,
    pale=commands.PALE,
    grid=commands.GRID,
    colours=commands.COLOURS,
)
#: The palette of :data:`LIGHT`, its dark colours lighter.
DARK = Theme(
    paper="#0d1117",
    ink="#e6edf3",
    grey="#9aa4b0",
    pale="#4a5360",
    grid="#262d36",
    colours=("#56B4E9", "#F08A3C", "#2FC79A", "#E09BC6", "#F0C05A", "#8FB8FF", "#BBBBBB"),
)
#: The first is for what is ours.
COLOURS = LIGHT.colours
INK, GREY, PAPER = LIGHT.ink, LIGHT.grey, LIGHT.paper
#: Inches of the title and of a character of small text; and how many of them go into a line.
HEAD, CHARACTER, ACROSS = 0.5, 0.078, 106

mpl.use("agg")
mpl.rcParams.update(
    {
        "font.size": SMALL,
        "text.color": INK,
        "axes.titlesize": TEXT,
        "axes.titlelocation": "left",
        "axes.labelcolor": GREY,
        "axes.edgecolor": LIGHT.pale,
        "axes.spines.top": False,
        "axes.spines.right": False,
        "axes.grid": True,
        "axes.grid.axis": "y",
        "axes.axisbelow": True,
        "grid.color": LIGHT.grid,
        "grid.linewidth": 0.6,
        "xtick.color": GREY,
        "ytick.color": GREY,
        "svg.hashsalt": "belated",  # the same picture gives the same file
    }
)


def figure(height: float) -> Figure:
    """An empty figure, as wide as all of them."""
    return plt.figure(figsize=(WIDTH, height))


def head(chart: Figure, title: str, about: str) -> float:
    """What the picture says, and how it was measured; gives the share of the height below them."""
    lines = lines_of(about, ACROSS)
    add_head(chart, title, lines)
    return 1.0 - (HEAD + len(lines) * SMALL * LINE / 72) / chart.get_figheight()


def columns(
    title: str, about: str, heads: Sequence[str], rows: Sequence[str], row: float
) -> tuple[Figure, list[Axes]]:
    """Narrow panels side by side: a column for each head, and the same named rows in all.

    Args:
        title: what the picture says.
        about: how it was measured.
        heads: above the panels.
        rows: names, from the top.
        row: inches of one.
    """
    lines = 1 + max(name.count("\n") for name in heads)
    above = (
        HEAD + len(lines_of(about, ACROSS)) * SMALL * LINE / 72 + (0.5 + lines) * SMALL * LINE / 72
    )
    height = above + row * len(rows) + 0.55
    chart = figure(height)
    head(chart, title, about)
    left = MARGIN + CHARACTER * max(len(line) for name in rows for line in name.split("\n"))
    bottom, top = 0.55 / height, 1.0 - above / height
    axes = chart.subplots(1, len(heads), sharex=True, sharey=True, squeeze=False)[0]
    chart.subplots_adjust(left / WIDTH, bottom, 1.0 - MARGIN / WIDTH, top, wspace=0.09)
    for axis, name in zip(axes, heads, strict=True):
        axis.set_title(name, fontsize=9, loc="left", color=INK)
        axis.grid(visible=False)
        axis.spines["left"].set_visible(False)
        axis.tick_params(axis="y", length=0, labelcolor=INK)
        for between in np.arange(len(rows) + 1) - 0.5:
            axis.axhline(between, color=LIGHT.grid, lw=0.6, zorder=0)
    axes[0].set_yticks(range(len(rows)), rows)
    axes[0].set_ylim(len(rows) - 0.5, -0.5)
    return chart, list(axes)


def below(chart: Figure, text: str) -> None:
    """What all the horizontal axes are."""
    chart.supxlabel(text, fontsize=SMALL, color=GREY, y=0.1 / chart.get_figheight())


def band(axis: Axes, x: Any, means: Any, errors: Any, colour: str, **line: Any) -> None:
    """A line with two standard errors on either side."""
    x, means, errors = np.asarray(x), np.asarray(means), np.asarray(errors)
    axis.plot(x, means, color=colour, lw=1.8, **line)
    axis.fill_between(x, means - 2 * errors, means + 2 * errors, color=colour, alpha=0.18, lw=0)


def save(chart: Figure, path: Path) -> None:
    """As SVG for light pages, and beside it for dark ones (``-dark``), without a background."""
    light = path.with_suffix(".svg")
    chart.savefig(light, transparent=True, metadata={"Date": None})
    drawing = light.read_text(encoding="utf-8")
    dark = re.sub("#[0-9a-f]{6}", lambda found: _AT_NIGHT[found[0]], drawing)
    light.with_stem(f"{light.stem}-dark").write_text(dark, encoding="utf-8")


def _all_colours(theme: Theme) -> list[str]:
    *others, colours = astuple(theme)
    return [mpl.colors.to_hex(colour) for colour in (*others, *colours)]


#: What each colour becomes on a dark page; there are no others.
_AT_NIGHT = dict(zip(_all_colours(LIGHT), _all_colours(DARK), strict=True))
