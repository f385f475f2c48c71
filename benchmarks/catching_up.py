"""CPU time of reading and folding a journal, and of opening a bandit from its snapshot.

Each journal holds the same events: decisions with rows of 20 numbers, and a reward for half of them
a hundred decisions later. The bare read is that of the database driver, page by page, without
decoding; a ratio of wall-clock times shows how much of its speed remains. One fit at the end is
included. Then rows of 50 numbers and rewards for 5 %, as pages already in memory: what a learner
that is behind a large service folds. Then 10^7 events are opened from a snapshot, in a separate
process.

Run: python benchmarks/catching_up.py [--events 200000] [--opened 10000000] [--only memory ...]
"""

from __future__ import annotations

import os

os.environ["OPENBLAS_NUM_THREADS"] = "1"

import argparse
import sqlite3
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
from resident_memory import resident

from belated import Bandit, Bernoulli, DelayedUCB, Explicit
from belated.core.events import Decision, Event, Reward
from belated.core.ids import new_id
from belated.fold.fold import Fold
from belated.journals import Journal, MemoryJournal, PostgresJournal, SQLiteJournal
from belated.model.kernels import compiled_pages

sys.path.append(str(Path(__file__).parents[1]))

#: Goals in CPU µs per event.
TARGETS = {"memory": 2.7, "sqlite": 4.2, "postgres": 1.5}
WIDE_TARGET, OPENING_TARGET, SHARE_TARGET = 1.8, 3.0, 0.5
WEEK = Explicit("7d")
PAGE = 10_000
START = 1_700_000_000_000_000


def history(events: int, dim: int, rewarded: float) -> list[Event]:
    """Return decisions, and a reward for some of them a hundred decisions later."""
    rng = np.random.default_rng(0)
    decisions = round(events / (1.0 + rewarded))
    rows = rng.normal(size=(decisions, dim)).astype(np.float32) / np.float32(dim**0.5)
    luck = rng.random((decisions, 2))
    stream: list[Event] = []
    ids = [new_id(START + t) for t in range(decisions)]
    for t in range(decisions):
        stream.append(Decision(ids[t], START + t, 0, 0, rows[t], 0.4, 1.0, t))
        if t >= 100 and luck[t, 0] < rewarded:
            stream.append(Reward(ids[t - 100], START + t, float(luck[t, 1] < 0.4)))
    return stream


def fill(journal: Journal, events: list[Event], size: int = PAGE) -> None:
    for start in range(0, len(events), size):
        journal.append(events[start : start + size])


def spent(work: Callable[[], object]) -> tuple[float, float]:
    """Return CPU and wall-clock seconds."""
    cpu, wall = time.process_time(), time.perf_counter()
    work()
    return time.process_time() - cpu, time.perf_counter() - wall


def measure(
    name: str, journal: Journal, count: int, repeats: int, bare: Callable[[], object] | None
) -> None:
    folded, read = [], []
    for _ in range(repeats):
        fold = Fold(DelayedUCB(20, Bernoulli()), WEEK)
        folded.append(spent(lambda fold=fold: fold.catch_up(journal)))  # type: ignore[misc]
        if bare is not None:
            read.append(spent(bare))
    cpu = [seconds / count * 1e6 for seconds, _ in folded]
    line = f"{name:<9} {statistics.median(cpu):5.2f} µs [{min(cpu):.2f}, {max(cpu):.2f}]"
    line += f" an event, goal {TARGETS[name]}"
    if read:
        shares = [
            read_time / fold_time
            for (_, fold_time), (_, read_time) in zip(folded, read, strict=True)
        ]
        line += (
            f"; bare read {statistics.median(seconds for seconds, _ in read) / count * 1e6:.2f} µs,"
        )
        line += f" its speed times {statistics.median(shares):.2f}, goal {SHARE_TARGET}"
    print(line, flush=True)


def in_memory(count: int, repeats: int) -> None:
    journal = MemoryJournal()
    fill(journal, history(count, 20, 0.5))
    measure("memory", journal, journal.end(0), repeats, None)


def in_sqlite(count: int, repeats: int) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "b.db")
        with SQLiteJournal(path, bandit="b") as journal:
            fill(journal, history(count, 20, 0.5))
            database = sqlite3.connect(path)
            names = [row[1] for row in database.execute("PRAGMA table_info(record)")]
            key = next(name for name in ("place", "position") if name in names)

            def bare() -> None:
                last = 0
                query = f"SELECT * FROM record WHERE {key} > ? ORDER BY {key} LIMIT {PAGE}"
                while page := database.execute(query, (last,)).fetchall():
                    last = page[-1][names.index(key)]

            measure("sqlite", journal, journal.end(0), repeats, bare)
            database.close()


def in_postgres(count: int, repeats: int) -> None:
    import psycopg

    from tests.integration.postgres_server import PostgresServer

    server = PostgresServer()
    try:
        PostgresJournal.create_tables(server.dsn)
        with PostgresJournal(server.dsn, bandit="b") as journal:
            fill(journal, history(count, 20, 0.5))
            with psycopg.connect(server.dsn, autocommit=True) as connection:

                def bare() -> None:
                    last = 0
                    query = (
                        "SELECT position, recorded, digest, event FROM belated.record"
                        " WHERE partition = 0 AND position > %s ORDER BY position LIMIT 10000"
                    )
                    while page := connection.execute(query, (last,), binary=True).fetchall():
                        last = page[-1][0]

                measure("postgres", journal, journal.end(0), repeats, bare)
    finally:
        server.stop()


def in_pages(count: int, repeats: int) -> None:
    """Measure wide rows and few rewards, as pages already in memory: the fold alone."""
    journal, kernels = MemoryJournal(), compiled_pages()
    fill(journal, history(count, 50, 0.05))
    for size in (64, 1_000):
        times = []
        for _ in range(repeats):
            fold = Fold(DelayedUCB(50, Bernoulli()), WEEK)
            pages = [journal.read_columns(0, at, size) for at in range(0, journal.end(0), size)]
            start = time.process_time()
            with fold.learner.bulk():
                for page in pages:
                    fold.take_columns(0, page, kernels)
            times.append(time.process_time() - start)
        micros = [seconds / journal.end(0) * 1e6 for seconds in times]
        print(
            f"d = 50, pages of {size}: {statistics.median(micros):.2f} µs"
            f" [{min(micros):.2f}, {max(micros):.2f}] an event, goal {WIDE_TARGET}",
            flush=True,
        )


def opening(count: int) -> None:
    """Fill a file, then open it in a separate process."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "b.db")
        with SQLiteJournal(path, bandit="b") as journal:
            for start in range(0, count, 1_000_000):
                fill(journal, history(min(1_000_000, count - start), 20, 0.9))
            Bandit(policy=DelayedUCB(20, Bernoulli()), rewards=WEEK, journal=journal).close()
        subprocess.run([sys.executable, __file__, "--open", str(path)], check=True)


def open_(path: Path) -> None:
    before = resident()
    begin = time.perf_counter()
    journal = SQLiteJournal(path, bandit="b")
    with Bandit(policy=DelayedUCB(20, Bernoulli()), rewards=WEEK, journal=journal) as bandit:
        seconds = time.perf_counter() - begin
        after = resident()
        print(
            f"opening {journal.end(0):,} events, {bandit.pending.count:,} pending: {seconds:.2f} s"
            f" (goal {OPENING_TARGET:g}), {(after - before) / 1e6:,.0f} MB",
            flush=True,
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--events", type=int, default=200_000)
    parser.add_argument("--opened", type=int, default=10_000_000)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--open", type=Path, help=argparse.SUPPRESS)
    every = ["memory", "sqlite", "postgres", "pages", "opening"]
    parser.add_argument("--only", nargs="*", choices=every, default=every)
    arguments = parser.parse_args()
    if arguments.open is not None:
        open_(arguments.open)
        return
    for name, act in (
        ("memory", in_memory),
        ("sqlite", in_sqlite),
        ("postgres", in_postgres),
        ("pages", in_pages),
    ):
        if name in arguments.only:
            act(arguments.events, arguments.repeats)
    if "opening" in arguments.only:
        opening(arguments.opened)


if __name__ == "__main__":
    main()
