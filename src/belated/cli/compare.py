"""``belated compare``: compare policies on the same problems, delays and random numbers.

For each seed, all policies get the same problem, contexts, random numbers and delays, so that
policies are compared pairwise. Requires the ``experiments`` extra.
"""

from __future__ import annotations

import argparse
import math
import sys
from collections.abc import Callable, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec
import numpy as np

from belated.cli.figures import (
    COLOURS,
    FOOT,
    GREY,
    GRID,
    HEAD,
    INK,
    MARGIN,
    SMALL,
    TEXT,
    WIDTH,
    add_axes,
    add_head,
    check_extra,
    check_figure,
    check_place,
    drawn,
    height_of,
    lines_of,
    width_of,
)
from belated.cli.options import add_json, add_option, add_simulation, count
from belated.cli.simulate import CHANCE, Spread, hardly_chance
from belated.cli.text import several, table, wrapped
from belated.core.inputs import Vector
from belated.exceptions import InvalidInput
from belated.expressions import (
    as_delay,
    as_environment,
    as_policy,
    as_semantics,
    label,
    load_modules,
)
from belated.simulation.sweeps import simulate_many

if TYPE_CHECKING:
    import pandas as pd

EXAMPLE = 'belated compare --delay "Batched(500)" "Constant(0)" --figure regret.png'

#: Policies to compare by default.
POLICIES_BY_DEFAULT = ("DelayedUCB", "DelayedThompson", "BlindUCB")
#: Number of times at which the regret of a run is recorded.
CHECKPOINTS = 50

T = TypeVar("T")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command."""
    compared, default = "policies to compare with the first", " ".join(POLICIES_BY_DEFAULT)
    delays = "one or more delays of rewards"
    add_simulation(parser, delays, compared, default, several=True)
    about = "draw the regret by round: .png, .svg or .pdf"
    add_option(parser, "--figure", about, metavar="FILE")
    parser.add_argument("--csv", metavar="FILE", help="write 50 rounds of every run as CSV")
    about = "save finished runs to this file, and skip the runs it already contains"
    add_option(parser, "--resume", about, metavar="FILE")
    add_option(parser, "--jobs", "number of processes; default: one per core", count)
    add_json(parser)


def run(options: argparse.Namespace) -> None:
    """Run the command."""
    check_extra("belated compare", "joblib", "pandas", "tqdm")
    check_figure(options.figure)
    for place in (options.csv, options.resume):
        check_place(place)
    load_modules(options.module)
    policies = _named(options.policy or POLICIES_BY_DEFAULT, as_policy)
    environments = _named(options.environment or ("fixed",), as_environment)
    delays = _named(options.delay, as_delay)
    runs = simulate_many(
        policies,
        environments,
        delays,
        seeds=range(options.seeds),
        horizon=options.rounds,
        rewards=None if options.rewards is None else as_semantics(options.rewards),
        checkpoints=checkpoints(options.rounds),
        resume=options.resume,
        jobs=options.jobs or -1,
        progress=sys.stderr.isatty(),
    ).drop(columns="seconds")  # the only column that is not reproducible
    report = compared(runs, list(policies), list(environments), list(delays))
    if options.csv is not None:
        runs.to_csv(options.csv, index=False)
    if options.figure is not None:
        save(options.figure, runs, list(policies), list(environments), list(delays))
    print(msgspec.json.encode(report).decode() if options.json else _text(report))


def checkpoints(rounds: int) -> list[int]:
    """Return evenly spaced rounds, including the last round.

    >>> checkpoints(200)[:3], len(checkpoints(200)), checkpoints(3)
    ([4, 8, 12], 50, [1, 2, 3])
    """
    return sorted({-(-rounds * step // CHECKPOINTS) for step in range(1, CHECKPOINTS + 1)})


def compared(
    runs: pd.DataFrame, policies: Sequence[str], environments: Sequence[str], delays: Sequence[str]
) -> dict[str, Any]:
    """Return the final regret of each policy, and the difference from the first policy's regret."""
    rounds = int(runs["round"].max())
    last = runs[runs["round"] == rounds]
    results = []
    for environment in environments:
        for delay in delays:
            selected = last[(last["environment"] == environment) & (last["delay"] == delay)]
            regret = selected.pivot(index="seed", columns="policy", values="regret")
            pending = selected.pivot(index="seed", columns="policy", values="pending")
            for policy in policies:
                result = {
                    "environment": environment,
                    "delay": delay,
                    "policy": policy,
                    "regret": asdict(Spread.of(regret[policy])),
                    "pending": asdict(Spread.of(pending[policy])),
                    "difference": None,
                }
                if policy != policies[0]:
                    difference = Spread.of(regret[policy] - regret[policies[0]])
                    result["difference"] = asdict(difference) | {"t": difference.t}
                results.append(result)
    return {
        "rounds": rounds,
        "seeds": int(last["seed"].nunique()),
        "first": policies[0],
        "results": results,
    }


def _text(report: dict[str, Any]) -> str:
    seeds, first = report["seeds"], report["first"]
    head = f"regret after {several(report['rounds'], 'round')}"
    head += f": mean ± standard error of {seeds} seeds" if seeds > 1 else ", one seed"
    blocks = [head]
    cells: dict[str, list[dict[str, Any]]] = {}
    for result in report["results"]:
        cells.setdefault(f"{result['environment']} under {result['delay']}", []).append(result)
    for name, results in cells.items():
        rows = [_row(result) for result in results]
        columns = ["policy", ">regret", ">pending", ">difference", ">t"]
        if len(results) == 1:  # there is no difference to show
            columns, rows = columns[:3], [row[:3] for row in rows]
        blocks.append(f"{name}\n{table(columns, rows, indent='  ')}")
    if any(result["difference"] for result in report["results"]):
        blocks.append(_explained(first, seeds))
    return "\n\n".join(blocks)


def _row(result: dict[str, Any]) -> list[str]:
    regret, pending = Spread(**result["regret"]), Spread(**result["pending"])
    row = [result["policy"], str(regret), f"{pending.mean:,.0f}"]
    if result["difference"] is None:
        return [*row, "", ""]
    t = result["difference"]["t"]
    difference = Spread(**{name: result["difference"][name] for name in result["regret"]})
    return [*row, difference.text("+"), "-" if t is None else f"{t:+.1f}"]


def _explained(first: str, seeds: int) -> str:
    text = f"difference: from the regret of {first} with the same seeds; above 0 is worse."
    if seeds == 1:
        return wrapped(f"{text} With one seed, it may be due to chance: increase --seeds.")
    return wrapped(
        f"{text} t is the difference in standard errors: beyond ±{hardly_chance(seeds):.1f} it is"
        f" significant ({CHANCE:.0%} level)."
    )


def _named(texts: Sequence[str], read: Callable[[str], T]) -> dict[str, T]:
    """Parse expressions and return their values by label."""
    values: dict[str, T] = {}
    seen: set[str] = set()
    for text in texts:
        value, name = read(text), label(text)
        if (whole := label(text, shown=len(text))) in seen:
            raise InvalidInput(f"{name} is given more than once", text)
        seen.add(whole)
        copies = sum(key == name or key.startswith(f"{name} #") for key in values)
        values[f"{name} #{copies + 1}" if copies else name] = value  # shortened labels can be equal
    return values


# --- the figure ----------------------------------------------------------------------------------

#: Line styles, to distinguish policies if there are more policies than colors.
DASHES = ("-", (0, (4, 1.5)), (0, (1, 1.2)))

#: Heights in inches: of a panel, of a single panel, and between panels.
PLOT_HEIGHT, ALONE, BETWEEN = 2.1, 3.2, 0.42
LEFT, STUB, GAP = 0.62, 0.28, 0.06
#: Up to this number of panels, stack them in one column. Otherwise, arrange them in two columns.
STACKED = 3


def save(
    path: str,
    runs: pd.DataFrame,
    policies: Sequence[str],
    environments: Sequence[str],
    delays: Sequence[str],
) -> None:
    """Draw the results of :func:`~belated.simulation.sweeps.simulate_many` and save the figure."""
    panels = [(environment, delay) for environment in environments for delay in delays]
    columns = 1 if len(panels) <= STACKED else 2
    rows = math.ceil(len(panels) / columns)
    labels = [lines_of(policy, 26 if columns == 1 else 16) for policy in policies]
    heights = [height_of(lines) for lines in labels]
    titles = [_title(*panel, 84 if columns == 1 else 42) for panel in panels]
    title_height = max(map(height_of, titles)) + 0.1
    plot_height = max(ALONE if len(panels) == 1 else PLOT_HEIGHT, 1.1 * sum(heights))
    row_height = title_height + plot_height + BETWEEN
    height = HEAD + rows * row_height - BETWEEN + FOOT
    right = STUB + GAP + max(map(width_of, labels)) + MARGIN
    plot_width = WIDTH / columns - LEFT - right

    with drawn(path, height) as figure:
        _head(figure, runs)
        for number, (environment, delay) in enumerate(panels):
            row, column = divmod(number, columns)
            left = column * WIDTH / columns + LEFT
            top = HEAD + row * row_height + title_height
            axes = add_axes(figure, left, top, plot_width, plot_height)
            panel = runs[(runs["environment"] == environment) & (runs["delay"] == delay)]
            ends = _curves(axes, panel, policies)
            _frame(axes, titles[number], int(runs["round"].max()), columns)
            if number + columns >= len(panels):
                axes.set_xlabel("round", fontsize=SMALL, color=GREY)
            _labels(axes, labels, ends, [height / plot_height for height in heights], plot_width)


def _head(figure: Any, runs: pd.DataFrame) -> None:
    rounds, seeds = int(runs["round"].max()), int(runs["seed"].nunique())
    about = f"mean of {seeds} seeds; bands: ± 2 standard errors" if seeds > 1 else "one seed"
    title = f"Cumulative regret over {several(rounds, 'round')}"
    add_head(figure, title, [f"{about}; lower is better"])


def _curves(axes: Any, runs: pd.DataFrame, policies: Sequence[str]) -> list[float]:
    """Draw the curves, and return the height of each curve's end as a share of the axes."""
    ends, most = [], 0.0
    for number, policy in enumerate(policies):
        by_seed = runs[runs["policy"] == policy].pivot(
            index="round", columns="seed", values="regret"
        )
        at = np.concatenate([[0], by_seed.index.to_numpy()])
        mean = np.concatenate([[0.0], by_seed.mean(axis=1).to_numpy()])
        band = np.concatenate([[0.0], 2 * by_seed.sem(axis=1).fillna(0.0).to_numpy()])
        style = _style(number)
        axes.plot(at, mean, lw=1.8, zorder=3, **style)
        axes.fill_between(at, mean - band, mean + band, color=style["color"], alpha=0.16, lw=0)
        ends.append(float(mean[-1]))
        most = max(most, float((mean + band).max()))
    top = 1.04 * most or 1.0
    axes.set_ylim(0.0, top)
    return [end / top for end in ends]


def _frame(axes: Any, title: list[str], rounds: int, columns: int) -> None:
    from matplotlib.ticker import MaxNLocator

    axes.set_title("\n".join(title), loc="left", fontsize=TEXT, color=INK, pad=6, parse_math=False)
    axes.set_xlim(0, rounds)
    for axis, ticks in ((axes.xaxis, 5 if columns == 1 else 4), (axes.yaxis, 4)):
        axis.set_major_locator(MaxNLocator(ticks, steps=[1, 2, 2.5, 5, 10]))
    axes.grid(axis="y", color=GRID, lw=0.6)


def _labels(
    axes: Any,
    labels: list[list[str]],
    ends: list[float],
    heights: list[float],
    plot_width: float,
) -> None:
    """Label the curves at their ends, moving labels apart where they would overlap."""
    places = spread_out(ends, heights)
    stub, placement = STUB / plot_width, {"transform": axes.transAxes, "clip_on": False}
    look = {"va": "center", "fontsize": SMALL, "color": INK, "linespacing": 1.1}
    for number, (lines, end, place) in enumerate(zip(labels, ends, places, strict=True)):
        xs = [1.0, 1.0 + 0.5 * stub, 1.0 + stub]
        axes.plot(xs, [end, place, place], lw=1.4, **placement, **_style(number))
        at, text = xs[-1] + GAP / plot_width, "\n".join(lines)
        axes.text(at, place, text, parse_math=False, **placement, **look)


def spread_out(ends: Sequence[float], heights: Sequence[float]) -> Vector:
    """Return label positions near the ends that do not overlap, between 0 and 1 if they fit.

    >>> spread_out([0.5, 0.5], [0.2, 0.2]).round(2), spread_out([0.0, 1.0], [0.2, 0.2]).round(2)
    (array([0.4, 0.6]), array([0.1, 0.9]))
    """
    from scipy.optimize import isotonic_regression

    order = np.argsort(ends, kind="stable")
    sizes = np.array(heights)[order]
    stacked = np.cumsum(sizes) - 0.5 * sizes  # centers if all were stacked from 0
    shift = isotonic_regression(np.array(ends)[order] - stacked).x
    places = np.empty(len(ends))
    places[order] = stacked + np.clip(shift, 0.0, max(1.0 - sizes.sum(), 0.0))
    return places


def _style(number: int) -> dict[str, Any]:
    round, colour = divmod(number, len(COLOURS))
    return {"color": COLOURS[colour], "linestyle": DASHES[round % len(DASHES)]}


def _title(environment: str, delay: str, width: int) -> list[str]:
    whole = f"{environment} under {delay}"
    if len(whole) <= width:
        return [whole]
    return lines_of(environment, width) + lines_of(f"under {delay}", width)
