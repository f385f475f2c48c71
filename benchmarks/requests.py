"""Cost of storing the requests of decisions.

(a) Wall time of appends of 128 decisions with and without requests, K = 10 rows of d = 20, on
    SQLite and PostgreSQL: alternating pairs, the median ratio with quartiles.
(b) CPU time of a learner that reads and folds the same decisions, with and without requests:
    likewise.
(c) Bytes per decision in the two stores, with and without, at d = 20 and 50.

Starts a server with fsync on, unless --dsn names one (whose schema `belated` is used).

Run: python benchmarks/requests.py [--pairs 40] [--decisions 20000] [--dsn ...]
"""

from __future__ import annotations

import argparse
import itertools
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import psycopg
from postgres import served

from belated import Bernoulli, DelayedUCB, Explicit
from belated.decider import Decider, LoadedModel, Made, ParsedRequest
from belated.fold.fold import Fold
from belated.journals import Journal, PostgresJournal, SQLiteJournal

K, BATCH = 10, 128
NAMES = [f"offer {n}" for n in range(K)]
#: Opens the journal of a new bandit.
Open = Callable[[], Journal]
#: The above, and a function that returns the bytes of everything it has opened.
Store = tuple[Open, Callable[[], int]]


def decisions(dim: int, keep: float, rng: np.random.Generator) -> Made:
    """Return a batch of decisions, made as in the service."""
    policy = DelayedUCB(dim, Bernoulli(), floor=0.1)
    decider = Decider(policy, LoadedModel(policy), partitions=1, keep_requests=keep)
    table = rng.normal(size=(BATCH * K, dim)).astype(np.float32)
    requests = [ParsedRequest(K, NAMES)] * BATCH
    return decider.choose(requests, table, now=time.time_ns() // 1000, rng=rng, hold=False)


def append_ratios(open_journal: Open, pairs: int, dim: int = 20) -> list[float]:
    """Return the ratios of times with and without requests, for pairs of appends to two bandits."""
    rng = np.random.default_rng(1)
    ratios = []
    with open_journal() as bare, open_journal() as keeping:
        for n in range(pairs + 5):
            seconds = {}
            for keep in (0.0, 1.0) if n % 2 else (1.0, 0.0):
                commit = decisions(dim, keep, rng)
                journal = keeping if keep else bare
                start = time.perf_counter()
                journal.append(commit.decisions, requests=commit.requests)
                seconds[keep] = time.perf_counter() - start
            ratios.append(seconds[1.0] / seconds[0.0])
    return ratios[5:]  # the first ones connect and prepare


def reading_ratios(open_journal: Open, count: int, pairs: int, dim: int = 20) -> list[float]:
    """Return the ratios of a learner's CPU time, on journals with and without requests."""
    rng = np.random.default_rng(2)
    with open_journal() as bare, open_journal() as keeping:
        for _ in range(count // BATCH):
            commit = decisions(dim, 1.0, rng)
            bare.append(commit.decisions)
            keeping.append(commit.decisions, requests=commit.requests)

        def read(journal: Journal) -> float:
            fold = Fold(DelayedUCB(dim, Bernoulli(), floor=0.1), Explicit(), partitions=1)
            start = time.process_time()
            fold.catch_up(journal)
            return time.process_time() - start

        read(bare), read(keeping)
        ratios = []
        for n in range(pairs):
            first, second = (bare, keeping) if n % 2 else (keeping, bare)
            seconds = {id(first): read(first), id(second): read(second)}
            ratios.append(seconds[id(keeping)] / seconds[id(bare)])
        return ratios


def bytes_each(open_journal: Open, size: Callable[[], int], count: int, dim: int) -> list[float]:
    """Return the bytes per decision without and with its request."""
    sizes = []
    for keep in (0.0, 1.0):
        rng = np.random.default_rng(3)
        before = size()
        with open_journal() as journal:
            for _ in range(count // BATCH):
                commit = decisions(dim, keep, rng)
                journal.append(commit.decisions, requests=commit.requests)
        sizes.append((size() - before) / (count // BATCH * BATCH))
    return sizes


def sqlite(folder: Path) -> Store:
    """Return a store of files, one per bandit."""
    numbers = itertools.count()

    def open_journal() -> Journal:
        return SQLiteJournal(folder / f"{next(numbers)}.db", bandit="offers")

    return open_journal, lambda: sum(file.stat().st_size for file in folder.iterdir())


def postgres(dsn: str) -> Store:
    """Return a store of bandits in one database, and the size of its tables."""
    numbers = itertools.count()
    run = time.time_ns()
    connection = psycopg.connect(dsn, autocommit=True)

    def open_journal() -> Journal:
        return PostgresJournal(dsn, bandit=f"requests {run} {next(numbers)}")

    def size() -> int:
        row = connection.execute(
            "SELECT pg_total_relation_size('belated.record')"
            " + pg_total_relation_size('belated.request')"
        ).fetchone()
        assert row is not None
        return int(row[0])

    return open_journal, size


def told(ratios: list[float]) -> str:
    """Format the median with quartiles."""
    low, middle, high = statistics.quantiles(ratios, n=4)
    return f"{middle:.2f} [{low:.2f}, {high:.2f}]"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--pairs", type=int, default=40)
    parser.add_argument("--decisions", type=int, default=20_000)
    parser.add_argument("--dsn")
    options = parser.parse_args()
    with served(options.dsn) as dsn, tempfile.TemporaryDirectory() as folder:
        PostgresJournal.create_tables(dsn)
        stores = {"SQLite": sqlite(Path(folder)), "PostgreSQL": postgres(dsn)}
        for name, (open_journal, size) in stores.items():
            ratios = append_ratios(open_journal, options.pairs)
            print(f"{name}: append of {BATCH}, with over without: {told(ratios)}")
            ratios = reading_ratios(open_journal, options.decisions, max(4, options.pairs // 4))
            print(f"{name}: a learner's reading, with over without: {told(ratios)}")
            for dim in (20, 50):
                bare, keeping = bytes_each(open_journal, size, options.decisions, dim)
                print(f"{name}: bytes a decision, K = {K}, d = {dim}: {bare:.0f}, {keeping:.0f}")


if __name__ == "__main__":
    main()
