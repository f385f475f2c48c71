"""How much two learners fold compared with one, on a journal in PostgreSQL that they share.

The bandit learns from conversions only, as README recommends. Each learner is a separate process,
which folds its partitions from their first record. The result is the CPU time of the busiest one:
with a core per learner, that is the elapsed time. Wall-clock time is printed as well; it is
meaningful only if the cores were idle. The size of the sums that a learner sends for a partition
does not depend on the number of records; they are sent at most ten times per second. Rounds with
one and two learners alternate. The assignment of partitions is fixed, instead of made by Kafka's
brokers: the benchmark measures folding, and a database is quicker to set up.
``python benchmarks/workers.py [--events N] [--rounds N]`` starts a PostgreSQL of its own.
"""

from __future__ import annotations

import argparse
import multiprocessing
import sys
import time
from pathlib import Path
from statistics import median
from typing import NamedTuple

import numpy as np

from belated import Bernoulli, ConversionsOnly, DelayedUCB
from belated.core.events import Decision, Event, Reward
from belated.core.ids import new_id
from belated.journals import PostgresJournal, open_store
from belated.service.serving.definition import Definition

sys.path.append(str(Path(__file__).parents[1]))

from tests.brokers import assign_partitions
from tests.integration.postgres_server import database
from tests.learners import shared_learner

DIM, PARTITIONS = 20, 16
DEFINITION = Definition(
    "offers",
    DelayedUCB(DIM, Bernoulli()),
    ConversionsOnly("7d"),
    partitions=PARTITIONS,
    learners="many",
)


class Folded(NamedTuple):
    """A learner's records, seconds of CPU and wall-clock time, and bytes of a partition's sums."""

    records: int
    cpu: float
    wall: float
    size: int


def fill(dsn: str, count: int) -> None:
    """Write decisions, and rewards of half of them."""
    rng = np.random.default_rng(0)
    with PostgresJournal(dsn, bandit="offers", partitions=PARTITIONS) as journal:
        for start in range(0, count, 2_000):
            events: list[Event] = []
            for n in range(start, min(count, start + 2_000), 3):
                for _ in range(2):
                    x = (rng.normal(size=DIM) / 4).astype(np.float32)
                    id = new_id(1_700_000_000_000_000 + n)
                    events.append(Decision(id, n, "", 0, x, 0.5, 0.5, 0))
                events.append(Reward(events[-1].id, n, float(rng.random() < 0.5)))  # type: ignore[union-attr]
            journal.append(events)


def fold(dsn: str, learners: int, number: int, barrier: object, answers: object) -> None:
    """Fold this learner's share, in a separate process."""
    store = open_store(dsn)
    assign_partitions(store, range(number, PARTITIONS, learners), PARTITIONS)
    learner = shared_learner(DEFINITION, store, lease=600.0)
    worker = learner.worker
    barrier.wait()  # type: ignore[attr-defined]
    cpu, wall = time.process_time(), time.perf_counter()
    while worker.step():
        pass
    result = Folded(
        sum(partition.fold.version for partition in worker.owned.values()),
        time.process_time() - cpu,
        time.perf_counter() - wall,
        max(
            len(partition.fold.sums(partition.epoch).write()) for partition in worker.owned.values()
        ),
    )
    answers.put(result)  # type: ignore[attr-defined]
    barrier.wait()  # type: ignore[attr-defined]
    worker.membership.close()  # nothing is saved: the next round folds from the first record


def measure(dsn: str, learners: int) -> list[Folded]:
    """Run one round."""
    context = multiprocessing.get_context("spawn")
    barrier, answers = context.Barrier(learners), context.Queue()
    processes = [
        context.Process(target=fold, args=(dsn, learners, number, barrier, answers))
        for number in range(learners)
    ]
    for process in processes:
        process.start()
    results = [answers.get() for _ in processes]
    for process in processes:
        process.join()
    return results


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--events", type=int, default=300_000)
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    with database() as dsn:
        fill(dsn, options.events)
        gains: list[float] = []
        for n in range(options.rounds):
            rates: dict[int, float] = {}
            for learners in (1, 2):
                results = measure(dsn, learners)
                records, cpu = (
                    sum(result.records for result in results),
                    max(result.cpu for result in results),
                )
                rates[learners] = records / cpu
                wall = max(result.wall for result in results)
                print(
                    f"round {n + 1}, {learners} learners: {records:,} records, "
                    f"{cpu:.2f} s of the busiest's processor, {wall:.2f} s by the clock, "
                    f"{rates[learners] / learners:,.0f} records per second and core, "
                    f"{results[0].size:,} bytes of sums per partition",
                    flush=True,
                )
            gains.append(rates[2] / rates[1])
        low, high = min(gains), max(gains)
        print(f"two learners fold {median(gains):.2f}x one ({low:.2f} to {high:.2f})")


if __name__ == "__main__":
    main()
