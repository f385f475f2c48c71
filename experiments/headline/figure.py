"""Where counting pending decisions matters, and where it does not: the figure of README.

Every policy meets the same contexts, luck and delays. "Fixed" contexts are the same in every round,
"users" are those of a few users in turn, and "fresh" ones are new in every round. Writes
``table.csv`` and ``table.md`` beside this file, and the figure to ``docs/_static``.

Run: python -m experiments.headline.figure [--seeds 20] [--jobs 2]
"""

from __future__ import annotations

import os

os.environ["OPENBLAS_NUM_THREADS"] = "1"

from collections.abc import Callable
from pathlib import Path

import pandas as pd
from matplotlib.figure import Figure

from belated import (
    BlindThompson,
    BlindUCB,
    DelayedThompson,
    DelayedUCB,
    delays,
    environments,
)
from belated.cli.figures import MARGIN, SMALL, WIDTH
from belated.delays import DelayProcess
from belated.policies import EpsilonGreedy, Policy
from belated.simulation.environments import Environment
from experiments import tables
from experiments.figures import COLOURS, GREY, columns, save
from experiments.runs import parse, publish, simulate

HERE = Path(__file__).parent
FIGURE = HERE.parents[1] / "docs" / "_static" / "headline"
#: Neither the defaults nor anything else was tuned on these seeds.
FIRST, HORIZON = 140_000, 2_000
BATCH = 500

DEFAULT = "DelayedUCB, 2 % explore (default)"
POLICIES: dict[str, Callable[[Environment], Policy]] = {
    DEFAULT: lambda world: DelayedUCB(family=world.family, floor=0.02),
    "DelayedUCB": lambda world: DelayedUCB(family=world.family),
    "DelayedThompson": lambda world: DelayedThompson(family=world.family),
    "BlindUCB": lambda world: BlindUCB(family=world.family),
    "BlindThompson": lambda world: BlindThompson(family=world.family),
    "EpsilonGreedy, 5 %": lambda world: EpsilonGreedy(family=world.family, floor=0.05),
}
WORLDS = {name: getattr(environments, name) for name in ("fixed", "users", "fresh")}
HEADS = {
    "fixed": "Same contexts\nin every round (fixed)",
    "users": "A few users\nin turn (users)",
    "fresh": "New contexts\nin every round (fresh)",
}
DELAYS: dict[str, DelayProcess] = {
    "none": delays.Constant(0),
    "geometric, mean 200": delays.Geometric(mean=200),
    f"batches of {BATCH}": delays.Batched(BATCH),
}


def draw(table: pd.DataFrame) -> Figure:
    """A panel for each kind of contexts, a row for each policy, a mark for each delay."""
    title = "Where counting pending decisions matters, and where it does not"
    about = (
        f"Mean regret after {HORIZON:,} rounds and two standard errors,"
        f" {table['seed'].nunique()} paired seeds. Delayed policies count pending decisions as"
        " explored, blind ones do not."
    )
    chart, axes = columns(title, about, list(HEADS.values()), list(POLICIES), row=0.42)
    for axis, world in zip(axes, WORLDS, strict=True):
        for k, (delay, colour, mark) in enumerate(zip(DELAYS, COLOURS, "osD", strict=False)):
            here = table[(table["environment"] == world) & (table["delay"] == delay)]
            regrets = here.groupby("policy")["regret"]
            rows = [row + (k - 1) * 0.25 for row in range(len(POLICIES))]
            means, errors = regrets.mean()[list(POLICIES)], regrets.sem()[list(POLICIES)]
            axis.errorbar(
                means, rows, xerr=2 * errors, fmt=mark, ms=4, lw=1.3, color=colour, label=delay
            )
        axis.set_xlim(left=0)
    handles, labels = axes[0].get_legend_handles_labels()
    chart.legend(
        handles, [f"delay: {label}" for label in labels], loc="lower right", ncols=len(labels),
        frameon=False, fontsize=8.5, handletextpad=0.1, columnspacing=1.0,
    )  # fmt: skip
    chart.supxlabel(
        "regret (less is better)", fontsize=SMALL, color=GREY, x=MARGIN / WIDTH, y=0.025, ha="left"
    )
    return chart


def main() -> None:
    arguments = parse(__doc__, HERE, seeds=20, first_seed=FIRST)
    table = simulate(POLICIES, WORLDS, DELAYS, HORIZON, arguments)
    publish(tables.by_delay(table, WORLDS, DELAYS, list(POLICIES), DEFAULT), arguments.output)
    save(draw(table), FIGURE)


if __name__ == "__main__":
    main()
