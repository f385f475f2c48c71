"""What a snapshot writes and how long it holds up the fold, with many decisions remembered.

Decisions with rows of 20 numbers, a reward for half of them some hundred decisions later. After the
first snapshot of all, one is saved whenever another 100,000 events were folded: the bytes that it
writes for each of these events, as a ratio to the event's own bytes, and the seconds of the call.

Run: python benchmarks/snapshots.py [--decisions 1000000] [--saves 3]
"""

from __future__ import annotations

import os

os.environ["OPENBLAS_NUM_THREADS"] = "1"

import argparse
import time

import numpy as np
from catching_up import WEEK, fill, history

from belated import Bernoulli, DelayedUCB
from belated.events import Event, encode
from belated.journals import MemoryJournal, Snapshot
from belated.learner.fold import Fold

BYTES_TARGET, PAUSE_TARGET = 3.0, 0.05
EVERY = 100_000


class Counting(MemoryJournal):
    """Counts what it is given to save."""

    given = 0

    def save(self, snapshot: Snapshot) -> None:
        self.given += sum(map(len, snapshot.pieces.values()))
        super().save(snapshot)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--decisions", type=int, default=1_000_000)
    parser.add_argument("--saves", type=int, default=3)
    arguments = parser.parse_args()
    journal = Counting()
    fold = Fold(DelayedUCB(20, Bernoulli()), WEEK)
    fill(journal, history(round(1.5 * arguments.decisions), 20, 0.5))
    fold.catch_up(journal)
    events: list[Event] = []
    for _ in range(arguments.saves + 1):
        journal.given = 0
        start = time.perf_counter()
        fold.save(journal)
        pause = time.perf_counter() - start
        if events:
            size = float(np.mean([len(encode(event)) for event in events[:1000]]))
            each = journal.given / len(events)
            print(
                f"{fold.counts['pending'] + fold.counts['rewarded']:,} decisions:"
                f" {each:.0f} bytes an event, {each / size:.2f} of its own (goal {BYTES_TARGET:g});"
                f" {pause:.3f} s (goal {PAUSE_TARGET:g})",
                flush=True,
            )
        else:
            print(f"the first: {journal.given / 1e6:.0f} MB, {pause:.3f} s")
        events = history(EVERY, 20, 0.5)
        fill(journal, events)
        fold.catch_up(journal)


if __name__ == "__main__":
    main()
