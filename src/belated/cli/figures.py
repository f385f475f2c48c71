"""Colours, sizes and text of figures, and checks before a long run.

Figures are laid out in inches, so that their text is readable at a width of 800 pixels.
"""

from __future__ import annotations

import importlib
import textwrap
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from belated.exceptions import InvalidInput, extra

#: Endings of files that can be drawn.
KINDS = (".png", ".svg", ".pdf")


#: Colours of the paper, of text, of lines, and of curves: Okabe and Ito's palette, safe for
#: colour-blind readers, without its yellow.
PAPER, INK, GREY, PALE, GRID = "white", "#222222", "#666666", "#bbbbbb", "#dddddd"
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#555555")

#: Inches, but for the sizes of text, which are in points.
WIDTH, HEAD, FOOT, MARGIN = 8.0, 0.72, 0.5, 0.15
TEXT, SMALL, LARGE, LINE = 10.0, 9.5, 13.0, 1.25
#: Of a PNG: 1600 pixels wide.
DPI = 200


@contextmanager
def drawn(path: str, height: float) -> Iterator[Any]:
    """A figure that is written when it is done; the same picture gives the same file."""
    import matplotlib
    from matplotlib.figure import Figure

    with matplotlib.rc_context({"svg.hashsalt": "belated", "font.size": TEXT}):
        figure = Figure(figsize=(WIDTH, height))
        yield figure
        metadata = {".svg": {"Date": None}, ".pdf": {"CreationDate": None}}
        ending = Path(path).suffix.lower()
        figure.savefig(path, dpi=DPI, metadata=metadata.get(ending), facecolor=PAPER)


def add_head(figure: Any, title: str, about: Sequence[str]) -> None:
    """The title, and lines below it."""
    left, height = MARGIN / WIDTH, figure.get_figheight()
    figure.text(left, 1 - 0.3 / height, title, fontsize=LARGE, color=INK, weight="bold")
    for number, line in enumerate(about):
        at = 1 - (0.55 + number * SMALL * LINE / 72) / height
        figure.text(left, at, line, fontsize=SMALL, color=GREY, parse_math=False)


def add_axes(figure: Any, left: float, top: float, width: float, height: float) -> Any:
    """Axes, in inches from the left and from the top, with thin lines and small numbers."""
    from matplotlib.ticker import FuncFormatter

    def plain(value: float, _: Any) -> str:
        return f"{value:,.0f}" if 1e6 <= value < 1e9 else f"{value:,.6g}"

    whole = figure.get_figheight()
    place = (left / WIDTH, 1 - (top + height) / whole, width / WIDTH, height / whole)
    axes = figure.add_axes(place)
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_major_formatter(FuncFormatter(plain))
    axes.set_facecolor(PAPER)
    axes.tick_params(labelsize=SMALL, labelcolor=GREY, color=GREY, length=3)
    axes.spines[["top", "right"]].set_visible(False)
    axes.spines[["left", "bottom"]].set_color(PALE)
    return axes


def add_rows(figure: Any, labels: Sequence[str], top: float, height: float) -> Any:
    """Add axes with one row for each label, so many inches high, from top to bottom."""
    left = max(width_of(label.splitlines()) for label in labels) + 3 * MARGIN
    axes = add_axes(figure, left, top, WIDTH - left - 8 * MARGIN, height * len(labels))
    axes.set_yticks(range(len(labels)), labels, parse_math=False)
    axes.set_ylim(len(labels) - 0.5, -0.6)
    axes.grid(axis="x", color=GRID, lw=0.6)
    axes.set_axisbelow(True)
    return axes


def add_note(axes: Any, text: str, at: tuple[float, float], right: int, up: int) -> None:
    """Write a number beside a point, so many points to the right of it and above."""
    align = "center" if right == 0 else "left" if right > 0 else "right"
    style = {"ha": align, "va": "bottom" if up else "center_baseline", "fontsize": SMALL}
    offset = {"xytext": (right, up), "textcoords": "offset points"}
    paper = {"facecolor": PAPER, "edgecolor": "none", "pad": 0.8}  # hides lines
    axes.annotate(text, at, color=INK, bbox=paper, **offset, **style)


def lines_of(text: str, width: int) -> list[str]:
    """In several lines where it is long: behind brackets and commas."""
    open_up = text.replace("(", "( ") if len(text) > width else text
    lines = textwrap.wrap(open_up, width, break_long_words=True, break_on_hyphens=False)
    return [line.replace("( ", "(") for line in lines]


def height_of(lines: Sequence[str]) -> float:
    """Inches of lines of small text."""
    return (len(lines) * 1.1 + 0.3) * SMALL * LINE / 72


def width_of(lines: Sequence[str]) -> float:
    """Inches of the longest line."""
    from matplotlib.textpath import TextPath

    paths = [TextPath((0, 0), line, size=SMALL) for line in lines]
    return max(float(path.get_extents().width) for path in paths) / 72


# --- what is checked before a long run -----------------------------------------------------------


def check_place(name: str | None) -> None:
    """Refuse a file that could not be written."""
    if name is not None and not Path(name).parent.is_dir():
        raise InvalidInput(f"{Path(name).parent}: there is no such folder", name)
    if name is not None and Path(name).is_dir():
        raise InvalidInput(f"{name} is a folder: the name of a file was expected", name)


def check_figure(name: str | None) -> None:
    """Refuse a picture that could not be drawn; its name says its kind."""
    if name is None:
        return
    if Path(name).suffix.lower() not in KINDS:
        raise InvalidInput(f"{name}: a name with {', '.join(KINDS)} was expected", name)
    check_place(name)
    check_extra("--figure", "matplotlib")


def check_extra(what: str, *modules: str) -> None:
    """Refuse what needs modules that are not installed."""
    for module in modules:
        with extra(what, "experiments"):
            importlib.import_module(module)
