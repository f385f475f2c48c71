"""CPU time of decide + observe through ``Bandit``, as a ratio to the same maths in bare BLAS.

A round: choose one of K rows with its propensity, make an id and an event, append it to a
MemoryJournal, fold it, answer; then the reward: event, append, fold, learn, receipt. No refit
(``Online``): the reference has none. Then how fast a fold catches up with a journal of 10^6 events
(two decisions per reward, one refit at the end), and how long a SQLite journal of 10^6 events with
a tenth of its decisions pending takes to open from its snapshot.

Run: python benchmarks/bandit.py [--slices 40] [--events 1000000]
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

import numpy as np
from kernels import Bare, slice_seconds
from policies import report

from belated import Bandit, Bernoulli, DelayedUCB, Explicit, kernels
from belated.estimators import Online
from belated.events import Decision, Event, Reward
from belated.ids import new_id
from belated.inputs import Matrix
from belated.journals import MemoryJournal, SQLiteJournal
from belated.learner.fold import Fold

TARGETS = {(20, 10): (1.3, 0.6), (100, 100): (1.2, 0.95)}
WEEK = Explicit(timedelta(days=7))


class Ours:
    """A round through a bandit."""

    def __init__(self, dim: int, using: kernels.Kernels) -> None:
        policy = DelayedUCB(dim, Bernoulli(), estimator=Online())
        self.bandit = Bandit(policy=policy, rewards=WEEK, seed=0, kernels=using)

    def round(self, rows: Matrix, y: float) -> None:
        decision = self.bandit.decide(rows)
        self.bandit.observe(decision.id, y)


def rounds(dim: int, arms: int, slices: int) -> dict[str, list[float]]:
    rng = np.random.default_rng(0)
    tables = rng.normal(size=(8, arms, dim))
    tables /= np.linalg.norm(tables, axis=2, keepdims=True)
    tables.flags.writeable = False
    variants: dict[str, Callable[[Matrix, float], None]] = {
        "bare": Bare(dim).round,
        "plain": Ours(dim, kernels.plain()).round,
        "compiled": Ours(dim, kernels.compiled()).round,
    }
    times: dict[str, list[float]] = {key: [] for key in variants}
    for number in range(slices + 1):
        y = (rng.random(200) < 0.3).astype(float).tolist()
        for key, step in variants.items():
            seconds = slice_seconds(step, tables, y)
            if number:  # the first slice compiles and warms
                times[key].append(seconds / 200 * 1e6)
    return times


def history(events: int, dim: int, rewarded: float) -> list[Event]:
    """Decisions, and a reward for some of them a hundred decisions later."""
    rng = np.random.default_rng(0)
    decisions = round(events / (1.0 + rewarded))
    rows = rng.normal(size=(decisions, dim)).astype(np.float32) / np.float32(dim**0.5)
    luck = rng.random((decisions, 2))
    found: list[Event] = []
    ids = [new_id(1_700_000_000_000_000 + t) for t in range(decisions)]
    for t in range(decisions):
        found.append(Decision(ids[t], 1_700_000_000_000_000 + t, 0, 0, rows[t], 0.4, 1.0, t))
        if t >= 100 and luck[t, 0] < rewarded:
            found.append(Reward(ids[t - 100], 1_700_000_000_000_000 + t, float(luck[t, 1] < 0.4)))
    return found


def catch_up(events: int) -> str:
    journal = MemoryJournal()
    journal.append(history(events, 20, rewarded=0.5))
    fold = Fold(DelayedUCB(20, Bernoulli()), WEEK)
    start = time.process_time()
    count = fold.catch_up(journal)
    return f"catch-up: {count / (time.process_time() - start):,.0f} events/s a core, goal 100,000"


def opening(events: int) -> str:
    policy = DelayedUCB(20, Bernoulli())
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "bandit.db")
        journal = SQLiteJournal(path, bandit="b")
        all_events = history(events, 20, rewarded=0.9)
        for start in range(0, len(all_events), 10_000):
            journal.append(all_events[start : start + 10_000])
        Bandit(policy=policy, rewards=WEEK, journal=journal).close()
        begin = time.perf_counter()
        bandit = Bandit(policy=policy, rewards=WEEK, journal=SQLiteJournal(path, bandit="b"))
        seconds = time.perf_counter() - begin
        pending = bandit.pending.count
    return f"opening {len(all_events):,} events, {pending:,} pending: {seconds:.2f} s, goal 2"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--slices", type=int, default=40)
    parser.add_argument("--events", type=int, default=1_000_000)
    arguments = parser.parse_args()
    print("CPU µs a round (median), ratio to bare with quartiles, target")
    for (dim, arms), targets in TARGETS.items():
        report(f"decide + observe, d={dim}, K={arms}", rounds(dim, arms, arguments.slices), targets)
    print(catch_up(arguments.events))
    print(opening(arguments.events))


if __name__ == "__main__":
    main()
