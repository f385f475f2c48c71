"""A drill: back a journal up, wipe the database, restore it, and compare what it comes to.

A real PostgreSQL that syncs, decisions with a reward for every other one, pg_dump and pg_restore.
The digest of all decisions and the sums must be equal before and after; it prints the seconds for
10^6 events of each step.

Run: python benchmarks/restore.py [--events 20000] [--jobs 2]
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
from belated.events import Decision, Event, Reward
from belated.ids import new_id
from belated.journals import PostgresJournal
from belated.learner.fold import Fold, same_sums

sys.path.append(str(Path(__file__).parents[1]))

from tests.integration.postgres_server import PostgresServer, find_programs

DIM, PAGE, PARTITIONS = 20, 500, 2


def events(count: int) -> list[Event]:
    """Decisions, each second one with its reward behind it."""
    rng = np.random.default_rng(0)
    made: list[Event] = []
    while len(made) < count:
        id, row = new_id(len(made)), rng.normal(size=DIM).astype(np.float32)
        made.append(Decision(id, len(made), "a", 0, row, 0.5, 0.5, 0))
        if len(made) % 3 == 1:
            made.append(Reward(id, len(made), float(rng.integers(2))))
    return made[:count]


def fold(dsn: str) -> Fold:
    """What the journal comes to."""
    found = Fold(DelayedUCB(DIM, Bernoulli()), Explicit(), partitions=PARTITIONS)
    with PostgresJournal(dsn, bandit="offers") as journal:
        found.catch_up(journal)
    return found


def main() -> int:
    """Run the drill; 1 if what was restored is not what was backed up."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--events", type=int, default=20_000)
    parser.add_argument("--jobs", type=int, default=2, help="of pg_restore")
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
            for start in range(0, len(made), PAGE):
                journal.append(made[start : start + PAGE])

    def wipe() -> None:
        run("psql", "-c", "DROP DATABASE IF EXISTS belated WITH (FORCE)", base="postgres")
        run("psql", "-c", "CREATE DATABASE belated", base="postgres")

    try:
        wipe()
        dsn = server.dsn.rpartition("/")[0] + "/belated"
        PostgresJournal.create_tables(dsn)
        made = events(options.events)
        timed("write", fill)
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
