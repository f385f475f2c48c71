"""Brokers, a database, learners that share a bandit and a generator, in separate processes."""

from __future__ import annotations

import json
import random
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import NamedTuple
from urllib.parse import quote

import numpy as np

from belated import Bernoulli, ConversionsOnly, DelayedUCB, Explicit
from belated.core.events import Decision
from belated.core.ids import key_of, partition_of
from belated.core.rewards import Rewards
from belated.exceptions import JournalError
from belated.fold.partitioned import PartitionSums
from belated.fold.partitioned.aged import AgedSums
from belated.fold.published import PublishedModel
from belated.journals import KafkaJournal, KafkaStore, PostgresJournal, open_store
from belated.journals.coordination import Claim
from belated.service import Definition
from tests.faults.gates import Between, between
from tests.faults.kafka_generator import DIM, Truth, read_acknowledged, truth
from tests.faults.standstill import Standstill
from tests.integration.kafka_journals import read_outcomes
from tests.integration.kafka_server import KafkaCluster
from tests.integration.postgres_server import PostgresServer
from tests.integration.processes import Process, later, pid_of
from tests.learners import shared_learner
from tests.outcomes import Consumer, check_equal

PARTITIONS = 8
POLICY = DelayedUCB(DIM, Bernoulli())
#: What a missing reward means, by its expression in the configuration.
REWARDS: dict[str, Rewards] = {
    "Explicit()": Explicit(),
    'ConversionsOnly("30d")': ConversionsOnly("30d"),
}


class Seen(NamedTuple):
    """A published model, and when it was seen."""

    at: float
    positions: list[int]


class Watch:
    """Polls for models, as a decider does."""

    def __init__(self, store: KafkaStore) -> None:
        self.seen: list[Seen] = []
        self._store = store
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name="watch")
        self._thread.start()

    def close(self) -> None:
        """Stop polling."""
        self._stopped.set()
        self._thread.join()

    def _run(self) -> None:
        number = 0
        with closing(self._store.coordination("offers", wait=1.0)) as coordination:
            while not self._stopped.wait(0.01):
                try:
                    publication = coordination.published(number)
                except JournalError:
                    continue
                if publication is not None:
                    number, data = publication
                    self.seen.append(Seen(time.monotonic(), PublishedModel.read(data).positions))

    def learned(self, partition: int, position: int) -> float:
        """Return when a model with a record was first seen; infinite if none was."""
        return next((s.at for s in self.seen if s.positions[partition] >= position), np.inf)


class _Everything:
    """The claim of a worker that wrongly believes it owns all partitions."""

    def claim(self) -> Claim:
        return Claim(tuple(range(PARTITIONS)))

    def give_back(self, partitions: object) -> None:
        """Do nothing."""

    def doubt(self, partitions: object) -> None:
        """Do nothing."""

    def close(self) -> None:
        """Do nothing."""


def _check_conversions(sums: list[PartitionSums], wanted: Truth) -> None:
    """Check that each decision counts once in its partition's sums, and each reward once."""
    for partition_sums in sums:
        rows = np.array([
            row
            for id, row in wanted.rows.items()
            if partition_of(key_of(id), PARTITIONS) == partition_sums.partition
        ], dtype=np.float64)  # fmt: skip
        slope = 1.0 / (2.0 + 2.0 * np.cosh(rows @ partition_sums.center))
        moments = AgedSums.read(partition_sums.rows, POLICY.shape).whole
        np.testing.assert_allclose(moments, (rows.T * slope) @ rows, rtol=1e-6)
    states = Counter[str]()
    for partition_sums in sums:
        states.update(partition_sums.counts)
    assert states["rewarded"] == wanted.rewarded


class KafkaTown:
    """A running system; created once all partitions are folded.

    Args:
        folder: for the files.
        brokers: number of brokers.
        session: seconds after which a silent learner is replaced.
        full: whether links are cut by the real Toxiproxy.
        rewards: a key of :data:`REWARDS`.
        outcomes: whether learners send outcomes.
        seed: seed of the events, and of the choice of processes to kill.
    """

    def __init__(
        self,
        folder: Path,
        *,
        brokers: int,
        session: float,
        full: bool,
        seed: int,
        learners: int,
        rewards: str,
        outcomes: bool = False,
    ) -> None:
        self.offers = Definition(
            "offers",
            POLICY,
            REWARDS[rewards],
            partitions=PARTITIONS,
            learners="many",
            outcomes=outcomes,
        )
        self._folder, self.seed, self._session = folder, seed, session
        self.rng = random.Random(seed)
        self._gates: list[Between] = []
        self._started: list[Process] = []
        self._closing: list[Callable[[], object]] = []
        self._acknowledged = folder / "acknowledged"
        try:
            self.database = PostgresServer()
            self._closing.append(self.database.stop)
            PostgresJournal.create_tables(self.database.dsn)

            def way(port: int) -> int:
                self._gates.append(between(port, folder, full))
                return self._gates[-1].port

            self.kafka = KafkaCluster(brokers, way=way)
            self._closing.append(self.kafka.stop)
            self.brokers = brokers
            shelf = quote(self.database.dsn, safe="")
            files = quote(str(folder / "snapshots"), safe="")
            options = f"shelf={shelf}&copies={brokers}&snapshots={files}"
            self._address = address = f"kafka://{self.kafka.address}?{options}"
            store = open_store(address)
            assert isinstance(store, KafkaStore)
            self.store = store
            self.journal = store.journal("offers", partitions=PARTITIONS, wait=60.0)
            self._closing.append(self.journal.close)
            lines = (
                "[store]", f'address = "{address}"',
                "[server]", "learn = false", f'lease_ttl = "{session:g}s"',
                "[bandits.offers]", f'policy = "DelayedUCB(dim={DIM}, family=Bernoulli())"',
                f"rewards = '{rewards}'", f"partitions = {PARTITIONS}", 'learners = "many"',
                f"outcomes = {str(outcomes).lower()}",
            )  # fmt: skip
            (folder / "belated.toml").write_text("\n".join(lines), encoding="utf-8")
            self.learners = [self._start() for _ in range(learners)]
            self.watch = Watch(store)
            self._closing.append(self.watch.close)
            self.standstill = Standstill()
            self.standstill.__enter__()
            self._closing.append(self.standstill.__exit__)
            self.generator: subprocess.Popen[bytes] | None = None
            later(lambda: bool(self.watch.seen))
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """End all remaining processes."""
        if getattr(self, "generator", None) is not None:
            assert self.generator is not None
            self.generator.kill()
            self.generator.wait(30)
        for process in self._started:
            process.kill()
        for gate in self._gates:
            gate.close()
        while self._closing:
            self._closing.pop()()

    # --- events ----------------------------------------------------------------------------------

    def generate(self) -> None:
        """Continue with the first commit that was not acknowledged."""
        count = len(self.acknowledged())
        command = [sys.executable, "-m", "tests.faults.kafka_generator", self._address,
                   str(self.seed), str(count), str(self._acknowledged)]  # fmt: skip
        self.generator = subprocess.Popen(command)
        later(lambda: len(self.acknowledged()) > count, "nothing is acknowledged")

    def end_generating(self) -> None:
        """Stop generating once pending commits are acknowledged."""
        assert self.generator is not None
        self.generator.send_signal(signal.SIGTERM)
        assert self.generator.wait(120) == 0
        self.generator = None

    def acknowledged(self) -> dict[int, tuple[float, dict[int, int]]]:
        """Return time and place of acknowledged commits, by number."""
        return {commit.number: commit[1:] for commit in read_acknowledged(self._acknowledged)}

    # --- faults: each returns the moment from which all should be well again ---------------------

    def kill_worker(self, *, merger: bool = False) -> float:
        """Kill a learner, merging or not, and start another."""
        later(self._is_shared_out)
        with closing(self.store.coordination("offers")) as coordination:
            leader = coordination.leader()
        pid = None if leader is None else pid_of(leader.holder)
        candidates = sorted(self.learners, key=lambda learner: (learner.pid == pid) != merger)
        candidates[0].kill()
        killed_at = time.monotonic()
        self.learners.remove(candidates[0])
        self.learners.append(self._start())
        return killed_at

    def kill_merger(self) -> float:
        """Kill the learner that merges."""
        return self.kill_worker(merger=True)

    def kill_producer(self) -> float:
        """Kill the generator during a commit; it repeats commits that may be lost."""
        assert self.generator is not None
        self.generator.kill()
        self.generator.wait(30)
        killed_at = time.monotonic()
        self.generate()
        return killed_at

    def stop_worker(self) -> float:
        """Pause a learner for longer than its session, during work."""
        later(self._is_shared_out)
        sleeper = self.rng.choice(self.learners)
        sleeper.send(signal.SIGSTOP)
        stopped_at = time.monotonic()
        time.sleep(2 * self._session)
        sleeper.send(signal.SIGCONT)
        return stopped_at

    def two_owners(self) -> float:
        """Start a worker that wrongly believes for a while that it owns all partitions."""
        learner = shared_learner(self.offers, self.store, lease=self._session)
        learner.worker.membership = _Everything()
        deadline = time.monotonic() + self._session
        while time.monotonic() < deadline:
            learner.worker.step()
            time.sleep(0.02)
        owned = len(learner.worker.owned)
        assert owned or learner.worker.lost
        learner.worker.journal.close()  # and then nobody hears of it: it neither saves nor leaves
        learner.worker.shelf.close()
        learner.coordination.close()
        return time.monotonic()

    def kill_broker(self) -> float:
        """Kill one broker, and restart it."""
        broker = self.rng.randrange(self.brokers)
        self.kafka.kill(broker)
        killed_at = time.monotonic()
        time.sleep(12.0 if self.brokers > 1 else 1.0)  # in which others lead, if there are any
        self.kafka.start(broker)
        return killed_at if self.brokers > 1 else time.monotonic()

    def kill_brokers(self) -> float:
        """Kill all brokers, and restart them."""
        for broker in range(self.brokers):
            self.kafka.kill(broker)
        time.sleep(1.0)
        self.kafka.start(*range(self.brokers))
        return time.monotonic()

    def kill_database(self, seconds: float) -> float:
        """Kill PostgreSQL, and restart it after a while."""
        self.database.kill()
        time.sleep(seconds)
        self.database.start()
        return time.monotonic()

    def cut_link(self, seconds: float) -> float:
        """Cut one broker off from all its clients for a while."""
        gate = self.rng.choice(self._gates)
        gate.cut()
        time.sleep(seconds)
        gate.open()
        return time.monotonic()

    # --- what must be so -------------------------------------------------------------------------

    def recovery(self, since: float) -> float:
        """Return the seconds until a model includes all earlier commits, by partition."""

        def first() -> dict[int, int]:
            positions: dict[int, int] = {}
            for at, ends in self.acknowledged().values():
                if at >= since:
                    for partition, position in ends.items():
                        positions[partition] = min(position, positions.get(partition, position))
            return positions

        later(lambda: len(first()) == PARTITIONS, "nothing is acknowledged any more")
        later(
            lambda: all(self.watch.learned(p, n) < np.inf for p, n in first().items()),
            "nothing is learned any more",
        )
        return max(self.watch.learned(p, n) for p, n in first().items()) - since

    def waits(self, since: float, until: float) -> list[float]:
        """Return the seconds from the acknowledgement of each commit to a model with it."""
        seconds = []
        for at, ends in self.acknowledged().values():
            if since <= at < until:
                learned_at = max(self.watch.learned(p, n) for p, n in ends.items())
                seconds.append(learned_at - at - self.standstill.within(at, learned_at))
        return seconds

    def check(self) -> str:
        """End the generator; check that everything acknowledged is found, and counts once."""
        self.end_generating()
        commits = len(self.acknowledged())
        expected = truth(self.seed, commits)
        ends = [self.journal.end(partition) for partition in range(PARTITIONS)]
        later(lambda: self.watch.seen[-1].positions == ends, "the model does not know all")
        records = [record for p in range(PARTITIONS) for record in self.journal.read(p, 0, 10**7)]
        decisions = [record.event.id for record in records if isinstance(record.event, Decision)]
        assert set(decisions) == set(expected.rows)
        with closing(self.store.coordination("offers")) as coordination:
            messages = coordination.sent(PARTITIONS, {})
        sums = [PartitionSums.read(data) for _, data in messages.values()]
        assert [entry.position for entry in sorted(sums, key=lambda entry: entry.partition)] == ends
        snapshots = [self.journal.load(partition) for partition in range(PARTITIONS)]
        assert all(
            snapshot is None or snapshot.position <= ends[snapshot.partition]
            for snapshot in snapshots
        )
        assert sum(entry.decisions for entry in sums) == len(expected.rows)
        if isinstance(self.offers.rewards, ConversionsOnly):
            _check_conversions(sums, expected)
        else:
            moments = [entry.arrived().moments for entry in sums]
            assert sum(part.n for part in moments) == expected.rewarded
            gram, cross = sum(part.gram for part in moments), sum(part.cross for part in moments)
            np.testing.assert_allclose(gram, expected.gram, rtol=1e-9)
            np.testing.assert_allclose(cross, expected.cross, rtol=1e-9)
        return (
            f"{len(expected.rows)} decisions and {expected.rewarded} rewards once, "
            f"{len(decisions) - len(expected.rows)} decisions sent twice"
        )

    def check_outcomes(self) -> str:
        """Check that a consumer of the topic knows what the ledger knows; call after `check`."""
        assert isinstance(self.journal, KafkaJournal)
        count = truth(self.seed, len(self.acknowledged())).rewarded
        journal, messages = self.journal, list[tuple[str, bytes]]()

        def is_complete() -> bool:
            messages[:] = read_outcomes(self.kafka, journal)
            return len({key for key, _ in messages}) >= count

        later(is_complete, "outcomes are missing")  # the model may be published first
        consumer = Consumer()
        consumer.take(data for _, data in messages)
        check_equal(consumer, self.journal, self.offers.rewards)
        latest = {key: json.loads(data) for key, data in messages}  # all that compaction keeps
        assert latest == consumer.newest
        return f"{consumer.received} outcomes, {consumer.repeated} of them sent again"

    def lost(self) -> int:
        """Return how often a learner found that another worker owned a partition."""
        return sum(
            learner.log.count("another worker owns a partition") for learner in self._started
        )

    def _is_shared_out(self) -> bool:
        return all(learner.mentions("this worker owns a partition") for learner in self.learners)

    def _start(self) -> Process:
        log = self._folder / f"log {len(self._started)}"
        process = Process(log, "learn", str(self._folder / "belated.toml"))
        self._started.append(process)
        return process
