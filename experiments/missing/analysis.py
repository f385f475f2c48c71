"""Every bound on missing rewards against the truth, as text and as a picture, from ``table.csv``.

The truth is the 95 % quantile over paths: of the number missing in the last round, and of the
largest number in any round. The table says how many times the truth each bound is, for both; "–"
where it does not hold. The last column is the share of paths on which a bound was exceeded, of the
one that fails most often: it must not be more than δ = 5 %, and if it is, this ends with an error.

Run: python -m experiments.missing.analysis
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
from matplotlib.figure import Figure

from belated.theory import Bounds, bounds_for
from experiments.figures import COLOURS, GREY, below, columns, save
from experiments.missing.counts import LAST, MOST, each
from experiments.missing.processes import HORIZON, PROCESSES
from experiments.quantiles import quantile
from experiments.runs import publish, read
from experiments.tables import rule

DELTA = 0.05
#: Those that are not the paper's.
OURS = ("stopping", "union", "bennett")
NAMES = ("prop1", "iid", "hoeffding", "markov", "random", "bounded", *OURS)
TITLE = "Bennett's bound is within twice the truth wherever delays are independent"
AXIS = (0.6, 5000)
#: A number stands left of its point from here on.
MIDDLE = 150
TITLES = {LAST: "Missing in the last round", MOST: "Missing at most, in any round"}

#: The numbers missing on each path, by process and what is counted.
Missing = dict[tuple[str, str], np.ndarray]


def value(bounds: Bounds, name: str, what: str) -> float:
    """What a bound says of a count, where it holds."""
    bound = bounds[name].value if what == LAST else bounds[name].maximum
    assert bound is not None
    return bound


def values(bounds: Bounds, what: str) -> dict[str, float]:
    """Those that hold, by name."""
    return {name: value(bounds, name, what) for name in NAMES if bounds[name].holds}


def shares(counts: np.ndarray, bounds: Bounds, what: str) -> dict[str, float]:
    """The share of paths on which each of them was exceeded."""
    return {name: float((counts > b).mean()) for name, b in values(bounds, what).items()}


def times(ratio: float) -> str:
    return f"{ratio:,.0f}" if ratio >= 100 else f"{ratio:.3g}"


def markdown(missing: Missing, bounds: dict[str, Bounds]) -> str:
    title = f"in round {HORIZON:,} / at most, in any round up to it"
    out = [f"How many times the truth a bound is, {title}", ""]
    out += rule("delays", ["95 % quantile", *NAMES, "exceeded"])
    for process, by_name in bounds.items():
        counts = {key: missing[process, key] for key in TITLES}
        truth = {key: quantile(counts[key], 1 - DELTA)[0] for key in TITLES}
        cells = [" / ".join(f"{truth[key]:,.0f}" for key in TITLES)]
        for name in NAMES:
            words = [
                times(value(by_name, name, key) / truth[key])
                for key in TITLES
                if by_name[name].holds
            ]
            cells.append(" / ".join(words) or "–")
        worst = [max(shares(counts[key], by_name, key).values()) for key in TITLES]
        cells.append(" / ".join(f"{share:.2%}" for share in worst))
        out.append(f"| {process} | " + " | ".join(cells) + " |")
    return "\n".join(out) + "\n"


def figure(missing: Missing, bounds: dict[str, Bounds]) -> Figure:
    """A column for each bound, with a point for each process of which it holds."""
    paths = len(next(iter(missing.values())))
    about = (
        f"Bound / 95 % quantile of {paths:,} paths, of the most missing in any of {HORIZON:,}"
        f" rounds; δ = {DELTA:g}. Empty: it does not hold. Grey: beyond the number of rounds."
        " The last three are not the paper's."
    )
    chart, axes = columns(TITLE, about, list(NAMES), list(bounds), row=0.25)
    for y, (process, by_name) in enumerate(bounds.items()):
        truth, low, high = quantile(missing[process, MOST], 1 - DELTA)
        rounds = value(by_name, "rounds", MOST) / truth
        by_bound = values(by_name, MOST)
        for axis, name in zip(axes, NAMES, strict=True):
            if name not in by_bound:
                continue
            ratio = by_bound[name] / truth
            less = [[ratio - by_bound[name] / high], [by_bound[name] / low - ratio]]
            colour = COLOURS[0] if name in OURS else COLOURS[1]
            colour = GREY if ratio >= rounds else colour
            axis.errorbar(ratio, y, xerr=less, fmt="o", ms=4, color=colour, lw=1.2)
            left = ratio > MIDDLE
            axis.annotate(
                f"{ratio:,.0f}" if ratio >= 10 else f"{ratio:.1f}", (ratio, y),
                xytext=(-4 if left else 4, 0), textcoords="offset points", color=colour,
                ha="right" if left else "left", va="center", fontsize=9,
            )  # fmt: skip
    for axis in axes:
        axis.axvline(1.0, color=GREY, lw=0.8, zorder=1)
        axis.set_xscale("log")
        axis.set_xlim(*AXIS)
        axis.set_xticks([])  # the numbers are in the picture
        axis.minorticks_off()
    below(chart, "how many times the truth; the line is at 1 (log scale)")
    return chart


def exceeded(missing: Missing, bounds: dict[str, Bounds]) -> list[str]:
    """Bounds that fail more often than δ, beyond four standard errors."""
    failures = []
    for (process, key), counts in missing.items():
        most = DELTA + 4.0 * (DELTA * (1.0 - DELTA) / len(counts)) ** 0.5
        for name, share in shares(counts, bounds[process], key).items():
            if share > most:
                failures.append(f"{name} of {process}, {TITLES[key]}: {share:.1%}")
    return failures


def main() -> None:
    table, path = read(__doc__, Path(__file__).parent)
    groups = each(table).groupby(["process", "what"])["missing"]
    missing = {key: counts.to_numpy() for key, counts in groups}
    bounds = {
        name: bounds_for(process, horizon=HORIZON, delta=DELTA)
        for name, process in PROCESSES.items()
    }
    publish(markdown(missing, bounds), path)
    save(figure(missing, bounds), path)
    if failed := exceeded(missing, bounds):
        sys.exit("exceeded too often: " + "; ".join(failed))


if __name__ == "__main__":
    main()
