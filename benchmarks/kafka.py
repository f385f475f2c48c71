"""Cost of the Kafka journal compared with a bare producer, and of partitions for the brokers.

Produce: ``KafkaJournal.append`` of commits of decisions with rows of 50, each commit in one
partition, by --threads threads; compared with a bare producer that sends each event, already
encoded, as a separate message and waits at the end. Both with acks=all and idempotence, on 16
partitions. For each: events per second, in % of bare; CPU of this process and of all brokers, in µs
per event.

Partitions: CPU of all brokers per event for commits of 64: decisions of one slot, which are one
record, and rewards of any slot, which are one record per partition that they fall into.

Waiting: 128 callers on an event loop; each sends an event, waits until it is acknowledged, and
repeats: through ``GroupCommit``, as in the service, and bare, with a message per event, with the
client's default linger of 5 ms and without it.

Starts three brokers and a database. Rounds alternate; the figures are medians, with the range in
brackets.

Run: python benchmarks/kafka.py [--rounds 3] [--events 40000] [--seconds 4] [--threads 4]
     [--parts produce partitions waiting]
"""

from __future__ import annotations

import os

os.environ["OPENBLAS_NUM_THREADS"] = "1"

import argparse
import asyncio
import statistics
import sys
import threading
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from urllib.parse import quote

import numpy as np
from confluent_kafka import Producer

sys.path.insert(0, str(Path(__file__).parents[1]))

from belated.core.events import Decision, Event, Reward, encode
from belated.core.ids import new_id
from belated.journals import KafkaJournal, Store, open_store
from belated.service.runtime import ThreadRuntime
from belated.service.serving.group_commit import GroupCommit, resolve
from tests.integration.kafka_server import KafkaCluster
from tests.integration.postgres_server import database

ROW = np.linspace(0, 1, 50, dtype=np.float32)
SIZES = (64, 100, 500, 1_000)
PARTITIONS = (1, 4, 16, 64, 256)
CALLERS = 128
GOAL = 90


def decision(slot: int) -> Decision:
    at = time.time_ns() // 1000
    return Decision(new_id(at, slot), at, 0, 0, ROW, 0.5, 1.0, 7)


def reward() -> Reward:
    at = time.time_ns() // 1000
    return Reward(new_id(at), at, 1.0)


class Bench:
    """The brokers and the database, and the cost of a run."""

    def __init__(self, cluster: KafkaCluster, dsn: str) -> None:
        self._cluster = cluster
        self._dsn = dsn

    def store(self) -> Store:
        return open_store(f"kafka://{self._cluster.address}?shelf={quote(self._dsn, safe='')}")

    def journal(self, partitions: int) -> KafkaJournal:
        name = f"{partitions} partitions"
        return KafkaJournal(
            self._cluster.address, shelf=self._dsn, bandit=name, partitions=partitions, wait=60
        )

    def producer(self, **more: object) -> Producer:
        settings = {
            "bootstrap.servers": self._cluster.address,
            "acks": "all",
            "enable.idempotence": True,
            "queue.buffering.max.messages": 1_000_000,
        }
        return Producer({**settings, **{k.replace("_", "."): v for k, v in more.items()}})

    def brokers_cpu(self) -> float:
        """Seconds of CPU that all brokers have used."""
        ticks = 0
        for pid in self._cluster.pids:
            fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
            ticks += int(fields[11]) + int(fields[12])
        return ticks / os.sysconf("SC_CLK_TCK")

    def cost(self, run: Callable[[], int]) -> tuple[float, float, float]:
        """Return events per second, and µs of CPU per event: of this process, of the brokers."""
        brokers, client, start = self.brokers_cpu(), time.process_time(), time.perf_counter()
        events = run()
        seconds = time.perf_counter() - start
        client, brokers = time.process_time() - client, self.brokers_cpu() - brokers
        return events / seconds, 1e6 * client / events, 1e6 * brokers / events


def commit_all(journal: KafkaJournal, commits: Sequence[Sequence[Event]], threads: int) -> int:
    """Append all commits with this many threads; return the number of events."""
    remaining = iter(commits)
    lock = threading.Lock()

    def work() -> None:
        while True:
            with lock:
                events = next(remaining, None)
            if events is None:
                return
            journal.append(events)

    workers = [threading.Thread(target=work) for _ in range(threads)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    return sum(map(len, commits))


def send_bare(producer: Producer, topic: str, data: Sequence[tuple[int, bytes]]) -> int:
    """Send each event as a separate message, and wait for all."""
    failed: list[object] = []

    def told(error: object, message: object) -> None:
        if error is not None:
            failed.append(error)

    for partition, value in data:
        producer.produce(topic, value, partition=partition, on_delivery=told)
        producer.poll(0)
    assert producer.flush(120) == 0
    assert not failed, failed[0]
    return len(data)


def produce(bench: Bench, rounds: int, events: int, threads: int) -> None:
    """Compare commits of several sizes with single messages."""
    by_way: dict[str, list[tuple[float, float, float]]] = {}
    with bench.journal(16) as journal:
        producer = bench.producer()
        topic = journal._topic
        assert topic is not None
        for number in range(rounds + 1):  # the first one warms up
            data = [(n % 16, encode(decision(n % 16))) for n in range(events)]
            costs = {"bare": bench.cost(lambda: send_bare(producer, topic, data))}  # noqa: B023
            for size in SIZES:
                commits = [
                    [decision(n % 16) for _ in range(size)] for n in range(max(8, events // size))
                ]
                run = bench.cost(lambda: commit_all(journal, commits, threads))  # noqa: B023
                costs[f"commits of {size}"] = run
            for way, cost in costs.items():
                if number:
                    by_way.setdefault(way, []).append(cost)
    print(f"\nproduce, {threads} threads, {rounds} rounds")
    print(f"{'':22}     events/s      in % of bare     µs here  µs brokers")
    for way, costs_of in by_way.items():
        shares = [
            100 * cost[0] / bare[0] for cost, bare in zip(costs_of, by_way["bare"], strict=True)
        ]
        rate, here, brokers = (statistics.median(values) for values in zip(*costs_of, strict=True))
        verdict = ""
        if way not in ("bare", "commits of 64"):
            verdict = "  ok" if statistics.median(shares) >= GOAL else f"  below {GOAL} %"
        print(f"{way:22} {rate:12,.0f}  {spread(shares):>16}  {here:8.2f}  {brokers:8.2f}{verdict}")


def partitions(bench: Bench, rounds: int, events: int) -> None:
    """Measure the cost of a commit of 64 for the brokers, by the number of partitions."""
    costs: dict[tuple[str, int], list[tuple[float, float, float]]] = {}
    journals = {count: bench.journal(count) for count in PARTITIONS}
    for number in range(rounds + 1):
        for count, journal in journals.items():
            commits = max(8, events // 64 // (1 if number else 4))
            one_slot = [[decision(n % count) for _ in range(64)] for n in range(commits)]
            # Scattered commits cost more with more partitions; fewer of them are enough.
            any_slot = [[reward() for _ in range(64)] for _ in range(max(8, commits // 4))]
            for kind, batches in (("decisions", one_slot), ("rewards", any_slot)):
                cost = bench.cost(lambda: commit_all(journal, batches, 1))  # noqa: B023
                if number:
                    costs.setdefault((kind, count), []).append(cost)
    for journal in journals.values():
        journal.close()
    print(f"\nbrokers' µs an event, commits of 64, {rounds} rounds")
    print(f"{'partitions':12} {'decisions':>22} {'rewards':>22}")
    for count in PARTITIONS:
        cells = [
            spread([cost[2] for cost in costs[kind, count]]) for kind in ("decisions", "rewards")
        ]
        print(f"{count:<12} {cells[0]:>22} {cells[1]:>22}")


def waiting(bench: Bench, rounds: int, seconds: float) -> None:
    """Measure the latency of 128 callers."""
    results: dict[str, list[tuple[float, float, float]]] = {}
    with bench.journal(16) as opened:
        topic = opened._topic
    assert topic is not None
    for number in range(rounds + 1):
        for way in ("journal", "bare, linger 5 ms", "bare, linger 0"):
            duration = seconds if number else 1.0
            if way == "journal":
                times = asyncio.run(wait_for_journal(bench.store(), duration))
            else:
                linger = 5 if way.endswith("5 ms") else 0
                times = asyncio.run(
                    wait_for_bare(bench.producer(linger_ms=linger), topic, duration)
                )
            if number:
                times.sort()
                middle, last = times[len(times) // 2], times[int(0.99 * len(times))]
                results.setdefault(way, []).append(
                    (1e3 * middle, 1e3 * last, len(times) / duration)
                )
    print(f"\n{CALLERS} callers, {rounds} rounds      p50 ms            p99 ms      events/s")
    for way, values in results.items():
        middles, lasts, rates = zip(*values, strict=True)
        row = (
            f"{way:20} {spread(middles):>18} {spread(lasts):>18} {statistics.median(rates):10,.0f}"
        )
        print(row)


async def wait_for_journal(store: Store, seconds: float) -> list[float]:
    loop = asyncio.get_running_loop()
    session = store.session(wait=60)
    journal = session.journal("16 partitions", partitions=16)
    commits = GroupCommit(session, loop, ThreadRuntime())
    times: list[float] = []
    end = time.perf_counter() + seconds

    async def call() -> None:
        while (start := time.perf_counter()) < end:
            future: asyncio.Future[Sequence[int]] = loop.create_future()
            commits.append(journal, [decision(5)], lambda count: None, partial(resolve, future))
            await future
            times.append(time.perf_counter() - start)

    await asyncio.gather(*(call() for _ in range(CALLERS)))
    await loop.run_in_executor(None, commits.close)
    session.close()
    return times


async def wait_for_bare(producer: Producer, topic: str, seconds: float) -> list[float]:
    loop = asyncio.get_running_loop()
    times: list[float] = []
    end = time.perf_counter() + seconds
    stopped = threading.Event()

    def poll() -> None:
        while not stopped.is_set():
            producer.poll(0.05)

    async def call() -> None:
        while (start := time.perf_counter()) < end:
            future: asyncio.Future[object] = loop.create_future()

            def told(error: object, message: object, done: asyncio.Future[object] = future) -> None:
                assert error is None, error
                loop.call_soon_threadsafe(done.set_result, None)

            producer.produce(topic, encode(decision(5)), partition=5, on_delivery=told)
            await future
            times.append(time.perf_counter() - start)

    poller = threading.Thread(target=poll)
    poller.start()
    await asyncio.gather(*(call() for _ in range(CALLERS)))
    stopped.set()
    poller.join()
    return times


def spread(values: Sequence[float]) -> str:
    """The median, and the range."""
    return f"{statistics.median(values):.1f} [{min(values):.1f}, {max(values):.1f}]"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--events", type=int, default=40_000)
    parser.add_argument("--seconds", type=float, default=4.0)
    parser.add_argument("--threads", type=int, default=4)
    parts = ("produce", "partitions", "waiting")
    parser.add_argument("--parts", nargs="+", choices=parts, default=parts)
    chosen = parser.parse_args()
    cluster = KafkaCluster(3, compiled=True)
    try:
        with database() as dsn:
            bench = Bench(cluster, dsn)
            if "produce" in chosen.parts:
                produce(bench, chosen.rounds, chosen.events, chosen.threads)
            if "waiting" in chosen.parts:
                waiting(bench, chosen.rounds, chosen.seconds)
            if "partitions" in chosen.parts:
                partitions(bench, chosen.rounds, chosen.events // 4)
    finally:
        cluster.stop()


if __name__ == "__main__":
    main()
