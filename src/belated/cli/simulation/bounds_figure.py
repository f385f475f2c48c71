"""The picture of ``belated bounds``: every bound that holds, on a logarithmic axis."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from belated.cli.simulation.figures import (
    FOOT,
    HEAD,
    LIGHT,
    LINE,
    MARGIN,
    SMALL,
    TEXT,
    WIDTH,
    add_axes,
    add_head,
    drawn,
    lines_of,
    width_of,
)
from belated.cli.text import amount, percent, several

#: Inches: a row, what stands above all of them, and how far a number is from its dot.
ROW, KEY, ABOVE, BESIDE = 0.46, 0.2, 0.62, 0.1
#: Bounds beyond so many times the rounds say nothing; they are drawn at the edge.
BEYOND = 10.0
#: Decades that the axis has at least.
LEAST_SPAN = 0.5
#: What is planned with, what for delays that depend on one another, all others, the average.
BEST, DEPENDENT, OTHER, AVERAGE = LIGHT.colours[0], LIGHT.colours[2], "#888888", LIGHT.colours[1]


def save(path: str, report: dict[str, Any]) -> None:
    """Draw what the command found into a file."""
    rows = [row for row in report["bounds"] if row["holds"]]
    names = width_of([row["name"] for row in rows], TEXT, "bold")
    names = max(names, width_of([row["reference"] for row in rows]))
    title, about = _words(report)
    top = HEAD + (len(about) - 1) * SMALL * LINE / 72 + ABOVE
    left = MARGIN + BESIDE + names + 2 * BESIDE
    width, height = WIDTH - left - MARGIN, ROW * len(rows)
    dependent = (report["file"] or {}).get("best_if_dependent")
    colours = {dependent: DEPENDENT, report["best"]: BEST}
    with drawn(path, top + height + FOOT) as figure:
        add_head(figure, title, about)
        _key(figure, left, top, report["rounds"])
        axes = add_axes(figure, left, top, width, height)
        _scale(axes, rows, report, width)
        if report["expected"] is not None:
            _average(axes, report["expected"])
        for number, row in enumerate(rows):
            colour = colours.get(row["name"], OTHER)
            _name(axes, number, row, colour, (MARGIN - left) / width, BESIDE / width)
            if row["maximum"] > BEYOND * report["rounds"]:
                both = f"{amount(row['value'])} – {amount(row['maximum'])} ▸"
                _number(axes, (axes.get_xlim()[1], number), both, 0.0, colour)
            else:
                _dots(axes, number, row, colour)


def _words(report: dict[str, Any]) -> tuple[str, list[str]]:
    """The title, and the lines below it."""
    file, about = report["file"], []
    where = f"{report['delay']} over {several(report['rounds'], 'round')}"
    if file is not None:
        where = f"{several(file['delays'], 'delay')} of {where}"
        if (other := file["plan_if_dependent"]) > report["plan"]:
            about.append(f"or for {other:,}, if delays may depend on one another")
    about.append(f"{where}; a bound fails in {percent(report['delta'])} of runs at most")
    title = f"Plan for at most {several(report['plan'], 'reward')} out at once"
    return title, [line for one in about for line in lines_of(one, 100)]


def _scale(axes: Any, rows: Sequence[Any], report: dict[str, Any], width: float) -> None:
    """A logarithmic axis with room for the numbers beside the dots."""
    from matplotlib.ticker import LogLocator, NullFormatter

    plain = axes.xaxis.get_major_formatter()
    numbers = [row[name] for row in rows for name in ("value", "maximum")]
    numbers += [] if report["expected"] is None else [report["expected"]]
    shown = [number for number in numbers if 0.0 < number <= BEYOND * report["rounds"]] or [1.0]
    ends = (min(shown), max(shown))
    beside = [width_of([amount(end)], weight="bold") + 2 * BESIDE for end in ends]
    low, high = map(math.log10, ends)
    span = max(high - low, LEAST_SPAN)
    inch = span / (width - sum(beside))
    axes.set_xscale("log")
    axes.set_xlim(10 ** (low - inch * beside[0]), 10 ** (low + span + inch * beside[1]))
    axes.set_ylim(len(rows) - 0.5, -0.5)
    axes.xaxis.set_major_locator(LogLocator(subs=(1.0,) if span > 1.5 else (1.0, 2.0, 5.0)))
    axes.xaxis.set_major_formatter(plain)
    axes.xaxis.set_minor_formatter(NullFormatter())
    axes.set_xlabel("rewards out at once", fontsize=SMALL, color=LIGHT.grey)
    axes.grid(axis="x", color="#dddddd", lw=0.6)
    axes.set_axisbelow(True)
    axes.tick_params(axis="y", length=0, labelleft=False)
    axes.tick_params(axis="x", which="minor", length=0)


def _key(figure: Any, left: float, top: float, rounds: int) -> None:
    """What the two dots are."""
    from matplotlib.lines import Line2D

    height = figure.get_figheight()
    y = 1 - (top - ABOVE + KEY) / height
    left += 0.5 * BESIDE
    for filled, text in ((False, "in one round"), (True, f"in any of {several(rounds, 'round')}")):
        dot = Line2D([left / WIDTH], [y], **_dot(filled, OTHER), transform=figure.transFigure)
        figure.add_artist(dot)
        at = (left + BESIDE) / WIDTH
        figure.text(at, y, text, fontsize=SMALL, color=LIGHT.ink, va="center_baseline")
        left += width_of([text]) + 4 * BESIDE


def _dot(filled: bool, colour: str) -> dict[str, Any]:
    return {
        "marker": "o",
        "markersize": 7.5,
        "markeredgewidth": 1.6,
        "markeredgecolor": colour,
        "markerfacecolor": colour if filled else "white",
        "linestyle": "none",
    }


def _average(axes: Any, expected: float) -> None:
    """A line, and what it is."""
    x = max(expected, axes.get_xlim()[0])
    axes.axvline(x, color=AVERAGE, lw=1.4, ls=(0, (4, 2)), zorder=1)
    share = axes.transAxes.inverted().transform(axes.transData.transform((x, 0)))[0]
    axes.annotate(
        f"{expected:,.1f} out on average",
        (x, 1.0),
        xycoords=axes.get_xaxis_transform(),
        xytext=(0, 4),
        textcoords="offset points",
        ha="right" if share > 0.6 else "left",
        fontsize=SMALL,
        color=AVERAGE,
    )


def _name(
    axes: Any, number: int, row: dict[str, Any], colour: str, start: float, gap: float
) -> None:
    """The name of a bound with its reference, left of the axes, and its paper if it counts."""
    axes.axhspan(
        number - 0.5, number + 0.5, start, 1.0, color=_paper(colour), lw=0, zorder=0, clip_on=False
    )
    strong = {"fontsize": TEXT, "color": _ink(colour), "weight": _weight(colour)}
    weak = {"fontsize": SMALL, "color": LIGHT.grey}
    for text, down, style in ((row["name"], -0.2, strong), (row["reference"], 0.22, weak)):
        place = {"transform": axes.get_yaxis_transform(), "va": "center_baseline"}
        axes.text(start + gap, number + down, text, **place, **style)


def _dots(axes: Any, number: int, row: dict[str, Any], colour: str) -> None:
    """One round and any round, each with its number; one dot where they are the same."""
    names = ["maximum"] if amount(row["value"]) == amount(row["maximum"]) else ["maximum", "value"]
    places = [max(row[name], axes.get_xlim()[0]) for name in names]
    axes.plot(places, [number] * len(places), color=colour, lw=2.0, zorder=2)
    for x, name in zip(places, names, strict=True):
        filled = name == "maximum"
        dot = _dot(filled, colour)
        axes.plot([x], [number], zorder=3 if filled else 4, clip_on=False, **dot)
        _number(axes, (x, number), amount(row[name]), BESIDE if filled else -BESIDE, colour)


def _number(axes: Any, at: tuple[float, float], text: str, beside: float, colour: str) -> None:
    """So many inches beside a dot, on paper that hides lines."""
    axes.annotate(
        text,
        at,
        xytext=(72 * beside, 0),
        textcoords="offset points",
        ha="left" if beside > 0 else "right",
        va="center_baseline",
        fontsize=SMALL,
        color=_ink(colour),
        weight=_weight(colour),
        zorder=5,
        bbox={"facecolor": _paper(colour), "edgecolor": "none", "pad": 0.8},
    )


def _ink(colour: str) -> str:
    return LIGHT.ink if colour == OTHER else colour


def _weight(colour: str) -> str:
    return "normal" if colour == OTHER else "bold"


def _paper(colour: str) -> tuple[float, ...]:
    from matplotlib.colors import to_rgb

    tint = 0.0 if colour == OTHER else 0.1
    return tuple(1.0 - tint * (1.0 - part) for part in to_rgb(colour))
