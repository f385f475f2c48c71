"""Memory per decision in a fresh process, d = 50: pending, settled and remembered, forgotten.

Each case runs in a separate process; resident memory is read before and after. A settled decision
with a reward that is remembered has its row among the observations: their bytes (4 d + 9 each) are
subtracted, and shown. ``rewards_memory.py`` measures what remains of forgotten ones.

Run: python benchmarks/memory.py [--decisions 1000000] [--forgotten 10000000]
"""

from __future__ import annotations

import os

os.environ["OPENBLAS_NUM_THREADS"] = "1"

import argparse
import subprocess
import sys
from collections.abc import Iterator
from datetime import timedelta

import numpy as np
from resident_memory import resident

from belated import Bernoulli, DelayedUCB, Explicit
from belated.core.events import Decision, Record, Reward, Settled
from belated.core.ids import new_id
from belated.fold.fold import Fold

DIM = 50
START = 1_700_000_000_000_000


def decisions(count: int) -> Iterator[Record]:
    rows = np.random.default_rng(0).normal(size=(1000, DIM)).astype(np.float32)
    for t in range(count):
        at = START + t
        event = Decision(new_id(at), at, 0, 0, rows[t % 1000], 0.4, 1.0, t)
        yield Record(0, t + 1, at, event)


def pending(count: int) -> str:
    fold = Fold(DelayedUCB(DIM, Bernoulli()), Explicit(timedelta(days=7)))
    before = resident()
    with fold.learner.bulk():
        for record in decisions(count):
            fold.take(record)
    per_decision = (resident() - before) / count
    return f"pending: {per_decision:.0f} bytes each at {fold.model.pending:,}, goal 450"


def settled(count: int) -> str:
    fold = Fold(DelayedUCB(DIM, Bernoulli()), Explicit(timedelta(days=7)))
    before = resident()
    with fold.learner.bulk():
        for record in decisions(count):
            fold.take(record)
            assert isinstance(record.event, Decision)
            reward = Reward(record.event.id, record.recorded, 1.0)
            fold.take(Record(0, record.position, record.recorded, reward))
    rows = (4 * DIM + 9) * count
    per_decision = (resident() - before - rows) / count
    beside = f"beside {4 * DIM + 9} of its observation"
    return f"settled, remembered: {per_decision:.0f} bytes each {beside}, goal 160"


def forgotten(count: int) -> str:
    day = timedelta(milliseconds=50)
    fold = Fold(DelayedUCB(DIM, Bernoulli()), Explicit(day), retention=100_000)
    seen = []
    with fold.learner.bulk():
        for record in decisions(count):
            fold.take(record)
            if record.position % 10_000 == 0:
                fold.take(Record(0, record.position, record.recorded, Settled(0, record.recorded)))
            if record.position % (count // 10) == 0:
                seen.append(resident() / 1e6)
    figures = " ".join(f"{size:.0f}" for size in seen)
    return f"forgotten: {figures} MB after each tenth of {count:,}: flat from the second on"


CASES = {"pending": pending, "settled": settled, "forgotten": forgotten}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--decisions", type=int, default=1_000_000)
    parser.add_argument("--forgotten", type=int, default=10_000_000)
    parser.add_argument("--case", choices=CASES)
    arguments = parser.parse_args()
    counts = dict.fromkeys(CASES, arguments.decisions) | {"forgotten": arguments.forgotten}
    if arguments.case:
        print(CASES[arguments.case](counts[arguments.case]))
        return
    for case in CASES:
        command = [sys.executable, __file__, "--case", case]
        command += ["--decisions", str(arguments.decisions)]
        command += ["--forgotten", str(arguments.forgotten)]
        subprocess.run(command, check=True)


if __name__ == "__main__":
    main()
