"""What forged rewards do, from ``table.csv`` and ``answers.csv``.

For each problem and way of playing it: mean regret ± standard error, the shift against the honest
runs in % (that of the mean; the least and the greatest of a seed), in how many rounds another
action was chosen, and how many rewards were learned of those that were told honestly. Then what the
attacker was answered. Ends with an error if with tokens enforced a forged reward was taken, or the
regret has shifted by more than 1 %.

Run: python -m experiments.forged.analysis
"""

from __future__ import annotations

import sys
from pathlib import Path

import pandas as pd

from experiments.forged.attacker import REPLAYS, TAKEN
from experiments.forged.worlds import ENFORCED, HONEST, HORIZON, OFF, REPORTED, WAYS, WORLDS
from experiments.runs import publish, read
from experiments.tables import rule

#: By so much may the regret shift.
MOST = 0.01


def shifts(runs: pd.DataFrame, way: str) -> pd.Series:
    """By seed, the regret more than that of the honest run, as a share of it."""
    regret = runs.pivot_table("regret", ["environment", "seed"], "way")
    return regret[way] / regret[HONEST] - 1.0


def shift(runs: pd.DataFrame, way: str) -> float:
    """The same of the means."""
    regret = runs.groupby("way")["regret"].mean()
    return float(regret[way] / regret[HONEST] - 1.0)


def forged_taken(answers: pd.DataFrame, way: str) -> tuple[int, int]:
    """How many forged rewards were taken, and how many were sent."""
    forged = answers[(answers["way"] == way) & ~answers["token"].isin(REPLAYS)]
    return int(forged.loc[forged["answer"] == TAKEN, "count"].sum()), int(forged["count"].sum())


def broken(runs: pd.DataFrame, answers: pd.DataFrame) -> list[str]:
    """What should hold with tokens enforced, and does not."""
    accepted, total = forged_taken(answers, ENFORCED)
    problems = []
    if accepted or not total:
        problems.append(f"{accepted} of {total} forged rewards were taken")
    for world in runs["environment"].unique():
        change = shift(runs[runs["environment"] == world], ENFORCED)
        if not abs(change) <= MOST:
            problems.append(f"the regret of {world} has shifted by {change:+.2%}")
    return problems


def of_regret(runs: pd.DataFrame) -> list[str]:
    """A table for each problem."""
    lines = []
    for world in WORLDS:
        here = runs[runs["environment"] == world]
        columns = ["regret", "shift", "of a seed", "other choices", "learned of told"]
        lines += [f"**{world}**", "", *rule("way", columns)]
        for way in WAYS:
            selected, changes = here[here["way"] == way], shifts(here, way)
            cells = [
                f"{selected['regret'].mean():.1f}±{selected['regret'].sem():.1f}",
                f"{shift(here, way):+.2%}",
                f"{changes.min():+.1%} to {changes.max():+.1%}",
                f"{selected['others'].sum() / (HORIZON * len(selected)):.2%}",
                f"{selected['learned'].sum():,} of {selected['told'].sum():,}",
            ]
            lines.append(f"| {way} | " + " | ".join(cells) + " |")
        lines.append("")
    return lines


def of_answers(answers: pd.DataFrame) -> list[str]:
    """A row for each kind of token."""
    ways = (ENFORCED, REPORTED, OFF)
    lines = rule("token", [*(f"taken: {way}" for way in ways), "why not, when enforced"])
    for token, selected in answers.groupby("token", sort=False):
        counts = selected.groupby(["way", "answer"])["count"].sum()
        cells = [f"{counts.get((way, TAKEN), 0):,} of {counts[way].sum():,}" for way in ways]
        why = ", ".join(answer for answer in counts[ENFORCED].index if answer != TAKEN)
        lines.append(f"| {token} | " + " | ".join([*cells, why or "–"]) + " |")
    return lines


def main() -> None:
    runs, path = read(__doc__, Path(__file__).parent)
    answers = pd.read_csv(path.with_name("answers.csv"))
    seeds = runs["seed"].nunique()
    head = f"Regret after {HORIZON:,} rounds, {seeds} seeds, and what the attacker was answered.\n"
    publish("\n".join([head, *of_regret(runs), *of_answers(answers), ""]), path)
    if problems := broken(runs, answers):
        sys.exit("with tokens enforced: " + "; ".join(problems))


if __name__ == "__main__":
    main()
