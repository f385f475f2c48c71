"""How every picture of the experiments looks: one palette, direct labels, bands of two errors."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

#: Okabe and Ito's palette, safe for colour-blind readers; the first is for what is ours.
COLOURS = ["#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000", "#999999"]
GREY = "#555555"

mpl.use("agg")
mpl.rcParams.update(
    {
        "font.size": 10,
        "axes.titlesize": 11,
        "axes.titlelocation": "left",
        "axes.spines.top": False,
        "axes.spines.right": False,
        "axes.grid": True,
        "axes.grid.axis": "y",
        "grid.alpha": 0.25,
        "grid.linewidth": 0.5,
        "svg.hashsalt": "belated",  # the same picture gives the same file
    }
)


def band(axis: Axes, x: Any, means: Any, errors: Any, colour: str, **line: Any) -> None:
    """A line with two standard errors on either side."""
    x, means, errors = np.asarray(x), np.asarray(means), np.asarray(errors)
    axis.plot(x, means, color=colour, lw=1.8, **line)
    axis.fill_between(x, means - 2 * errors, means + 2 * errors, color=colour, alpha=0.18, lw=0)


def label(axis: Axes, x: float, y: float, text: str, colour: str, **more: Any) -> None:
    """Words at a point, in the colour of what they name, instead of a legend."""
    axis.annotate(
        text, (x, y), xytext=(5, 0), textcoords="offset points", color=colour, va="center",
        fontsize=9, annotation_clip=False, **more,
    )  # fmt: skip


def note(chart: Figure, text: str) -> None:
    """What the reader must know of how it was measured, in small print at the bottom left."""
    chart.text(0.01, 0.01, text, fontsize=8, color=GREY)


def save(chart: Figure, path: Path) -> None:
    """As PNG for a README (1,600 pixels wide) and as SVG for pages."""
    width = chart.get_size_inches()[0]
    chart.savefig(path.with_suffix(".png"), dpi=1600 / width)
    chart.savefig(path.with_suffix(".svg"), metadata={"Date": None})
