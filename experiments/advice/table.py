"""What bandits warn of, and when: 40 seeds of each situation. Prints a table; takes ten minutes.

Run: python -m experiments.advice.table [SEEDS]
"""

from __future__ import annotations

import os

os.environ["OPENBLAS_NUM_THREADS"] = "1"

import sys

from experiments.advice.situations import ROUNDS, SITUATIONS, run


def main() -> None:
    seeds = int(sys.argv[1]) if len(sys.argv) > 1 else 40
    print(f"{ROUNDS} decisions, {seeds} seeds")
    print(
        "| situation | expected | runs that warned of it | after decisions | others | best action |"
    )
    print("|---|---|---|---|---|---|")
    for name, situation in SITUATIONS.items():
        runs = [run(situation, seed) for seed in range(seeds)]
        expected = situation.expected or ""
        at = sorted(result.warned[expected] for result in runs if expected in result.warned)
        unexpected = sorted({name for result in runs for name in result.warned if name != expected})
        span = f"{at[0]}–{at[-1]}" if at else ""
        soon = f"{len(at)}, {sum(n <= 1_000 for n in at)} within 1,000" if expected else ""
        right = sum(result.right for result in runs)
        print(f"| {name} | {expected} | {soon} | {span} | {', '.join(unexpected)} | {right} |")


if __name__ == "__main__":
    main()
