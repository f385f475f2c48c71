"""Learners that share partitions, killed and stopped under load on a real PostgreSQL."""

from __future__ import annotations

import random
import signal
import time
from collections.abc import Iterator
from contextlib import closing
from functools import partial
from itertools import chain
from pathlib import Path

import numpy as np
import psycopg
import pytest

from belated import Bernoulli, DelayedUCB, Explicit
from belated.core.events import Record
from belated.fold.fold import Fold
from belated.fold.partitioned import PartitionSums
from belated.fold.published import PublishedModel
from belated.journals import open_store
from tests.faults.service_load import Load
from tests.faults.town import Cluster, _check_once, check_saved
from tests.integration.postgres_server import PostgresServer
from tests.integration.processes import Process, later, pid_of
from tests.ports import free_port

PARTITIONS, LEARNERS = 8, 3
#: Seconds after which a learner that says nothing is replaced.
TTL = 3
POLICY = DelayedUCB(2, Bernoulli())


class SharedTown(Cluster):
    """A decider, and learners that share the partitions.

    Args:
        server: of the database.
        folder: for the files.
    """

    def __init__(self, server: PostgresServer, folder: Path) -> None:
        self.server = server
        self.port = free_port()
        self._folder = folder
        self._started: list[Process] = []
        self._file = folder / "belated.toml"
        lines = (
            "[store]",
            f'address = "{server.dsn}"',
            "[server]",
            "learn = false",
            f"port = {self.port}",
            f'lease_ttl = "{TTL}s"',
            "[bandits.offers]",
            'policy = "DelayedUCB(dim=2, family=Bernoulli())"',
            'rewards = "Explicit()"',
            f"partitions = {PARTITIONS}",
            'learners = "many"',
        )
        self._file.write_text("\n".join(lines), encoding="utf-8")
        self.decider = self.start("serve")
        self.decider.heard("serving")
        self.learners = [self.start("learn") for _ in range(LEARNERS)]

    def records(self) -> list[list[Record]]:
        """All there are, of each partition."""
        with self.journal() as journal:
            return [journal.read(p, 0, 1_000_000) for p in range(PARTITIONS)]

    def owners(self) -> dict[str, list[int]]:
        """The partitions of each worker, as the database has it."""
        with psycopg.connect(self.server.dsn) as connection:
            rows = connection.execute("SELECT name, partitions FROM belated.worker").fetchall()
        return {name: list(partitions) for name, partitions in rows}

    def is_shared_out(self) -> bool:
        """Whether every learner that runs has its share, and nobody else has any."""
        shares = {pid_of(name): len(some) for name, some in self.owners().items()}
        all_there = {*shares} == {one.pid for one in self.learners}  # not one that was killed
        return all_there and sum(shares.values()) == PARTITIONS and min(shares.values()) > 0

    def kill_one(self, rng: random.Random) -> None:
        """End a learner at any moment, and start another."""
        n = rng.randrange(LEARNERS)
        assert self.learners[n].runs(), self.learners[n].log
        self.learners[n].kill()
        self.learners[n] = self.start("learn")

    def stop_one(self, rng: random.Random) -> None:
        """Have a learner sleep for longer than its session and its lease, in the midst of work."""
        sleeper = rng.choice(self.learners)
        sleeper.send(signal.SIGSTOP)
        time.sleep(2 * TTL)
        sleeper.send(signal.SIGCONT)


@pytest.fixture
def shared_town(doomed: PostgresServer, tmp_path: Path) -> Iterator[SharedTown]:
    """It serves, and all learners have their share."""
    town = SharedTown(doomed, tmp_path)
    try:
        later(town.is_shared_out)
        yield town
    finally:
        town.close()


def test_learners_die_and_sleep_under_load(shared_town: SharedTown, full: bool) -> None:
    """Nothing that was acknowledged is lost or counts twice; sums are those of a replay."""
    town, rng = shared_town, random.Random(7)
    ways = ["kill"] * (50 if full else 3) + ["stop"] * (10 if full else 1)
    rng.shuffle(ways)
    with Load(town.port, rate=50.0) as load:
        for way in ways:
            time.sleep(rng.uniform(0.0, 3.0))
            if way == "kill":
                town.kill_one(rng)
            else:
                town.stop_one(rng)
            if rng.random() < 0.5:  # else the next befalls them while they take over
                later(town.is_shared_out)
    print(_check(town, load, ways))


def _check(town: SharedTown, load: Load, ways: list[str]) -> str:
    later(lambda: not town.lost(load), "something was lost")
    count = partial(lambda: sum(map(len, town.records())))
    later(lambda: town.state().get("version") == count(), "the model does not know all")
    later(town.is_shared_out)  # the last to start hears signals by now
    told = town.state()
    for learner in town.learners:
        learner.send(signal.SIGTERM)
    for learner in town.learners:
        assert learner.ended() == 0, learner.log
    assert town.owners() == {}
    with town.journal() as journal:
        learned, records = check_saved(
            journal, partial(Fold, POLICY, Explicit(), partitions=PARTITIONS), told["version"]
        )
    assert told["observations"] == learned.model.n
    assert told["pending"] == learned.model.pending
    assert not _check_once(load, learned, records)
    _check_sums(town, learned)
    log = "".join(one.log for one in town._started)
    return (
        f"{ways.count('kill')} kills, {ways.count('stop')} stops: "
        f"{len(load.acknowledged('decision'))} decisions and "
        f"{len(load.acknowledged('reward'))} rewards acknowledged, 0 lost, 0 twice; "
        f"{sum(map(len, chain(records)))} records, "
        f"{log.count('this worker owns a partition')} times a partition was taken over, "
        f"{log.count('another worker owns a partition')} times lost"
    )


def _check_sums(town: SharedTown, replay: Fold) -> None:
    """What was sent last, and the model that was published last, are those of all records."""
    with closing(open_store(town.server.dsn).coordination("offers")) as coordination:
        sent, found = coordination.sent({}), coordination.published()
    assert found is not None
    model = PublishedModel.read(found[1])
    assert (model.positions, model.n) == (replay.positions, replay.model.n)
    assert model.head == str(replay.head)
    estimate = replay.learner.estimate
    off = model.model(POLICY).theta - estimate.theta
    assert off @ estimate.precision @ off < 0.1**2
    assert len(sent) == PARTITIONS
    for one in sent:
        entry = PartitionSums.read(one.data)
        mine = entry.arrived().moments
        wanted = replay.learner.observations[entry.partition].moments()
        assert (entry.position, mine.n) == (replay.positions[entry.partition], wanted.n)
        np.testing.assert_allclose(mine.gram, wanted.gram, rtol=1e-9, atol=1e-9)
        np.testing.assert_allclose(mine.cross, wanted.cross, rtol=1e-9, atol=1e-9)
