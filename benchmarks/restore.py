"""A drill: back up a journal, wipe the database, restore it, and compare the folds.

A real PostgreSQL that syncs, decisions with a reward for every other one, pg_dump and pg_restore.
The digest of all decisions and the sums must be equal before and after; it prints the seconds of
each step, scaled to 10^6 events.

With --trim, the older half of the journal is trimmed before the backup.

Run: python benchmarks/restore.py [--events 20000] [--jobs 2] [--trim]
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

from belated import Bernoulli, DelayedUCB, Explicit
from belated.core.events import Decision, Event, Reward
from belated.core.ids import new_id
from belated.fold.fold import Fold, same_sums
from belated.fold.trimming import last_to_drop, make_bases, trim
from belated.journals import PostgresJournal

sys.path.append(str(Path(__file__).parents[1]))

from tests.integration.postgres_server import PostgresServer, find_programs

DIM, PAGE, PARTITIONS = 20, 500, 2


def events(count: int) -> list[Event]:
    """Return decisions, every second one followed by its reward."""
    rng = np.random.default_rng(0)
    history: list[Event] = []
    while len(history) < count:
        id, row = new_id(len(history)), rng.normal(size=DIM).astype(np.float32)
        history.append(Decision(id, len(history), "a", 0, row, 0.5, 0.5, 0))
        if len(history) % 3 == 1:
            history.append(Reward(id, len(history), float(rng.integers(2))))
    return history[:count]


def fold(dsn: str) -> Fold:
    """Fold the journal."""
    result = Fold(DelayedUCB(DIM, Bernoulli()), Explicit(), partitions=PARTITIONS)
    with PostgresJournal(dsn, bandit="offers") as journal:
        result.begin(journal)
        result.catch_up(journal)
    return result


def trim_half(dsn: str) -> int:
    """Drop the older half of each partition; return the number of records."""
    count = 0
    with PostgresJournal(dsn, bandit="offers") as journal:
        whole = fold(dsn)
        whole.save(journal)
        last = []
        for partition in range(PARTITIONS):
            middle = journal.read(partition, journal.end(partition) // 2, 1)[0].recorded
            end, link = journal.end(partition), whole.tuning.link
            last.append(last_to_drop(journal, partition, middle, end, link))
        empty = Fold(DelayedUCB(DIM, Bernoulli()), Explicit(), partitions=PARTITIONS)
        for base in make_bases(journal, empty, last):
            trim(journal, base, last[base.partition], 0, reason="a drill", actor="")
            while dropped := journal.drop(base.partition, 1_000):
                count += dropped
    return count


def main() -> int:
    """Run the drill; return 1 if the restored journal differs."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--events", type=int, default=20_000)
    parser.add_argument("--jobs", type=int, default=2, help="of pg_restore")
    parser.add_argument("--trim", action="store_true", help="drop the older half first")
    options = parser.parse_args()
    programs = find_programs()
    assert programs is not None, "PostgreSQL is needed"
    server = PostgresServer()
    took: dict[str, float] = {}

    def timed(step: str, work: Callable[[], object]) -> None:
        start = time.perf_counter()
        work()
        took[step] = time.perf_counter() - start

    def run(program: str, *arguments: object, base: str = "belated") -> None:
        place = server.dsn.rpartition("/")[0] + f"/{base}"
        command = [str(programs / program), "-d", place, *map(str, arguments)]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)

    def fill() -> None:
        with PostgresJournal(dsn, bandit="offers", partitions=PARTITIONS) as journal:
            for start in range(0, len(history), PAGE):
                journal.append(history[start : start + PAGE])

    def wipe() -> None:
        run("psql", "-c", "DROP DATABASE IF EXISTS belated WITH (FORCE)", base="postgres")
        run("psql", "-c", "CREATE DATABASE belated", base="postgres")

    try:
        wipe()
        dsn = server.dsn.rpartition("/")[0] + "/belated"
        PostgresJournal.create_tables(dsn)
        history = events(options.events)
        timed("write", fill)
        if options.trim:
            timed("trim", lambda: print(f"{trim_half(dsn):,} records dropped"))
        before = fold(dsn)
        with tempfile.TemporaryDirectory() as folder:
            backup = Path(folder, "belated.dump")
            timed("pg_dump", lambda: run("pg_dump", "-Fc", "-n", "belated", "-f", backup))
            size = backup.stat().st_size
            wipe()
            timed("pg_restore", lambda: run("pg_restore", "-j", options.jobs, backup))
        after: list[Fold] = []
        timed("fold", lambda: after.append(fold(dsn)))
    finally:
        server.stop()
    million = 1e6 / options.events
    print(f"{options.events:,} events, {size / options.events:.0f} bytes each in the backup")
    for step, seconds in took.items():
        print(f"{step:10} {seconds:8.2f} s {seconds * million:8.1f} s for 10^6 events")
    same = before.digest == after[0].digest and same_sums(before, after[0])
    print(f"digest {after[0].digest}: {'the same' if same else 'ANOTHER'}")
    return 0 if same else 1


if __name__ == "__main__":
    sys.exit(main())
