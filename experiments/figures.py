"""The style of the experiments' figures, as in `belated compare`, for light and dark pages."""

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
    """Colours of a page: paper, text, lines and curves."""

    paper: str
    ink: str
    grey: str
    pale: str
    grid: str
    colours: tuple[str, ...]


#: The colours of figures that commands draw.
LIGHT = Theme(
    paper=commands.PAPER,
    ink=commands.INK,
    grey=commands.GREY,
    pale=commands.PALE,
    grid=commands.GRID,
    colours=commands.COLOURS,
)
#: The palette of :data:`LIGHT`, with lighter dark colours.
DARK = Theme(
    paper="#0d1117",
    ink="#e6edf3",
    grey="#9aa4b0",
    pale="#4a5360",
    grid="#262d36",
    colours=("#56B4E9", "#F08A3C", "#2FC79A", "#E09BC6", "#F0C05A", "#8FB8FF", "#BBBBBB"),
)
#: The first colour is for this library.
COLOURS = LIGHT.colours
INK, GREY, PAPER = LIGHT.ink, LIGHT.grey, LIGHT.paper
#: Sizes of the title and of a character of small text in inches, and characters per line.
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
        "svg.hashsalt": "belated",  # equal figures give equal files
    }
)


def figure(height: float) -> Figure:
    """Return an empty figure of the common width."""
    return plt.figure(figsize=(WIDTH, height))


def head(chart: Figure, title: str, about: str) -> float:
    """Add title and description; return the share of the height below them."""
    lines = lines_of(about, ACROSS)
    add_head(chart, title, lines)
    return 1.0 - (HEAD + len(lines) * SMALL * LINE / 72) / chart.get_figheight()


def columns(
    title: str, about: str, heads: Sequence[str], rows: Sequence[str], row: float
) -> tuple[Figure, list[Axes]]:
    """Return narrow panels side by side: a column per head, with the same named rows in all.

    Args:
        title: the message of the figure.
        about: how it was measured.
        heads: the titles of the panels.
        rows: the names of the rows, from the top.
        row: the height of a row in inches.
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
    """Add a common label of the horizontal axes."""
    chart.supxlabel(text, fontsize=SMALL, color=GREY, y=0.1 / chart.get_figheight())


def band(axis: Axes, x: Any, means: Any, errors: Any, colour: str, **line: Any) -> None:
    """Draw a line with a band of two standard errors on either side."""
    x, means, errors = np.asarray(x), np.asarray(means), np.asarray(errors)
    axis.plot(x, means, color=colour, lw=1.8, **line)
    axis.fill_between(x, means - 2 * errors, means + 2 * errors, color=colour, alpha=0.18, lw=0)


def save(chart: Figure, path: Path) -> None:
    """Save as SVG for light pages, and for dark ones (``-dark``), with a transparent background."""
    light = path.with_suffix(".svg")
    chart.savefig(light, transparent=True, metadata={"Date": None})
    drawing = light.read_text(encoding="utf-8")
    dark = re.sub("#[0-9a-f]{6}", lambda match: _AT_NIGHT[match[0]], drawing)
    light.with_stem(f"{light.stem}-dark").write_text(dark, encoding="utf-8")


def _all_colours(theme: Theme) -> list[str]:
    *colours_of_parts, colours = astuple(theme)
    return [mpl.colors.to_hex(colour) for colour in (*colours_of_parts, *colours)]


#: Colours of a dark page by those of a light one; there are no others.
_AT_NIGHT = dict(zip(_all_colours(LIGHT), _all_colours(DARK), strict=True))
