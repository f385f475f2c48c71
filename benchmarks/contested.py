"""Cost of records that all share one id, compared with rewards of distinct decisions.

For each kind of crowd: CPU time to fold it, relative to that of as many rewards of distinct
decisions (median over repeats, alternating between kinds), and how much a process grows. The ledger
is measured alone: a learner would add to the rewards of distinct decisions, and so hide a slow
ledger. Exits with 1 if one of the first four exceeds ``--bound``, or grows by more than 64 MB.

Run: python benchmarks/contested.py [--events 100000] [--repeats 7] [--bound 2.0]
"""

from __future__ import annotations

import argparse
import gc
import statistics
import subprocess
import sys
import time
from collections.abc import Callable

import numpy as np
from resident_memory import resident

from belated.core.events import Decision, Event, Record, Reward
from belated.core.ids import new_id
from belated.core.rewards import Explicit
from belated.fold.ledger import Ledger, NullListener

START = 1_700_000_000_000_000
ROW = np.ones(2, dtype=np.float32)
#: Maximum growth of a process, in bytes.
ROOM = 64 << 20
#: The kind that all others are compared with.
DISTINCT = "rewards of distinct decisions"

#: Events that are folded before, and events that are measured.
Crowd = tuple[list[Event], list[Event]]


def decided(id: str, at: int = START) -> Decision:
    return Decision(id, at, 0, 0, ROW, 0.5, 0.5, 1)


def distinct(count: int) -> Crowd:
    ids = [new_id(START + n) for n in range(count)]
    return [decided(id) for id in ids], [Reward(id, START, 1.0) for id in ids]


def values(count: int) -> Crowd:
    return [decided("one")], [Reward("one", START, n / count) for n in range(count)]


def parts(count: int) -> Crowd:
    return [decided("one")], [Reward("one", START, 1.0, f"part {n}") for n in range(count)]


def unknown(count: int) -> Crowd:
    return [], [Reward("one", START, n / count) for n in range(count)]


def decisions(count: int) -> Crowd:
    return [], [decided("one", START + n) for n in range(count)]


def revisions(count: int) -> Crowd:
    return [decided("one")], [Reward("one", START, n / count, "", n) for n in range(count)]


def revised_parts(count: int) -> Crowd:
    return [decided("one")], [
        Reward("one", START, n / count, f"part {n % 64}", n // 64) for n in range(count)
    ]


#: The last two learn each time, so each record costs more, but not more with their number.
CROWDS: dict[str, Callable[[int], Crowd]] = {
    DISTINCT: distinct,
    "values for one part and revision": values,
    "parts of one decision": parts,
    "values for one unknown id": unknown,
    "decisions under one id": decisions,
    "revisions of one part": revisions,
    "revisions of 64 parts": revised_parts,
}
BOUNDED = tuple(CROWDS)[1:5]


def records_of(crowd: Crowd) -> tuple[list[Record], list[Record]]:
    before, then = crowd
    records = [Record(0, n, START + n, event) for n, event in enumerate(before + then, 1)]
    return records[: len(before)], records[len(before) :]


def folded(records: list[Record]) -> Ledger:
    ledger = Ledger(Explicit(), NullListener(), min_reward=-1e9, max_reward=1e9)
    for record in records:
        ledger.fold(record)
    return ledger


def cpu_seconds(before: list[Record], then: list[Record]) -> float:
    ledger = folded(before)
    fold = ledger.fold
    gc.collect()
    start = time.process_time()
    for record in then:
        fold(record)
    return time.process_time() - start


def growth(name: str, count: int) -> int:
    """Return the growth of this process in bytes; it must do nothing else."""
    before, then = records_of(CROWDS[name](count))
    ledger = folded(before)
    gc.collect()
    start = resident()
    for record in then:
        ledger.fold(record)
    return resident() - start


def grown(name: str, count: int) -> int:
    """Return the growth, measured in a separate process."""
    command = [sys.executable, __file__, "--events", str(count), "--growth", name]
    return int(subprocess.run(command, capture_output=True, text=True, check=True).stdout)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--events", type=int, default=100_000)
    parser.add_argument("--repeats", type=int, default=7)
    parser.add_argument("--bound", type=float, default=2.0)
    parser.add_argument("--growth", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.growth is not None:
        print(growth(options.growth, options.events))
        return 0
    crowds = {name: records_of(make(options.events)) for name, make in CROWDS.items()}
    ratios: dict[str, list[float]] = {name: [] for name in crowds}
    seconds: list[float] = []
    for _ in range(options.repeats):
        took = {name: cpu_seconds(*crowd) for name, crowd in crowds.items()}
        seconds.append(took[DISTINCT])
        for name, spent in took.items():
            ratios[name].append(spent / took[DISTINCT])
    micros = 1e6 * statistics.median(seconds) / options.events
    print(f"{DISTINCT}: {micros:.1f} µs of CPU each, {options.events:,} of them")
    within = True
    for name in list(CROWDS)[1:]:
        ratio = statistics.median(ratios[name])
        print(f"{name:34} {ratio:5.2f} × the time", end="")
        if name in BOUNDED:
            room = grown(name, options.events)
            print(f", {room / 2**20:.1f} MB more", end="")
            within &= ratio <= options.bound and room <= ROOM
        print()
    return 0 if within else 1


if __name__ == "__main__":
    sys.exit(main())
