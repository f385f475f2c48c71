"""Tens of millions of events through Kafka: the memory of the learners must not grow with them.

Decisions and their rewards go into eight partitions, in commits of 500 decisions and of the rewards
of 500 earlier ones. Decisions are remembered for a few seconds, so the memory of a learner is
bounded by that time and the constant rate. Two learners share the partitions. Every half minute a
line shows how many events were sent and learned, and the memory of each learner. At the end,
everything sent must have been learned exactly once, with sums correct to 1e-9, and the memory in
the last third must not exceed that in the second by more than 5 %.

Starts three brokers, a database and two learners. The brokers store everything: about 200 bytes of
disk per event.

Run: python benchmarks/kafka_soak.py [--events 50000000] [--rate 60000] [--retention 10]
"""

from __future__ import annotations

import os

os.environ["OPENBLAS_NUM_THREADS"] = "1"

import argparse
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from urllib.parse import quote

import numpy as np
from resident_memory import resident

sys.path.insert(0, str(Path(__file__).parents[1]))

from belated.core.events import Decision, Event, Reward
from belated.core.ids import new_id
from belated.fold.partitioned import PartitionSums
from belated.journals import Journal, Store, open_store
from tests.integration.kafka_server import KafkaCluster
from tests.integration.postgres_server import database
from tests.integration.processes import Process, later

DIM, PARTITIONS, LEARNERS, THREADS = 5, 8, 2, 3
#: Decisions per commit, and the number of commits of its thread after which their rewards follow.
SIZE, LATE = 500, 4 * PARTITIONS
#: Seconds between two lines.
EVERY = 30.0
#: The rows of decisions, in rotation, so that the sums of any number of them are known.
ROWS = np.random.default_rng(0).normal(size=(SIZE, DIM)).astype(np.float32)
VALUES = np.arange(SIZE) % 2.0


class Sender:
    """Appends commits in threads, at a rate, and counts the events.

    Args:
        journal: to append to.
        events: in all.
        rate: of events a second.
    """

    def __init__(self, journal: Journal, events: int, rate: float) -> None:
        self._journal = journal
        self._pause = 2 * SIZE * THREADS / rate
        self._share = events // (2 * SIZE * THREADS)
        self._sent = [0] * THREADS
        self.decisions = SIZE * self._share * THREADS

    @property
    def sent(self) -> int:
        """Events so far."""
        return sum(self._sent)

    def run(self, thread: int) -> None:
        """Append the share of a thread, the rewards of the last decisions included."""
        late: dict[int, list[str]] = {}
        start = time.monotonic()
        for number in range(self._share + LATE):
            time.sleep(max(0.0, start + number * self._pause - time.monotonic()))
            at = time.time_ns() // 1000
            events: list[Event] = []
            if number < self._share:
                ids = late[number] = [new_id(at, number % PARTITIONS) for _ in range(SIZE)]
                events += [
                    Decision(id, at, 0, 0, x, 0.5, 1.0, 0) for id, x in zip(ids, ROWS, strict=True)
                ]
            ids = late.pop(number - LATE, [])
            events += [Reward(id, at, y) for id, y in zip(ids, VALUES.tolist(), strict=False)]
            self._journal.append(events)
            self._sent[thread] += len(events)


class Learned:
    """The sums that the learners have published."""

    def __init__(self, store: Store) -> None:
        with closing(store.coordination("offers")) as coordination:
            messages = coordination.sent(PARTITIONS, {}).values()
        sums = [PartitionSums.read(data) for _, data in messages]
        self.decisions = sum(part.decisions for part in sums)
        self.moments = [part.arrived().moments for part in sums]
        self.events = self.decisions + sum(moments.n for moments in self.moments)

    def check(self, decisions: int) -> None:
        """Check that each decision and its reward count once."""
        assert self.decisions == decisions
        assert sum(moments.n for moments in self.moments) == decisions
        rows, times = ROWS.astype(np.float64), decisions / SIZE
        gram = sum(moments.gram for moments in self.moments)
        cross = sum(moments.cross for moments in self.moments)
        np.testing.assert_allclose(gram, times * rows.T @ rows, rtol=1e-9, atol=1e-9 * decisions)
        np.testing.assert_allclose(cross, times * VALUES @ rows, rtol=1e-9, atol=1e-9 * decisions)


def settings(address: str, retention: float) -> str:
    """Return the configuration of the learners."""
    return "\n".join((
        "[store]", f'address = "{address}"',
        "[server]", "learn = false", 'lease_ttl = "6s"',
        "[bandits.offers]", f'policy = "DelayedUCB(dim={DIM}, family=Bernoulli())"',
        'rewards = "Explicit()"', f'retention = "{retention:g}s"',
        f"partitions = {PARTITIONS}", 'learners = "many"',
    ))  # fmt: skip


@contextmanager
def learners(folder: Path) -> Iterator[list[Process]]:
    """Start learners, which share all partitions."""
    workers = [
        Process(folder / f"log {n}", "learn", str(folder / "belated.toml")) for n in range(LEARNERS)
    ]
    try:
        later(lambda: all(worker.mentions("this worker owns a partition") for worker in workers))
        yield workers
    finally:
        for worker in workers:
            worker.kill()


def soak(store: Store, sender: Sender, processes: Sequence[Process]) -> list[float]:
    """Send all events and wait until they are learned; return the total memory by line, in MB."""
    print("| s | million events sent | learned | MB of each learner | MB a partition |")
    print("|--:|--:|--:|---|--:|")
    totals: list[float] = []
    start = time.monotonic()
    with ThreadPoolExecutor(THREADS) as pool:
        sending = [pool.submit(sender.run, thread) for thread in range(THREADS)]
        while (learned := Learned(store)).events < 2 * sender.decisions:
            for task in sending:
                if task.done():
                    task.result()  # raises what ended it
            sizes = [resident(process.pid) / 1e6 for process in processes]
            totals.append(sum(sizes))
            print(
                f"| {time.monotonic() - start:.0f} | {sender.sent / 1e6:.1f} "
                f"| {learned.events / 1e6:.1f} | {', '.join(f'{size:.0f}' for size in sizes)} "
                f"| {sum(sizes) / PARTITIONS:.1f} |",
                flush=True,
            )
            time.sleep(EVERY)
    learned.check(sender.decisions)
    seconds = time.monotonic() - start
    print(f"\n{learned.events:,} events, each once, in {seconds:.0f} s")
    return totals


def main() -> None:
    """Print the table, and check the result."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--events", type=int, default=50_000_000)
    parser.add_argument("--rate", type=float, default=60_000, help="events a second")
    parser.add_argument("--retention", type=float, default=10.0, help="seconds")
    arguments = parser.parse_args()
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        dsn = stack.enter_context(database())
        open_store(dsn).create_tables()
        kafka = KafkaCluster(3, compiled=True)
        stack.callback(kafka.stop)
        options = f"shelf={quote(dsn, safe='')}&copies=3&snapshots={quote(str(folder), safe='')}"
        address = f"kafka://{kafka.address}?{options}"
        store = open_store(address)
        journal = stack.enter_context(store.journal("offers", partitions=PARTITIONS, wait=60.0))
        (folder / "belated.toml").write_text(settings(address, arguments.retention))
        processes = stack.enter_context(learners(folder))
        sizes = soak(store, Sender(journal, arguments.events, arguments.rate), processes)
    second, last = (max(sizes[n * len(sizes) // 3 : (n + 1) * len(sizes) // 3]) for n in (1, 2))
    print(f"most in the second third {second:.0f} MB, in the last {last:.0f} MB")
    assert last <= 1.05 * second, "memory grows with the events"


if __name__ == "__main__":
    main()
