"""CPU time of decide + observe through a whole ``Bandit``, as a ratio to the bare engine.

In memory, the engine is BLAS: the same mathematics by hand (``kernels.Bare``). A round chooses one
of K rows with its propensity, makes an id and an event, appends and folds it, and responds; then
the reward: event, append, fold, learn, receipt. There are no fits (``Online``), because the
reference has none: they are in benchmarks/fits.py. Rewards arrive at once, and 2,000 decisions
late. Requests are not stored. Then ``decide_many`` and ``observe_many``, per decision, compared
with ``decide`` and ``observe``.

On disk, the engine is the database: the same bytes inserted and committed by its driver alone, in
wall-clock time, because that is what a caller waits for. PostgreSQL is a local server that syncs.

Run: python benchmarks/rounds.py [--slices 40] [--only memory many sqlite postgres]
"""

from __future__ import annotations

import os

os.environ["OPENBLAS_NUM_THREADS"] = "1"

import argparse
import itertools
import sqlite3
import sys
import tempfile
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
from kernels import Bare, slice_seconds

from belated import Bandit, Bernoulli, DelayedUCB, Explicit
from belated.core.events import Decision, Reward, digest_of, encode
from belated.core.ids import key_of
from belated.core.inputs import Matrix
from belated.journals import Journal, PostgresJournal, SQLiteJournal
from belated.model import kernels
from belated.model.estimators import Online

sys.path.append(str(Path(__file__).parents[1]))

SIZES = ((20, 10), (100, 100))
#: Goals of the ratios to BLAS, without and with compiled kernels.
TARGETS = {(20, 10): (2.4, 1.2), (100, 100): (1.7, 1.15)}
MANY_TARGET, DURABLE_TARGET = 0.5, 1.15
LATE = 2_000
BATCH = 200

Step = Callable[[Matrix, float], None]


def opened(dim: int, using: kernels.Kernels, journal: Journal | None = None) -> Bandit:
    return Bandit(
        policy=DelayedUCB(dim, Bernoulli(), estimator=Online()),
        rewards=Explicit("7d"),
        journal=journal,
        seed=0,
        kernels=using,
        keep_requests=0.0,
    )


def tables_of(dim: int, arms: int) -> Matrix:
    tables = np.random.default_rng(0).normal(size=(8, arms, dim))
    tables /= np.linalg.norm(tables, axis=2, keepdims=True)
    tables.flags.writeable = False
    return tables


def rounds_of(bandit: Bandit, tables: Matrix, late: int = 0) -> Step:
    """Return a step that decides, and rewards the decision made ``late`` steps before."""
    waiting = deque(bandit.decide(rows=tables[n % len(tables)]).id for n in range(late))

    def step(rows: Matrix, y: float) -> None:
        waiting.append(bandit.decide(rows=rows).id)
        bandit.observe(waiting.popleft(), y)

    return step


def measure(variants: dict[str, Step], tables: Matrix, slices: int) -> dict[str, list[float]]:
    """Return CPU µs per round of each variant, in alternating slices."""
    rng = np.random.default_rng(1)
    times: dict[str, list[float]] = {name: [] for name in variants}
    for number in range(slices + 1):
        y = (rng.random(BATCH) < 0.3).astype(float).tolist()
        for name, step in variants.items():
            seconds = slice_seconds(step, tables, y)
            if number:  # the first slice warms
                times[name].append(seconds / BATCH * 1e6)
    return times


def ratio(times: list[float], bare: list[float]) -> str:
    low, middle, high = np.quantile(np.array(times) / np.array(bare), [0.25, 0.5, 0.75])
    return f"{np.median(times):7.1f} µs, {middle:5.2f} [{low:.2f}, {high:.2f}]"


def in_memory(slices: int) -> None:
    print("memory journal, CPU µs a round (median), ratio to bare BLAS with quartiles, goal")
    for dim, arms in SIZES:
        tables = tables_of(dim, arms)
        variants: dict[str, Step] = {"bare": Bare(dim).round}
        for name, using in (("plain", kernels.plain()), ("compiled", kernels.compiled())):
            variants[f"{name}, at once"] = rounds_of(opened(dim, using), tables)
            variants[f"{name}, late"] = rounds_of(opened(dim, using), tables, LATE)
        times = measure(variants, tables, slices)
        bare = times.pop("bare")
        print(f"d={dim}, K={arms}: bare {np.median(bare):.1f}")
        for name, durations in times.items():
            goal = TARGETS[dim, arms][name.startswith("compiled")]
            print(f"  {name:<18} {ratio(durations, bare)}, goal {goal}", flush=True)


def many(slices: int) -> None:
    print(f"{BATCH} at once, CPU µs each, ratio to one by one, goal {MANY_TARGET}")
    for dim, arms in SIZES:
        tables = tables_of(dim, arms)
        requests = [tables[n % len(tables)] for n in range(BATCH)]
        for name, using in (("plain", kernels.plain()), ("compiled", kernels.compiled())):
            single, batched = opened(dim, using), opened(dim, using)
            times: dict[str, list[float]] = {
                key: [] for key in ("decide", "many", "observe", "all")
            }
            for number in range(max(1, slices // 4) + 1):
                spent = []
                start = time.process_time()
                decisions = [single.decide(rows=rows) for rows in requests]
                spent.append(time.process_time() - start)
                start = time.process_time()
                made_at_once = batched.decide_many(rows=requests)
                spent.append(time.process_time() - start)
                start = time.process_time()
                for decision in decisions:
                    single.observe(decision.id, 1.0)
                spent.append(time.process_time() - start)
                start = time.process_time()
                batched.observe_many([(decision.id, 1.0) for decision in made_at_once])
                spent.append(time.process_time() - start)
                if number:
                    for key, seconds in zip(times, spent, strict=True):
                        times[key].append(seconds / BATCH * 1e6)
            print(
                f"  d={dim}, K={arms}, {name}: decide_many {ratio(times['many'], times['decide'])};"
                f" observe_many {ratio(times['all'], times['observe'])}",
                flush=True,
            )


# --- on disk -------------------------------------------------------------------------------------


class BareSQLite:
    """The bytes of each event in a table with the same two indexes, committed one by one."""

    def __init__(self, path: Path) -> None:
        self._db = sqlite3.connect(path, isolation_level=None)
        self._db.execute("PRAGMA journal_mode = WAL")
        self._db.execute("PRAGMA synchronous = FULL")
        self._db.execute(
            "CREATE TABLE record (place INTEGER PRIMARY KEY, recorded INTEGER, mark BLOB UNIQUE,"
            " digest BLOB, event BLOB)"
        )

    def write(self, event: Decision | Reward, data: bytes) -> None:
        mark = key_of(event.id) + type(event).__name__[:1].encode()
        self._db.execute("BEGIN IMMEDIATE")
        self._db.execute(
            "INSERT INTO record (recorded, mark, digest, event) VALUES (?, ?, ?, ?)",
            (time.time_ns() // 1000, mark, digest_of(data), data),
        )
        self._db.execute("COMMIT")


class BarePostgres:
    """The same with psycopg; each statement is prepared and committed separately."""

    def __init__(self, dsn: str) -> None:
        import psycopg

        self._db = psycopg.connect(dsn, autocommit=True, prepare_threshold=0)
        self._db.execute(
            "CREATE TABLE bare (place bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,"
            " recorded bigint, mark bytea UNIQUE, digest bytea, event bytea)"
        )

    def write(self, event: Decision | Reward, data: bytes) -> None:
        mark = key_of(event.id) + type(event).__name__[:1].encode()
        self._db.execute(
            "INSERT INTO bare (recorded, mark, digest, event) VALUES (%s, %s, %s, %s)"
            " RETURNING place",
            (time.time_ns() // 1000, mark, digest_of(data), data),
            binary=True,
        )


def durable(name: str, journal: Journal, bare: BareSQLite | BarePostgres, slices: int) -> None:
    """Alternate rounds of a bandit on a journal, and writes of the same bytes without one."""
    dim, arms, size = 20, 10, 20
    tables = itertools.cycle(tables_of(dim, arms))
    bandit = opened(dim, kernels.compiled(), journal)
    own_times, bare_times = [], []
    for number in range(slices + 1):
        decisions = []
        start = time.perf_counter()
        for _ in range(size):
            decision = bandit.decide(rows=next(tables))
            bandit.observe(decision.id, 1.0)
            decisions.append(decision)
        middle = time.perf_counter()
        for decision in decisions:
            reward = Reward(decision.id, decision.at_us, 1.0)
            bare.write(decision, encode(decision))
            bare.write(reward, encode(reward))
        end = time.perf_counter()
        if number:
            own_times.append((middle - start) / size * 1e6)
            bare_times.append((end - middle) / size * 1e6)
    bandit.close()
    summary = f"bare {np.median(bare_times):7.1f} µs; ours {ratio(own_times, bare_times)}"
    print(f"  {name:<9} {summary}, goal {DURABLE_TARGET}", flush=True)


@contextmanager
def stores(chosen: list[str]) -> Iterator[dict[str, tuple[Journal, BareSQLite | BarePostgres]]]:
    from tests.integration.postgres_server import PostgresServer

    with tempfile.TemporaryDirectory() as folder:
        journals: dict[str, tuple[Journal, BareSQLite | BarePostgres]] = {}
        if "sqlite" in chosen:
            journal = SQLiteJournal(Path(folder, "ours.db"), bandit="b")
            journals["sqlite"] = journal, BareSQLite(Path(folder, "bare.db"))
        if "postgres" not in chosen:
            yield journals
            return
        server = PostgresServer({"fsync": "on"})
        try:
            PostgresJournal.create_tables(server.dsn)
            journals["postgres"] = PostgresJournal(server.dsn, bandit="b"), BarePostgres(server.dsn)
            yield journals
        finally:
            server.stop()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--slices", type=int, default=40)
    every = ["memory", "many", "sqlite", "postgres"]
    parser.add_argument("--only", nargs="*", choices=every, default=every)
    arguments = parser.parse_args()
    if "memory" in arguments.only:
        in_memory(arguments.slices)
    if "many" in arguments.only:
        many(arguments.slices)
    with stores(arguments.only) as journals:
        if journals:
            print("durable rounds, wall-clock µs (median), ratio to INSERT and COMMIT alone, goal")
        for name, (journal, bare) in journals.items():
            durable(name, journal, bare, arguments.slices)


if __name__ == "__main__":
    main()
