"""Layout helpers for figures, and checks to perform before a long run.

Figures are laid out in inches, so that the text is readable at a width of 800 pixels.
"""

from __future__ import annotations

import importlib
import textwrap
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from belated.exceptions import InvalidInput, extra

#: Supported file name extensions for figures.
KINDS = (".png", ".svg", ".pdf")


#: Colors of the background, text, lines and curves. The curves use the Okabe–Ito palette, which
#: is suitable for color-blind readers, without its yellow.
PAPER, INK, GREY, PALE, GRID = "white", "#222222", "#666666", "#bbbbbb", "#dddddd"
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#555555")

#: Sizes in inches; font sizes in points.
WIDTH, HEAD, FOOT, MARGIN = 8.0, 0.72, 0.5, 0.15
TEXT, SMALL, LARGE, LINE = 10.0, 9.5, 13.0, 1.25
#: Resolution of PNG files, which are 1600 pixels wide.
DPI = 200


@contextmanager
def drawn(path: str, height: float) -> Iterator[Any]:
    """Yield a figure, then write it to a file. Identical figures result in identical files."""
    import matplotlib
    from matplotlib.figure import Figure

    with matplotlib.rc_context({"svg.hashsalt": "belated", "font.size": TEXT}):
        figure = Figure(figsize=(WIDTH, height))
        yield figure
        metadata = {".svg": {"Date": None}, ".pdf": {"CreationDate": None}}
        ending = Path(path).suffix.lower()
        figure.savefig(path, dpi=DPI, metadata=metadata.get(ending), facecolor=PAPER)


def add_head(figure: Any, title: str, about: Sequence[str]) -> None:
    """Add a title and the lines of text below it."""
    left, height = MARGIN / WIDTH, figure.get_figheight()
    figure.text(left, 1 - 0.3 / height, title, fontsize=LARGE, color=INK, weight="bold")
    for number, line in enumerate(about):
        at = 1 - (0.55 + number * SMALL * LINE / 72) / height
        figure.text(left, at, line, fontsize=SMALL, color=GREY, parse_math=False)


def add_axes(figure: Any, left: float, top: float, width: float, height: float) -> Any:
    """Add axes with thin lines and small labels. Positions are in inches from the top left."""
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
    """Add axes with one row per label, each ``height`` inches high, from top to bottom."""
    left = max(width_of(label.splitlines()) for label in labels) + 3 * MARGIN
    axes = add_axes(figure, left, top, WIDTH - left - 8 * MARGIN, height * len(labels))
    axes.set_yticks(range(len(labels)), labels, parse_math=False)
    axes.set_ylim(len(labels) - 0.5, -0.6)
    axes.grid(axis="x", color=GRID, lw=0.6)
    axes.set_axisbelow(True)
    return axes


def add_note(axes: Any, text: str, at: tuple[float, float], right: int, up: int) -> None:
    """Write text next to a point, with offsets to the right and upwards in points."""
    align = "center" if right == 0 else "left" if right > 0 else "right"
    style = {"ha": align, "va": "bottom" if up else "center_baseline", "fontsize": SMALL}
    offset = {"xytext": (right, up), "textcoords": "offset points"}
    paper = {"facecolor": PAPER, "edgecolor": "none", "pad": 0.8}  # hides lines behind the text
    axes.annotate(text, at, color=INK, bbox=paper, **offset, **style)


def lines_of(text: str, width: int) -> list[str]:
    """Wrap text, preferably after brackets and commas."""
    open_up = text.replace("(", "( ") if len(text) > width else text
    lines = textwrap.wrap(open_up, width, break_long_words=True, break_on_hyphens=False)
    return [line.replace("( ", "(") for line in lines]


def height_of(lines: Sequence[str]) -> float:
    """Return the height of lines of small text, in inches."""
    return (len(lines) * 1.1 + 0.3) * SMALL * LINE / 72


def width_of(lines: Sequence[str]) -> float:
    """Return the width of the longest line, in inches."""
    from matplotlib.textpath import TextPath

    paths = [TextPath((0, 0), line, size=SMALL) for line in lines]
    return max(float(path.get_extents().width) for path in paths) / 72


# --- checks before a long run --------------------------------------------------------------------


def check_place(name: str | None) -> None:
    """Raise InvalidInput if a file cannot be created under this name."""
    if name is not None and not Path(name).parent.is_dir():
        raise InvalidInput(f"{Path(name).parent}: no such folder", name)
    if name is not None and Path(name).is_dir():
        raise InvalidInput(f"{name} is a folder: pass the name of a file", name)


def check_figure(name: str | None) -> None:
    """Raise InvalidInput if a figure cannot be written. The extension determines the format."""
    if name is None:
        return
    if Path(name).suffix.lower() not in KINDS:
        raise InvalidInput(f"{name} must end with {', '.join(KINDS)}", name)
    check_place(name)
    check_extra("--figure", "matplotlib")


def check_extra(what: str, *modules: str) -> None:
    """Raise MissingExtra unless all of these modules are installed."""
    for module in modules:
        with extra(what, "experiments"):
            importlib.import_module(module)
