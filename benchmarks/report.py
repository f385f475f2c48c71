"""Time and memory of a report of many decisions.

``python benchmarks/report.py --decisions 1000000`` writes a journal of a month to a file, makes its
report in a separate process, as ``belated report`` does, and prints seconds, the peak resident
memory and the size of the file.
"""

from __future__ import annotations

import argparse
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from belated import Bernoulli, DefaultAfter, DelayedThompson, PerArm, SQLiteJournal
from belated.core.events import Decision, Event, Reward
from belated.core.ids import new_id
from belated.journals.identity import configure, identify, settings_of

ACTIONS = tuple(f"offer {n}" for n in range(5))
CONTEXT = ("new", "mobile", "basket", "recency")
DAY = 86_400_000_000
START = 1_780_000_000_000_000
PAGE = 5_000


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--decisions", type=int, default=100_000)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "shop.db")
        start = time.perf_counter()
        count = write(path, options.decisions)
        print(f"{count:,} records written in {time.perf_counter() - start:.0f} s", flush=True)
        start = time.perf_counter()
        target = Path(folder, "report.html")
        address = f"sqlite:///{path}?bandit=shop"
        command = [sys.executable, "-m", "belated", "report", address, "--output", str(target)]
        subprocess.run(command, check=True)
        took = time.perf_counter() - start
        used = resource.getrusage(resource.RUSAGE_CHILDREN)
        cpu = used.ru_utime + used.ru_stime
        print(
            f"{options.decisions:,} decisions: {took:.1f} s, {cpu:.1f} s of CPU,"
            f" {used.ru_maxrss / 1e6:.2f} GB, a file of {target.stat().st_size / 1e6:.2f} MB"
        )


def write(path: Path, count: int) -> int:
    """Write a journal of a month, without the cost of deciding; return the number of records."""
    now = [START]
    features = PerArm(ACTIONS, context=CONTEXT)
    policy = DelayedThompson(features.dim, Bernoulli(), floor=0.02)
    rewards, total = DefaultAfter("7d"), 0
    with SQLiteJournal(path, bandit="shop", clock=lambda: now[0]) as journal:
        identify(journal, family=repr(policy.family), dim=policy.dim, features=features)
        settings = settings_of(policy, rewards, 14 * DAY, features)
        configure(journal, settings, now[0])
        for when, events in pages(count, features):
            now[0] = when
            journal.append(events)
            total += len(events)
    return total


def pages(count: int, features: PerArm) -> Iterator[tuple[int, list[Event]]]:
    """Yield decisions and the rewards of earlier ones, ordered by time."""
    rng = np.random.default_rng(0)
    step = 30 * DAY // count
    waiting: list[tuple[int, str]] = []
    for first in range(0, count, PAGE):
        end = START + (first + PAGE) * step
        due = [entry for entry in waiting if entry[0] <= end]
        waiting = [entry for entry in waiting if entry[0] > end]
        events: list[Event] = [Reward(id, at, 1.0) for at, id in due]
        for n in range(first, min(first + PAGE, count)):
            context = dict(zip(CONTEXT, rng.random(4).round(2).tolist(), strict=True))
            place = int(rng.integers(len(ACTIONS)))
            row = features.rows(context, [ACTIONS[place]])[0]
            at, in_holdout = START + n * step, rng.random() < 0.05
            id = new_id(at)
            events.append(
                Decision(
                    id, at, ACTIONS[place], place, row, 0.1, 0.2, n,
                    source="holdout" if in_holdout else "policy",
                    group="holdout" if in_holdout else "bandit",
                    overall=0.2,
                )
            )  # fmt: skip
            if rng.random() < 0.1:
                waiting.append((at + int(rng.exponential(2.0) * DAY), id))
        yield end, events


if __name__ == "__main__":
    main()
