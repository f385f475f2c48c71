"""A short attack on other seeds: fails if a forged reward was taken, or the regret has shifted.

Where tokens are only reported, the same rewards must be taken, and change what is chosen: else
there was no attack. Takes some ten seconds.

Run: python -m experiments.forged.quick
"""

from __future__ import annotations

import os

os.environ["OPENBLAS_NUM_THREADS"] = "1"

import sys

from experiments.forged.analysis import broken, forged_taken
from experiments.forged.runs import Run, play_all
from experiments.forged.worlds import ENFORCED, HONEST, REPORTED, WORLDS
from tests.integration.postgres_server import database

SEED, ROUNDS = 1000, 500


def main() -> None:
    with database() as dsn:
        runs, answers = play_all(
            dsn,
            [Run(world, SEED, way) for world in WORLDS for way in (HONEST, ENFORCED, REPORTED)],
            ROUNDS,
        )
    print(runs.to_string(index=False))
    problems = broken(runs, answers)
    accepted, total = forged_taken(answers, REPORTED)
    changed = runs.groupby("way")["others"].sum()
    if accepted < total or not changed[REPORTED]:
        problems.append(
            f"reported only, {accepted} of {total} were taken, {changed[REPORTED]} choices"
        )
    if problems:
        sys.exit("; ".join(problems))
    print(f"enforced, none of {total} forged rewards was taken; reported only, {accepted} were")


if __name__ == "__main__":
    main()
