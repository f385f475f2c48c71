"""Kill a broker under load: everything acknowledged is found once, and all readers agree."""

from __future__ import annotations

import threading
import time
from collections import Counter
from itertools import count

from belated.core.events import Record, Reward
from belated.core.ids import new_id
from belated.exceptions import JournalUnavailable
from belated.journals import KafkaJournal
from tests.integration.kafka_server import KafkaCluster, require_jars
from tests.integration.postgres_server import database, require_programs

PARTITIONS, SIZE, WRITERS = 4, 20, 3


class Load:
    """Writers with separate journals, and a reader that follows."""

    def __init__(self, brokers: str, dsn: str, copies: int) -> None:
        self._brokers, self._dsn, self._copies = brokers, dsn, copies
        self.opened = self._open()
        #: Ids that were acknowledged, with how often their call failed before.
        self.told: dict[str, int] = {}
        self.followed: list[list[Record]] = [[] for _ in range(PARTITIONS)]
        self.errors: list[BaseException] = []
        self._stopped = threading.Event()
        self._threads = [threading.Thread(target=self._write) for _ in range(WRITERS)]
        self._threads.append(threading.Thread(target=self._follow))
        for thread in self._threads:
            thread.start()

    def _open(self) -> KafkaJournal:
        return KafkaJournal(
            self._brokers,
            shelf=self._dsn,
            bandit="doomed",
            partitions=PARTITIONS,
            copies=self._copies,
            wait=30,
        )

    def wait_for(self, more: int) -> None:
        """Wait until this many more events were acknowledged."""
        goal, deadline = len(self.told) + more, time.monotonic() + 120
        while len(self.told) < goal and not self.errors:
            assert time.monotonic() < deadline, "nothing is acknowledged any more"
            time.sleep(0.02)

    def stop(self) -> None:
        """Stop everything after its current work."""
        self._stopped.set()
        for thread in self._threads:
            thread.join(120)
        assert not any(thread.is_alive() for thread in self._threads)

    def _write(self) -> None:
        try:
            with self._open() as journal:
                for slot in count():
                    if self._stopped.is_set():
                        return
                    ids = [new_id(time.time_ns() // 1000, slot % PARTITIONS) for _ in range(SIZE)]
                    self._append(journal, [Reward(id, 1, 1.0) for id in ids])
        except BaseException as error:
            self.errors.append(error)

    def _append(self, journal: KafkaJournal, events: list[Reward]) -> None:
        for failures in count():
            try:
                journal.append(events)
            except JournalUnavailable:
                continue
            self.told |= {event.id: failures for event in events}
            return

    def _follow(self) -> None:
        try:
            with self._open() as journal:
                while not self._stopped.is_set():
                    for partition in range(PARTITIONS):
                        self._read_on(journal, partition)
        except BaseException as error:
            self.errors.append(error)

    def _read_on(self, journal: KafkaJournal, partition: int) -> None:
        records = self.followed[partition]
        try:
            records += journal.read(partition, records[-1].position if records else 0, 500)
        except JournalUnavailable:
            time.sleep(0.05)


def test_a_killed_broker_loses_nothing(full: bool) -> None:
    """A single broker, restarted after a second; with --full, each of three in turn, ten times."""
    require_jars()
    require_programs()
    brokers, kills = (3, 10) if full else (1, 1)
    cluster = KafkaCluster(brokers)
    try:
        with database() as dsn:
            load = Load(cluster.address, dsn, brokers)
            try:
                for kill in range(kills):
                    load.wait_for(400)
                    cluster.kill(kill % brokers)
                    if brokers > 1:  # the others go on
                        load.wait_for(400)
                    time.sleep(1)
                    cluster.start(kill % brokers)
                load.wait_for(400)
            finally:
                load.stop()
            assert load.errors == []
            with load.opened as journal:
                records = [journal.read(partition, 0, 10**6) for partition in range(PARTITIONS)]
            counts = Counter(record.event.id for page in records for record in page)  # type: ignore[union-attr]
            for id, failures in load.told.items():
                # What was sent again may be there twice: it counts once.
                assert counts[id] == 1 if not failures else counts[id] >= 1
            for page, followed_records in zip(records, load.followed, strict=True):
                assert page[: len(followed_records)] == followed_records
            retries = sum(failures > 0 for failures in load.told.values())
            print(f"\n{kills} kills, {len(load.told)} acknowledged, {retries} after a failure")
    finally:
        cluster.stop()
