"""CPU time of decide_many and observe_many, as a ratio to a loop of decide and observe.

1,000 requests with features (PerArm, 8 actions, 5 fields), from a list of contexts and from a
pandas frame, into a MemoryJournal and into SQLite; then 1,000 rewards. Both policies, on a bandit
that has learned from 2,000 rewards. Each time is the minimum of several repeats.

Run: python benchmarks/batches.py [--repeats 5]
"""

from __future__ import annotations

import os

os.environ["OPENBLAS_NUM_THREADS"] = "1"

import argparse
import tempfile
import time
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from belated import Bandit, Bernoulli, DefaultAfter, DelayedThompson, DelayedUCB, Number, PerArm
from belated.policies import Policy

ACTIONS = [f"a{n}" for n in range(8)]
PLAIN = PerArm(ACTIONS, context=[f"x{n}" for n in range(5)])
ENCODED = PerArm(ACTIONS, context={f"x{n}": Number(-1, 1) for n in range(5)})


def seconds(work: Callable[[], Any]) -> tuple[float, Any]:
    start = time.process_time()
    result = work()
    return time.process_time() - start, result


def opened(policy: type[Policy], features: PerArm, journal: str | None, count: int) -> Bandit:
    """Return a bandit that has learned from some rewards."""
    rng = np.random.default_rng(0)
    bandit = Bandit(
        policy=policy(features.dim, Bernoulli()),
        rewards=DefaultAfter(timedelta(days=7)),
        features=features,
        journal=journal,
        seed=0,
    )
    decisions = bandit.decide_many(contexts(2 * count, rng))
    bandit.observe_many((decision.id, float(rng.random() < 0.3)) for decision in decisions)
    return bandit


def contexts(count: int, rng: np.random.Generator) -> list[dict[str, float]]:
    names = [f"x{n}" for n in range(5)]
    return [dict(zip(names, line, strict=True)) for line in rng.uniform(-1, 1, (count, 5)).tolist()]


def measure(policy: type[Policy], features: PerArm, folder: str | None, count: int) -> list[float]:
    """Return the seconds of decide, decide_many (list and frame), observe and observe_many."""
    inputs = contexts(count, np.random.default_rng(1))
    frame = pd.DataFrame(inputs)
    journals = [None if folder is None else f"sqlite:///{folder}/{n}.db?bandit=b" for n in range(3)]
    plain, many, framed = (opened(policy, features, journal, count) for journal in journals)
    single, first = seconds(lambda: [plain.decide(context) for context in inputs])
    batch, second = seconds(lambda: many.decide_many(inputs))
    frames, _ = seconds(lambda: framed.decide_many(frame))
    observed, _ = seconds(lambda: [plain.observe(decision.id, 1.0) for decision in first])
    observed_many, _ = seconds(
        lambda: many.observe_many([(decision.id, 1.0) for decision in second])
    )
    for bandit in (plain, many, framed):
        bandit.close()
    return [single, batch, frames, observed, observed_many]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--count", type=int, default=1_000, help="decisions per repeat")
    arguments = parser.parse_args()
    count = arguments.count
    print(
        f"CPU µs each of {count:,} (least of {arguments.repeats}); in brackets: ratio to the loop"
    )
    for policy in (DelayedUCB, DelayedThompson):
        for label, features in (("numbers", PLAIN), ("encoded", ENCODED)):
            for store in ("memory", "sqlite"):
                runs = []
                for _ in range(arguments.repeats + 1):  # the first compiles and warms
                    with tempfile.TemporaryDirectory() as folder:
                        place = None if store == "memory" else str(Path(folder))
                        runs.append(measure(policy, features, place, count))
                least = np.min(runs[1:], axis=0) / count * 1e6
                single, batch, frames, observed, many = least.tolist()
                print(
                    f"{policy.__name__:<16} {label:<8} {store:<7}"
                    f" decide {single:6.0f}, many {batch:5.0f} ({batch / single:.2f}),"
                    f" frame {frames:5.0f} ({frames / single:.2f});"
                    f" observe {observed:6.0f}, many {many:5.0f} ({many / observed:.2f})",
                    flush=True,
                )


if __name__ == "__main__":
    main()
