"""Size and power of the tests of dependence on journals of a policy that learns.

Prints each figure next to its goal; takes ten minutes.

Run: python -m experiments.dependence.tests [JOURNALS] [FIRST SEED]
"""

from __future__ import annotations

import os

os.environ["OPENBLAS_NUM_THREADS"] = "1"

import sys

import numpy as np

from experiments.dependence.journals import ROUNDS, Depends, journal, rejected

#: What delays depend on, the tests, the fraction of the journals to make, and the goal.
CASES: tuple[tuple[Depends, tuple[str, ...], float, str], ...] = (
    ("nothing", ("action", "reward"), 1.0, "size, .035 to .065"),
    ("reward", ("reward",), 0.25, "power, at least .95"),
    ("action", ("action",), 0.25, "power, at least .95"),
)


def main() -> None:
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 2_000
    first = int(sys.argv[2]) if len(sys.argv) > 2 else 700_000
    print(f"{ROUNDS} decisions a journal, seeds from {first}")
    print("| delays depend on | test on | journals | pending | rejected at 5 % | goal |")
    print("|---|---|---|---|---|---|")
    for depends, tests, share, goal in CASES:
        tables = (journal(depends, seed) for seed in range(first, first + int(share * count)))
        rejections: dict[str, list[bool]] = {test: [] for test in tests}
        pending = []
        for table in tables:
            pending.append(1.0 - float(table.arrived.mean()))
            for test in tests:
                rejections[test].append(rejected(table, test))  # type: ignore[arg-type]
            if len(pending) % 200 == 0:
                print(len(pending), {k: np.mean(v) for k, v in rejections.items()}, file=sys.stderr)
        for test, values in rejections.items():
            rate = float(np.mean(values))
            error = (rate * (1.0 - rate) / len(values)) ** 0.5
            cells = f"{len(values):,} | {np.mean(pending):.2f} | {rate:.3f} ± {error:.3f}"
            print(f"| {depends} | {test} | {cells} | {goal} |", flush=True)


if __name__ == "__main__":
    main()
