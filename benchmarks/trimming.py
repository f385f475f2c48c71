"""Cost of trimming for a journal in use, and whether the size of the journal stays constant.

A journal is filled in appends of 128 events, alternating decisions and rewards, as if a hundred
days passed. Another process trims it repeatedly, as `belated journal trim` does, so that ten days
remain. After each tenth of the events, the size of the records on disk, and of snapshots and base,
is printed. At the end, with and without a concurrent trim: the time of appends (p50, p99, maximum)
and of reading pages of 10,000 records. The two are measured in turn, so that other load on the
machine affects both.

The longest append during a trim bounds how long any lock was held.

Starts a PostgreSQL server with fsync on, if needed.

Run: python benchmarks/trimming.py [--events 10000000] [--store sqlite | postgresql]
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path

import numpy as np
import psycopg

sys.path.append(str(Path(__file__).parents[1]))

from belated import Bernoulli, DefaultAfter, DelayedUCB
from belated.cli.journal.trim import BATCH as DROPPED, PAUSE
from belated.core.events import Decision, Event, Reward, Settled
from belated.core.ids import new_id
from belated.fold.fold import Fold
from belated.fold.trimming import last_to_drop, make_bases, trim
from belated.journals import Journal, SQLiteStore, Store, open_store
from tests.integration.postgres_server import PostgresServer

BATCH, PAGE, DIM = 128, 10_000, 5
START, DAY = 1_700_000_000_000_000, 86_400_000_000
DAYS, KEPT, ROUNDS = 100, 10, 40
REWARDS, RETENTION = DefaultAfter(timedelta(hours=1)), DAY


def empty() -> Fold:
    """Return an empty fold."""
    return Fold(DelayedUCB(DIM, Bernoulli()), REWARDS, retention=RETENTION)


def events(start: int, count: int, total: int, rng: np.random.Generator) -> list[Event]:
    """Return some of the events; every fourth decision has no reward."""
    history: list[Event] = []
    rows = rng.random((count, DIM), dtype=np.float32)
    for n in range(0, count, 2):
        now = START + (start + n) * DAYS * DAY // total
        id = new_id(now)
        history.append(Decision(id, now, n % 4, n % 4, rows[n], 0.5, 0.25, 0))
        history.append(Settled(0, now) if n % 8 == 0 else Reward(id, now + 1, float(n % 3 == 0)))
    return history


def at_of(event: Event) -> int:
    """Return when an event is recorded."""
    return event.until if isinstance(event, Settled) else event.at_us  # type: ignore[union-attr]


class Sizes:
    """The sizes of the tables, in megabytes."""

    def __init__(self, store: Store, dsn: str | None) -> None:
        self._store = store
        self._dsn = dsn

    def now(self) -> tuple[float, float]:
        """Return the sizes of records and requests; of snapshots and base."""
        if self._dsn is not None:
            with psycopg.connect(self._dsn, autocommit=True) as connection:
                rows = [
                    connection.execute(
                        f"SELECT sum(pg_total_relation_size('belated.'||name)) / 1e6 FROM "
                        f"unnest(ARRAY[{names}]) AS one (name)".encode()
                    ).fetchone()
                    for names in ("'record', 'request'", "'piece', 'base_piece'")
                ]
            return tuple(float(row[0]) for row in rows if row)  # type: ignore[return-value]
        assert isinstance(self._store, SQLiteStore)
        # Free pages are counted with the latter: they belonged to older snapshots.
        find = (
            "SELECT sum(pgsize) FROM dbstat WHERE name IN ('record', 'record_by_mark', 'request')"
        )
        with self._store.journal("offers") as journal:
            (size,) = journal._read(lambda connection: connection.execute(find).fetchone())
        records = size / 1e6
        return records, self._store.path.stat().st_size / 1e6 - records


@contextmanager
def opened(kind: str) -> Iterator[tuple[Store, str | None]]:
    """Create a store; yield it with the address of its server, if it has one."""
    if kind == "sqlite":
        with tempfile.TemporaryDirectory() as folder:
            yield open_store(f"sqlite:///{folder}/offers.db"), None
        return
    server = PostgresServer()
    try:
        store = open_store(server.dsn)
        store.create_tables()
        yield store, server.dsn
    finally:
        server.stop()


def trim_once(address: str, before: int) -> None:
    """Trim as the command does, but by the time of these events."""
    with open_store(address).journal("offers") as journal:
        journal._clock = lambda: before + KEPT * DAY  # type: ignore[attr-defined]
        snapshot = open_store(address).describe()[0].snapshots[0]
        fold = empty()
        last = [last_to_drop(journal, 0, before, snapshot.position, fold.tuning.link)]
        for base in make_bases(journal, fold, last):
            trim(journal, base, last[0], 0, reason="", actor="")
        while journal.drop(0, DROPPED):
            time.sleep(PAUSE)


class Times:
    """The durations of calls, in milliseconds."""

    def __init__(self) -> None:
        self.appends: list[float] = []
        self.reads: list[float] = []

    def told(self) -> str:
        """Format the figures."""
        p50, p99 = np.quantile(self.appends, [0.5, 0.99])
        return (
            f"appends p50 {p50:.2f} ms, p99 {p99:.2f} ms, longest {max(self.appends):.1f} ms; "
            f"pages read in {statistics.median(self.reads):.1f} ms ({len(self.appends):,} appends)"
        )


def run(kind: str, total: int) -> None:
    """Fill, trim, and print."""
    rng = np.random.default_rng(1)
    alone, beside = Times(), Times()
    with opened(kind) as (store, dsn):
        address = dsn or f"sqlite:///{store.path}"  # type: ignore[attr-defined]
        sizes, count, began = Sizes(store, dsn), 0, time.monotonic()
        with store.journal("offers") as journal:
            journal.identify({"family": "Bernoulli()", "dim": str(DIM), "features": ""})
            learner = empty()
            for number in range(ROUNDS):
                goal = total * (number + 1) // ROUNDS
                half = count + (goal - count) // 2
                count = fill(journal, count, half, total, rng, alone)
                learner.catch_up(journal)
                learner.save(journal)
                before = START + half * DAYS * DAY // total - KEPT * DAY
                trimming = subprocess.Popen(
                    [sys.executable, __file__, "--trim", address, "--before", str(before)]
                )
                try:
                    count = fill(journal, count, goal, total, rng, beside, trimming)
                    if trimming.wait(3_600):
                        raise RuntimeError("the trim failed")
                finally:
                    trimming.kill()
                if (number + 1) % (ROUNDS // 10) == 0:
                    learner.catch_up(journal)
                    records, other_sizes = sizes.now()
                    remaining = (time.monotonic() - began) * (ROUNDS - number - 1) / (number + 1)
                    stored = count - journal.start(0).position
                    print(
                        f"{count:>11,} events, {stored:>9,} kept: records {records:8.1f} MB, "
                        f"snapshots and base {other_sizes:7.1f} MB; {remaining:.0f} s left",
                        flush=True,
                    )
            learner.catch_up(journal)
            refolded = empty()
            refolded.begin(journal)
            refolded.catch_up(journal)
            same = refolded.digest == learner.digest and refolded.version == learner.version
    print(f"{kind}, {total:,} events; base and tail come to {'the same' if same else 'ANOTHER'}")
    print(f"alone:       {alone.told()}")
    print(f"beside trim: {beside.told()}")
    for name, during, base in (
        ("appends", beside.appends, alone.appends),
        ("pages read", beside.reads, alone.reads),
    ):
        print(f"{name}: {statistics.median(during) / statistics.median(base):.2f}x in the median")


def fill(
    journal: Journal,
    done: int,
    goal: int,
    total: int,
    rng: np.random.Generator,
    times: Times,
    trimming: subprocess.Popen[bytes] | None = None,
) -> int:
    """Append events up to a number; when measuring during a trim, stop when the trim ends."""
    while done < goal:
        batch = events(done, min(BATCH, goal - done), total, rng)
        stamps = [at_of(event) for event in batch]
        start = time.perf_counter()
        journal.append(batch, recorded=stamps)
        if trimming is None or trimming.poll() is None:
            times.appends.append(1e3 * (time.perf_counter() - start))
        done += len(batch)
        if done // BATCH % 20 == 0 and journal.end(0) - journal.start(0).position > PAGE:
            start = time.perf_counter()
            journal.read(0, journal.end(0) - PAGE, PAGE)
            if trimming is None or trimming.poll() is None:
                times.reads.append(1e3 * (time.perf_counter() - start))
    return done


def main() -> None:
    """Run the benchmark, or one trim."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--events", type=int, default=10_000_000)
    parser.add_argument("--store", choices=("sqlite", "postgresql"), default="sqlite")
    parser.add_argument("--trim", help=argparse.SUPPRESS)
    parser.add_argument("--before", type=int, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.trim:
        trim_once(options.trim, options.before)
    else:
        run(options.store, options.events)


if __name__ == "__main__":
    main()
