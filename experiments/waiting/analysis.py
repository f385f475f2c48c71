"""The cost of a warm-up as a table and a picture, from ``table.csv`` and ``waits.csv``.

Mean regret after 10,000 rounds ± standard error, and how many standard errors a warm-up is above
none on the same seeds (paired t; positive: the warm-up is worse). Then how long the warm-ups that
wait for λ_min(W) last, and the least τ that the theorem asks for: more than any horizon here.

Run: python -m experiments.waiting.analysis
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from experiments import tables
from experiments.figures import COLOURS, GREY, band, figure as empty, head, save
from experiments.labels import end_labels
from experiments.panels import logarithmic
from experiments.runs import publish, read
from experiments.waiting.policies import DEFAULT, DELAYS, HORIZON, LENGTHS, RULES, WAITS, WORLDS
from experiments.waiting.waits import DELTA, NORM, literal

#: Under the points: none, then lengths, then eigenvalues.
TICKS = ["none", *(f"{rounds:,}" for rounds in LENGTHS), *(rule.split()[-1] for rule in WAITS)]
TITLE = "No warm-up helps beyond chance; long ones multiply the regret"
PROBLEMS = {"fixed": "the same rows every round (fixed)", "fresh": "new rows every round (fresh)"}
NAMES = {"0": "no delay", "geo100": "mean delay 100", "geo1000": "mean delay 1,000"}


def lengths(waits: pd.DataFrame) -> str:
    """Mean rounds of the warm-ups that wait for λ_min(W)."""
    seeds = waits["seed"].nunique()
    lines = [f"**Rounds until λ_min(W) is reached**, mean of {seeds} seeds", ""]
    columns = [f"{world}, {delay}" for world in WORLDS for delay in DELAYS]
    lines += tables.rule("warm-up", columns)
    means = waits.groupby(["policy", "environment", "delay"])["rounds"].mean()
    for rule in WAITS:
        cells = [f"{means[rule, world, delay]:,.0f}" for world in WORLDS for delay in DELAYS]
        lines.append(f"| {rule} | " + " | ".join(cells) + " |")
    return "\n".join([*lines, "", ""])


def theorem(seeds: list[int]) -> str:
    """What τ would be."""
    lines = [
        f"**τ by the theorem** (δ = {DELTA}, ‖θ*‖ ≤ {NORM:g}), even if its unnamed constants are 0"
        " and nothing is missing",
        "",
    ]
    lines += tables.rule("problem", ["λ_min(Σ)", "τ, rounds", f"τ / {HORIZON:,}"])
    for world, (least, rounds) in literal(seeds).items():
        lines.append(f"| {world} | {least:.3f} | {rounds:,.0f} | {rounds / HORIZON:,.0f} |")
    return "\n".join([*lines, ""])


def figure(table: pd.DataFrame) -> Figure:
    chart = empty(4.4)
    top = head(
        chart,
        TITLE,
        "DelayedUCB after a uniform warm-up; dotted: without one; geometric delays, in rounds."
        f" Mean ± 2 standard errors, {table['seed'].nunique()} paired seeds.",
    )
    axes = chart.subplots(1, len(WORLDS), sharey=True)
    groups = [[0], list(range(1, 1 + len(LENGTHS))), list(range(1 + len(LENGTHS), len(RULES)))]
    rules = list(RULES)
    for axis, world in zip(axes, WORLDS, strict=True):
        here = table[table["environment"] == world]
        for delay, colour in zip(DELAYS, COLOURS, strict=False):
            regrets = here[here["delay"] == delay].groupby("policy")["regret"]
            means, errors = regrets.mean()[rules].to_numpy(), regrets.sem()[rules].to_numpy()
            for group in groups:
                band(axis, group, means[group], errors[group], colour, marker="o", ms=4)
            axis.errorbar([0], means[:1], 2 * errors[:1], color=colour, lw=1.3)
            axis.axhline(means[0], color=colour, lw=0.8, ls=":")
        axis.set_title(PROBLEMS[world])
        axis.set_xticks(range(len(rules)), TICKS)
        for group, words in zip(
            groups[1:], ("rounds of warm-up", "until λ_min(W) is"), strict=True
        ):
            axis.text(
                float(np.mean(group)), -0.1, words, transform=axis.get_xaxis_transform(),
                ha="center", va="top", color=GREY,
            )  # fmt: skip
        axis.set_xlim(-0.5, len(rules) - 0.5)
        for edge in (0.5, 0.5 + len(LENGTHS)):
            axis.axvline(edge, color=GREY, lw=0.4, alpha=0.5)
    logarithmic(axes)
    axes[0].set_ylabel(f"regret after {HORIZON:,} rounds (log scale)")
    chart.tight_layout(rect=(0, 0.02, 0.87, top), w_pad=2)
    last = table[(table["policy"] == rules[-1]) & (table["environment"] == list(WORLDS)[-1])]
    ends = last.groupby("delay")["regret"].mean()
    names = [
        (ends[delay], NAMES[delay], colour) for delay, colour in zip(DELAYS, COLOURS, strict=False)
    ]
    end_labels(axes[-1], len(rules) - 1, names)
    return chart


def main() -> None:
    table, path = read(__doc__, Path(__file__).parent)
    waits = pd.read_csv(path.with_name("waits.csv"), dtype={"delay": str})
    regret = tables.by_delay(table, WORLDS, DELAYS, list(RULES), DEFAULT)
    seeds = sorted(table["seed"].unique())
    publish("\n".join([regret, lengths(waits), theorem(seeds)]), path)
    save(figure(table), path)


if __name__ == "__main__":
    main()
