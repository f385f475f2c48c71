"""Memory of subjects, and the time to open a bandit that knows many of them.

A SQLite file gets one decision per subject, and a reward for every third. It is opened in separate
processes: by a replay of all records, then from the snapshot that this saves. The same is done with
as many decisions and rewards without subjects; the difference is the cost of subjects.

Run: python benchmarks/many_subjects.py [--subjects 100000 1000000]
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

os.environ["OPENBLAS_NUM_THREADS"] = "1"

from resident_memory import resident

from belated import Bandit, Bernoulli, DelayedUCB, Explicit, SQLiteJournal
from belated.core.events import Decision, Event, Reward, SubjectDecision, SubjectReward
from belated.core.ids import new_id, slot_of_subject
from belated.model.kernels import compiled_pages

DIM, PAGE, START = 8, 10_000, 1_700_000_000_000_000
KINDS = ("with subjects", "without")


def fill(path: Path, count: int, subjects: bool) -> None:
    """Write the records, and show progress."""
    rng = np.random.default_rng(0)
    with SQLiteJournal(path, bandit="b") as journal:
        for start in range(0, count, PAGE):
            events: list[Event] = []
            rows = rng.normal(size=(PAGE, DIM)).astype(np.float32)
            for t in range(start, min(start + PAGE, count)):
                subject, at = f"user-{t:09}", START + t
                id = new_id(at, slot_of_subject(subject))
                events.append(Decision(id, at, 0, 0, rows[t - start], 0.4, 1.0, t))
                if subjects:
                    events.append(SubjectDecision(subject, at, id))
                if t % 3 == 0 and subjects:
                    events.append(SubjectReward(subject, at, 1.0, f"order-{t}"))
                elif t % 3 == 0:
                    events.append(Reward(id, at, 1.0))
            journal.append(events)
            print(f"\r{start + PAGE:,} of {count:,} written", end="", file=sys.stderr, flush=True)
    print(file=sys.stderr)


def open_(path: Path) -> None:
    """Open the bandit; print the seconds of CPU time and its memory in bytes."""
    compiled_pages()
    before, begin = resident(), time.process_time()
    journal = SQLiteJournal(path, bandit="b")
    bandit = Bandit(policy=DelayedUCB(DIM, Bernoulli()), rewards=Explicit("7d"), journal=journal)
    print(time.process_time() - begin, resident() - before)
    bandit.close()


def opened(path: Path) -> tuple[float, int]:
    """Open the bandit in a separate process."""
    command = [sys.executable, __file__, "--open", str(path)]
    seconds, size = subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout.split()
    return float(seconds), int(size)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--subjects", type=int, nargs="+", default=[100_000, 1_000_000])
    parser.add_argument("--open", type=Path, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.open is not None:
        open_(arguments.open)
        return
    for count in arguments.subjects:
        sizes = []
        for kind in KINDS:
            with tempfile.TemporaryDirectory() as folder:
                path = Path(folder, "b.db")
                fill(path, count, kind == KINDS[0])
                (replay, _), (opening, size) = opened(path), opened(path)
            sizes.append(size / count)
            print(
                f"{count:>9,} decisions {kind:<13}: replay {replay:6.2f} s, from the snapshot"
                f" {opening:5.2f} s, {sizes[-1]:4.0f} bytes per decision",
                flush=True,
            )
        print(f"{sizes[0] - sizes[1]:.0f} bytes per subject", flush=True)


if __name__ == "__main__":
    main()
