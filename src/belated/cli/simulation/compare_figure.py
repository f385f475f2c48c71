"""The picture of ``belated compare``: regret over the rounds, a panel for each delay."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from belated.cli.simulation.figures import (
    FOOT,
    HEAD,
    LIGHT,
    MARGIN,
    SMALL,
    TEXT,
    WIDTH,
    Theme,
    add_axes,
    add_head,
    drawn,
    height_of,
    lines_of,
    width_of,
)
from belated.cli.text import several
from belated.inputs import Vector

if TYPE_CHECKING:
    import pandas as pd

#: Once the colours are used up.
DASHES = ("-", (0, (4, 1.5)), (0, (1, 1.2)))

#: Inches.
PLOT_HEIGHT, ALONE, BETWEEN = 2.1, 3.2, 0.42
LEFT, STUB, GAP = 0.62, 0.28, 0.06
#: One below the other up to so many panels, then two in a row.
STACKED = 3


def save(
    path: str,
    runs: pd.DataFrame,
    policies: Sequence[str],
    environments: Sequence[str],
    delays: Sequence[str],
    *,
    title: str | None = None,
    theme: Theme = LIGHT,
) -> None:
    """Draw the table of :func:`~belated.simulation.sweeps.simulate_many` into a file."""
    panels = [(environment, delay) for environment in environments for delay in delays]
    columns = 1 if len(panels) <= STACKED else 2
    rows = math.ceil(len(panels) / columns)
    labels = [lines_of(policy, 26 if columns == 1 else 16) for policy in policies]
    heights = [height_of(one) for one in labels]
    titles = [_title(*panel, 84 if columns == 1 else 42) for panel in panels]
    title_height = max(map(height_of, titles)) + 0.1
    plot_height = max(ALONE if len(panels) == 1 else PLOT_HEIGHT, 1.1 * sum(heights))
    row_height = title_height + plot_height + BETWEEN
    height = HEAD + rows * row_height - BETWEEN + FOOT
    right = STUB + GAP + max(map(width_of, labels)) + MARGIN
    plot_width = WIDTH / columns - LEFT - right

    with drawn(path, height, theme) as figure:
        _head(figure, runs, title, theme)
        for number, (environment, delay) in enumerate(panels):
            row, column = divmod(number, columns)
            left = column * WIDTH / columns + LEFT
            top = HEAD + row * row_height + title_height
            axes = add_axes(figure, left, top, plot_width, plot_height, theme)
            here = runs[(runs["environment"] == environment) & (runs["delay"] == delay)]
            ends = _curves(axes, here, policies, theme)
            _frame(axes, titles[number], int(runs["round"].max()), columns, theme)
            if number + columns >= len(panels):
                axes.set_xlabel("round", fontsize=SMALL, color=theme.grey)
            _labels(axes, labels, ends, [one / plot_height for one in heights], plot_width, theme)


def _head(figure: Any, runs: pd.DataFrame, title: str | None, theme: Theme) -> None:
    rounds, seeds = int(runs["round"].max()), int(runs["seed"].nunique())
    about = f"mean of {seeds} seeds; bands: ± 2 standard errors" if seeds > 1 else "one seed"
    what = f"Cumulative regret over {several(rounds, 'round')}"
    below = f"{about}; lower is better"
    add_head(figure, title or what, [f"{what}, {below}" if title else below], theme)


def _curves(axes: Any, here: pd.DataFrame, policies: Sequence[str], theme: Theme) -> list[float]:
    """Draw them; gives the height of each at its end, as a share of the axes."""
    ends, most = [], 0.0
    for number, policy in enumerate(policies):
        by_seed = here[here["policy"] == policy].pivot(
            index="round", columns="seed", values="regret"
        )
        at = np.concatenate([[0], by_seed.index.to_numpy()])
        mean = np.concatenate([[0.0], by_seed.mean(axis=1).to_numpy()])
        band = np.concatenate([[0.0], 2 * by_seed.sem(axis=1).fillna(0.0).to_numpy()])
        style = _style(number, theme)
        axes.plot(at, mean, lw=1.8, zorder=3, **style)
        axes.fill_between(at, mean - band, mean + band, color=style["color"], alpha=0.16, lw=0)
        ends.append(float(mean[-1]))
        most = max(most, float((mean + band).max()))
    top = 1.04 * most or 1.0
    axes.set_ylim(0.0, top)
    return [end / top for end in ends]


def _frame(axes: Any, title: list[str], rounds: int, columns: int, theme: Theme) -> None:
    from matplotlib.ticker import MaxNLocator

    axes.set_title(
        "\n".join(title), loc="left", fontsize=TEXT, color=theme.ink, pad=6, parse_math=False
    )
    axes.set_xlim(0, rounds)
    for axis, ticks in ((axes.xaxis, 5 if columns == 1 else 4), (axes.yaxis, 4)):
        axis.set_major_locator(MaxNLocator(ticks, steps=[1, 2, 2.5, 5, 10]))
    axes.grid(axis="y", color=theme.grid, lw=0.6)


def _labels(
    axes: Any,
    labels: list[list[str]],
    ends: list[float],
    heights: list[float],
    plot_width: float,
    theme: Theme,
) -> None:
    """The name of each policy at the end of its curve, moved apart where they would overlap."""
    places = spread_out(ends, heights)
    stub = STUB / plot_width
    for number, (lines, end, place) in enumerate(zip(labels, ends, places, strict=True)):
        axes.plot(
            [1.0, 1.0 + 0.5 * stub, 1.0 + stub],
            [end, place, place],
            transform=axes.transAxes,
            clip_on=False,
            lw=1.4,
            **_style(number, theme),
        )
        axes.text(
            1.0 + stub + GAP / plot_width,
            place,
            "\n".join(lines),
            transform=axes.transAxes,
            va="center",
            fontsize=SMALL,
            color=theme.ink,
            linespacing=1.1,
            parse_math=False,
        )


def spread_out(ends: Sequence[float], heights: Sequence[float]) -> Vector:
    """Places near the ends, each with its height for itself, and within 0 and 1 if they fit.

    >>> spread_out([0.5, 0.5], [0.2, 0.2]).round(2), spread_out([0.0, 1.0], [0.2, 0.2]).round(2)
    (array([0.4, 0.6]), array([0.1, 0.9]))
    """
    order = sorted(range(len(ends)), key=lambda number: ends[number])
    # Neighbours that overlap become one block, around the mean of what they want.
    blocks: list[tuple[list[int], float, float]] = []  # members, middle, height
    for number in order:
        block = ([number], _within(ends[number], heights[number]), heights[number])
        while blocks and blocks[-1][1] + 0.5 * blocks[-1][2] > block[1] - 0.5 * block[2]:
            members, middle, height = blocks.pop()
            total = height + block[2]
            both = len(members) + len(block[0])
            centre = (middle * len(members) + block[1] * len(block[0])) / both
            block = (members + block[0], _within(centre, total), total)
        blocks.append(block)
    places = np.empty(len(ends))
    for members, middle, height in blocks:
        at = middle - 0.5 * height
        for number in members:
            places[number] = at + 0.5 * heights[number]
            at += heights[number]
    return places


def _within(middle: float, height: float) -> float:
    return max(0.5 * height, min(middle, 1.0 - 0.5 * height))


def _style(number: int, theme: Theme) -> dict[str, Any]:
    count = len(theme.colours)
    return {
        "color": theme.colours[number % count],
        "linestyle": DASHES[number // count % len(DASHES)],
    }


def _title(environment: str, delay: str, width: int) -> list[str]:
    whole = f"{environment} under {delay}"
    if len(whole) <= width:
        return [whole]
    return lines_of(environment, width) + lines_of(f"under {delay}", width)
