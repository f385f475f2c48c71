"""Size of snapshots, and how long they block the fold, with many remembered decisions.

Decisions with rows of 20 numbers; half of them get a reward some hundred decisions later or, with
``--late``, any decision so far. After the first snapshot, one is saved whenever another 100,000
events were folded and it pays. It is written in a thread while further events are folded one by
one, as in the learner of the service: the longest time without an event is the pause. The bytes
written per event since the last snapshot are a ratio to the event's own bytes.

Run: python benchmarks/snapshots.py [--decisions 1000000] [--saves 3] [--late]
"""

from __future__ import annotations

import os

os.environ["OPENBLAS_NUM_THREADS"] = "1"

import argparse
import random
import threading
import time

import numpy as np
from catching_up import START, WEEK, fill

from belated import Bernoulli, DelayedUCB
from belated.core.events import Decision, Event, Reward, encode
from belated.core.ids import new_id
from belated.fold.fold import Fold
from belated.journals import MemoryJournal
from belated.journals.snapshots import Snapshot

DIM = 20
BYTES_TARGET, PAUSE_TARGET = 3.0, 0.05
EVERY, PAGE = 100_000, 2_000


class Counting(MemoryJournal):
    """A journal that counts the bytes it is given to save."""

    given = 0

    def save(self, snapshot: Snapshot) -> None:
        self.given += sum(map(len, snapshot.pieces.values()))
        super().save(snapshot)


class Traffic:
    """Decisions, and a reward for every second one."""

    def __init__(self, late: bool) -> None:
        self._rng, self._late = random.Random(0), late
        self._rows = np.random.default_rng(0).normal(size=(1_000, DIM)).astype(np.float32)
        self._open: list[str] = []

    def events(self, decisions: int) -> list[Event]:
        events: list[Event] = []
        for t in range(decisions):
            id = new_id(START + t)
            events.append(Decision(id, START + t, 0, 0, self._rows[t % 1_000], 0.4, 1.0, t))
            self._open.append(id)
            if t % 2 and len(self._open) > 100:
                whose = self._rng.randrange(len(self._open)) if self._late else -100
                self._open[whose], self._open[-1] = self._open[-1], self._open[whose]
                events.append(Reward(self._open.pop(), START + t, float(t % 3 == 0)))
        return events


def save_beside(fold: Fold, journal: Counting, traffic: Traffic) -> tuple[float, int]:
    """Save in a thread and continue to fold; return the longest pause and the events folded."""
    fill(journal, traffic.events(20_000))
    waiting = journal.read(0, fold.positions[0], 1 << 30)
    journal.given = 0
    start = time.perf_counter()
    saving = fold.begin_save(journal)
    thread = threading.Thread(target=saving.write, args=(journal,))
    thread.start()
    longest, last, count = time.perf_counter() - start, time.perf_counter(), 0
    while thread.is_alive() and count < len(waiting):
        fold.take(waiting[count])
        now = time.perf_counter()
        longest, last, count = max(longest, now - last), now, count + 1
    thread.join()
    fold.end_save(saving)
    return longest, count


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--decisions", type=int, default=1_000_000)
    parser.add_argument("--saves", type=int, default=3)
    parser.add_argument("--late", action="store_true")
    arguments = parser.parse_args()
    journal, traffic = Counting(), Traffic(arguments.late)
    fold = Fold(DelayedUCB(DIM, Bernoulli()), WEEK)
    fold.learner.defers = True  # fits run concurrently, too
    fill(journal, traffic.events(arguments.decisions))
    size = float(np.mean([len(encode(record.event)) for record in journal.read(0, 0, 1_000)]))
    fold.catch_up(journal)
    saved = 0
    for number in range(arguments.saves + 1):
        while number and (fold.version < saved + EVERY or not fold.save_pays()):
            fill(journal, traffic.events(PAGE))
            fold.catch_up(journal)
        since, saved = fold.version - saved, fold.version
        pause, count = save_beside(fold, journal, traffic)
        per_event = journal.given / since
        print(
            f"{sum(fold.counts.values()):,} decisions, {since:,} events since the last one:"
            f" {journal.given / 1e6:.0f} MB, {per_event / size:.2f} of the events' own"
            f" (goal {BYTES_TARGET:g}); longest pause {pause:.3f} s (goal {PAUSE_TARGET:g}),"
            f" {count:,} events folded meanwhile",
            flush=True,
        )


if __name__ == "__main__":
    main()
