"""How often 95 % forecasts contain the number of rewards that come, by how long the log is.

Logs of 2,000 decisions, made at a constant rate for a quarter, half, all and twice of the longest
delay. Delays are exponential, uniform, late (none in the first half), or depend on the reward: good
rewards are four times as fast. Rewards are explicit, or conversions at a rate of 10 %, whose window
is the longest delay. Horizons are parts of the longest delay; the last is all that will come.

Writes ``forecasts.md``.

Run: python -m experiments.coverage.forecasts [--runs 200]
"""

from __future__ import annotations

import os

os.environ["OPENBLAS_NUM_THREADS"] = "1"

import argparse
import itertools
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from datetime import timedelta
from pathlib import Path

import numpy as np

from belated import DefaultAfter, Explicit
from belated.core.inputs import Vector
from belated.evaluation.columns import NEVER
from belated.evaluation.forecasts import forecast
from belated.evaluation.table import DecisionTable
from belated.exceptions import InvalidInput, NotEvaluable
from experiments.tables import rule

DECISIONS, RATE = 2_000, 0.1
#: The longest delay, and the first decision, in microseconds.
LONGEST, START = 30 * 86_400_000_000, 1_700_000_000_000_000
LENGTHS = (0.25, 0.5, 1.0, 2.0)
HORIZONS = (0.02, 0.1, 0.5, None)


def exponential(luck: Vector, good: Vector) -> Vector:
    """Exponential delays, cut off at the longest."""
    delays: Vector = -0.4 * np.log1p(-luck * -np.expm1(-1 / 0.4))
    return delays


def uniform(luck: Vector, good: Vector) -> Vector:
    """Uniform delays."""
    return luck


def late(luck: Vector, good: Vector) -> Vector:
    """No reward comes in the first half."""
    return 0.5 + luck / 2


def dependent(luck: Vector, good: Vector) -> Vector:
    """Good rewards are fast, others uniform."""
    return np.where(good, -0.1 * np.log1p(-luck * -np.expm1(-10.0)), luck)


LAWS: dict[str, Callable[[Vector, Vector], Vector]] = {
    "exponential": exponential, "uniform": uniform, "late": late, "dependent": dependent,
}  # fmt: skip


def measure(meaning: str, law: str, length: float, seed: int) -> list[bool | None]:
    """Return whether each horizon's interval contains the truth; None if it is refused."""
    rng = np.random.default_rng([410, int(100 * length), *law.encode(), len(meaning), seed])
    now = START + int(length * LONGEST)
    decided = START + np.sort(rng.integers(now - START, size=DECISIONS))
    conversions = meaning == "conversions"
    good = rng.random(DECISIONS) < (RATE if conversions else 0.5)
    wait = LAWS[law](rng.random(DECISIONS), good)
    arrived = decided + (wait * LONGEST).astype(np.int64)
    exists = good if conversions else np.ones(DECISIONS, np.bool_)
    here = exists & (arrived <= now)
    table = DecisionTable.of(
        made=decided,
        rewarded=np.where(here, arrived, NEVER),
        value=np.where(here, 1.0 * good, np.nan),
        rewards=DefaultAfter("30d") if conversions else Explicit(),
        mean=np.full(DECISIONS, RATE),
        as_of=now,
    )
    results: list[bool | None] = []
    for share in HORIZONS:
        span = None if share is None else timedelta(microseconds=share * LONGEST)
        end = np.inf if share is None else now + share * LONGEST
        true = int((exists & (arrived > now) & (arrived <= end)).sum())
        try:
            expected = forecast(table, span).expected[0]
        except (InvalidInput, NotEvaluable):
            results.append(None)
            continue
        results.append(expected.low <= true <= expected.high)
    return results


def line(cell: tuple[str, str, float], runs: int) -> str:
    """Return a line of the table."""
    by_horizon = zip(*(measure(*cell, seed) for seed in range(runs)), strict=True)
    cells = [cell[0], cell[1], f"{cell[2]:g}"]
    for results in by_horizon:
        answers = [result for result in results if result is not None]
        share = len(answers) / runs
        text = f"{np.mean(answers):.3f}" if share > 0.05 else "refused"
        cells.append(text if share in (0.0, 1.0) else f"{text} ({share:.0%} given)")
    return "| " + " | ".join(cells) + " |"


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--runs", type=int, default=200)
    parser.add_argument("--jobs", type=int, default=1)
    options = parser.parse_args()
    names = ["all" if share is None else f"{share:g}" for share in HORIZONS]
    lines = rule(
        "rewards", ["delays", "length of the log", *(f"horizon {horizon}" for horizon in names)]
    )
    cells = list(itertools.product(("explicit", "conversions"), LAWS, LENGTHS))
    with ProcessPoolExecutor(options.jobs) as pool:
        for text in pool.map(line, cells, itertools.repeat(options.runs)):
            lines.append(text)
            print(text, flush=True)
    head = f"{options.runs:,} logs per cell. Lengths and horizons are in longest delays."
    path = Path(__file__).with_name("forecasts.md")
    path.write_text("\n".join([head, "", *lines]) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
