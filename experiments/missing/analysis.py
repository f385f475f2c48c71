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

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.axes import Axes

from belated.theory import Bounds, bounds_for
from experiments.figures import COLOURS, GREY, note, save
from experiments.missing.counts import LAST, MOST, each
from experiments.missing.processes import HORIZON, PROCESSES
from experiments.panels import key
from experiments.quantiles import quantile
from experiments.runs import publish, read
from experiments.tables import rule

DELTA = 0.05
#: Bounds by name, in the colours they are drawn in; the last three are not the paper's.
NAMES = {
    "prop1": COLOURS[1],
    "iid": COLOURS[4],
    "hoeffding": COLOURS[3],
    "markov": COLOURS[6],
    "random": COLOURS[7],
    "bounded": "#8B5A2B",
    "stopping": COLOURS[5],
    "union": COLOURS[2],
    "bennett": COLOURS[0],
}
AXIS = (0.8, 5000)
TICKS = [1, 3, 10, 30, 100, 300, 1000]
#: Points whose ratios differ by less than this factor would cover one another.
NEAR = 1.1
TITLES = {LAST: "Missing in the last round", MOST: "Missing at most, in any round"}

#: The numbers missing on each path, by process and what is counted.
Missing = dict[tuple[str, str], np.ndarray]


def value(bounds: Bounds, name: str, what: str) -> float:
    """What a bound says of a count, where it holds."""
    found = bounds[name].value if what == LAST else bounds[name].maximum
    assert found is not None
    return found


def values(bounds: Bounds, what: str) -> dict[str, float]:
    """Those that hold, by name."""
    return {name: value(bounds, name, what) for name in NAMES if bounds[name].holds}


def shares(counts: np.ndarray, bounds: Bounds, what: str) -> dict[str, float]:
    """The share of paths on which each of them was exceeded."""
    return {name: float((counts > b).mean()) for name, b in values(bounds, what).items()}


def times(ratio: float) -> str:
    return f"{ratio:,.0f}" if ratio >= 100 else f"{ratio:.3g}"


def markdown(missing: Missing, bounds: dict[str, Bounds]) -> str:
    both = f"in round {HORIZON:,} / at most, in any round up to it"
    out = [f"How many times the truth a bound is, {both}", ""]
    out += rule("delays", ["95 % quantile", *NAMES, "exceeded"])
    for process, of in bounds.items():
        counts = {what: missing[process, what] for what in TITLES}
        truth = {what: quantile(counts[what], 1 - DELTA)[0] for what in TITLES}
        cells = [" / ".join(f"{truth[what]:,.0f}" for what in TITLES)]
        for name in NAMES:
            words = [
                times(value(of, name, what) / truth[what]) for what in TITLES if of[name].holds
            ]
            cells.append(" / ".join(words) or "–")
        worst = [max(shares(counts[what], of, what).values()) for what in TITLES]
        cells.append(" / ".join(f"{share:.2%}" for share in worst))
        out.append(f"| {process} | " + " | ".join(cells) + " |")
    return "\n".join(out) + "\n"


def draw(axis: Axes, missing: Missing, bounds: dict[str, Bounds], what: str) -> None:
    """A line for each process, with a point for each bound that holds."""
    axis.set_xscale("log")
    for y, (process, of) in enumerate(bounds.items()):
        truth, low, high = quantile(missing[process, what], 1 - DELTA)
        last: list[float] = []  # of each lane: points that would cover one another lie in several
        for name, bound in sorted(values(of, what).items(), key=lambda item: item[1]):
            lane = next((k for k, before in enumerate(last) if bound > NEAR * before), len(last))
            last[lane : lane + 1] = [bound]
            ratios = bound / np.array([high, truth, low])
            axis.errorbar(
                ratios[1], y + 0.22 * (lane - 1), xerr=np.abs(ratios[[[0], [2]]] - ratios[1]),
                fmt="o", ms=5, color=NAMES[name], lw=1.2,
            )  # fmt: skip
        rounds = value(of, "rounds", what) / truth
        axis.barh(y, AXIS[1] - rounds, left=rounds, height=0.8, color=GREY, alpha=0.15)
    axis.axvline(1.0, color=GREY, lw=1)
    axis.set_xlim(*AXIS)
    axis.set_xticks(TICKS, [f"{tick:,}" for tick in TICKS])
    axis.minorticks_off()
    axis.grid(axis="x")
    axis.grid(visible=False, axis="y")
    axis.set_title(TITLES[what])


def figure(missing: Missing, bounds: dict[str, Bounds]) -> plt.Figure:
    chart, axes = plt.subplots(1, 2, figsize=(9, 6.4), sharey=True)
    for axis, what in zip(axes, TITLES, strict=True):
        draw(axis, missing, bounds, what)
        axis.set_xlabel("bound / 95 % quantile (times, log scale)")
    axes[0].set_yticks(range(len(bounds)), list(bounds), fontsize=9)
    axes[0].set_ylim(len(bounds) - 0.4, -0.6)
    key(chart, NAMES, loc="upper left", ncols=9)
    paths = len(next(iter(missing.values())))
    note(
        chart,
        f"δ = {DELTA:g}, {HORIZON:,} rounds, {paths:,} paths; bars: 95 % interval of the quantile."
        " Grey: beyond the number of rounds. The last three bounds are not the paper's.",
    )
    chart.tight_layout(rect=(0, 0.03, 1, 0.95))
    return chart


def exceeded(missing: Missing, bounds: dict[str, Bounds]) -> list[str]:
    """Bounds that fail more often than δ, beyond four standard errors."""
    found = []
    for (process, what), counts in missing.items():
        most = DELTA + 4.0 * (DELTA * (1.0 - DELTA) / len(counts)) ** 0.5
        for name, share in shares(counts, bounds[process], what).items():
            if share > most:
                found.append(f"{name} of {process}, {TITLES[what]}: {share:.1%}")
    return found


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
