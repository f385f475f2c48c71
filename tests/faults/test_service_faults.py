"""The service as it runs, while its database, or one of its processes, goes away under load."""

from __future__ import annotations

import random
import signal
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from urllib.request import urlopen

import psycopg
import pytest

from belated.core.events import Settled
from belated.journals import PostgresJournal
from tests.faults.gates import Between
from tests.faults.service_load import BESIDE_OTHERS, PROMISED, Load
from tests.faults.test_postgres_outage import cut_off, hung, swallowed
from tests.faults.town import Cluster, assert_nothing_lost
from tests.integration.locks import append_in
from tests.integration.postgres_server import PostgresServer
from tests.integration.processes import later
from tests.ports import free_port


@contextmanager
def stopped(server: PostgresServer) -> Iterator[None]:
    """While there is no database."""
    server.kill()
    try:
        yield
    finally:
        server.start()


def outages(town: Cluster, way: Between) -> dict[str, AbstractContextManager[None]]:
    """Each of the ways to be away."""
    return {
        "stopped": stopped(town.server),
        "hung": hung(town.server.dsn),
        "cut off": cut_off(way),
        "swallowed": swallowed(way),
    }


@pytest.mark.parametrize("kind", ["stopped", "hung", "cut off", "swallowed"])
def test_requests_succeed_while_database_is_unavailable(
    town: Cluster, way: Between, kind: str, full: bool
) -> None:
    """They are answered within a second; afterwards all is in the journal, without a restart."""
    seconds = 60.0 if full else 5.0
    with Load(town.port) as load:
        time.sleep(2)
        with outages(town, way)[kind]:
            time.sleep(seconds)
        time.sleep(3)
    longest = max(load.waited(answer) for answer in load.answers)
    standstill = sum(end - start for start, end in load.standstill.spells)
    limit = PROMISED if full else BESIDE_OTHERS
    accepted_share, fast_share = load.share(60.0), load.share(limit)
    print(
        f"\n{kind} for {seconds:g} s: {len(load.answers)} requests, {accepted_share:.4%} taken, "
        f"{fast_share:.4%} within {limit:g} s, worst {longest:.3f} s, the machine stood still for "
        f"{standstill:.2f} s; {assert_nothing_lost(town, load)}"
    )
    assert accepted_share >= 0.999
    assert fast_share >= (0.999 if full else 0.99)
    assert load.share(PROMISED) >= 0.75  # half of the requests come during the outage


def test_killed_decider_loses_nothing_during_outage(town: Cluster, way: Between) -> None:
    """What it has left is handed over by the next, which starts when the database is back."""
    with Load(town.port) as load:
        time.sleep(1)
        with cut_off(way):
            time.sleep(2)
            town.decider.kill()
            answers_before = list(load.answers)
            time.sleep(1)
        assert town.lost(load)  # it is on the disk of the decider
        town.start_decider()
        time.sleep(2)
    n_fast = sum(answer.taken and load.waited(answer) <= BESIDE_OTHERS for answer in answers_before)
    assert n_fast >= 0.99 * len(answers_before)
    assert_nothing_lost(town, load)


def test_killed_decider_of_two_while_database_is_unavailable(
    town: Cluster, way: Between, full: bool
) -> None:
    """Callers go to the other, which hands over what the first has left."""
    seconds = 60.0 if full else 3.0
    port = free_port()
    second = town.start("serve", "--port", str(port))
    later(lambda: second.ask("GET", "/readyz")[0] == 200)
    with Load(town.port, port) as load:
        time.sleep(1)
        with cut_off(way):
            time.sleep(seconds / 2)
            town.decider.kill()
            town.decider = second
            time.sleep(seconds / 2)
        assert town.lost(load)
        time.sleep(3)
    limit = PROMISED if full else BESIDE_OTHERS
    count = sum(answer.taken and load.waited(answer) <= limit for answer in load.answers)
    fast_share = count / len(load.answers)
    print(
        f"\none of two killed in an outage of {seconds:g} s: {len(load.answers)} requests, "
        f"{fast_share:.4%} within {limit:g} s; {assert_nothing_lost(town, load)}"
    )
    assert all(answer.taken for answer in load.answers)
    assert fast_share >= (0.999 if full else 0.99)


def test_idle_transaction_of_another_client(town: Cluster, full: bool) -> None:
    """Nothing is read past it, which can be seen; callers are answered, and nothing is skipped."""
    seconds = 60.0 if full else 3.0
    with (
        Load(town.port) as load,
        PostgresJournal(town.server.dsn, bandit="offers") as journal,
        psycopg.connect(town.server.dsn) as blocker,
    ):
        time.sleep(1)
        for partition in range(journal.partitions):
            append_in(blocker, journal, 1, partition)
        records_before = town.records()
        time.sleep(seconds)
        assert town.records() == records_before
        with urlopen(f"http://127.0.0.1:{town.port}/metrics", timeout=10) as answer:
            assert 'belated_journal_unavailable{bandit="offers"} 1.0' in answer.read().decode()
        blocker.commit()
        lengths = [len(records) for records in records_before]
        assert [
            records[end].event for records, end in zip(town.records(), lengths, strict=True)
        ] == [Settled(partition, 1) for partition in range(journal.partitions)]
        time.sleep(2)
    limit = PROMISED if full else BESIDE_OTHERS
    fast_share = load.share(limit)
    result = assert_nothing_lost(town, load)
    print(f"\na transaction idle for {seconds:g} s: {fast_share:.4%} within {limit:g} s; {result}")
    assert fast_share >= (0.999 if full else 0.99)


def test_sigterm_while_database_is_unavailable(town: Cluster, way: Between) -> None:
    """It ends with 0, in time, and leaves what waits to the next."""
    with Load(town.port) as load:
        time.sleep(1)
        with swallowed(way):
            time.sleep(1.5)
            start = time.monotonic()
            town.decider.send(signal.SIGTERM)
            assert town.decider.ended() == 0
            seconds = time.monotonic() - start
        assert town.lost(load)
        town.start_decider()
    assert seconds < 20
    assert_nothing_lost(town, load)


@pytest.mark.parametrize("victim", ["decider", "learner", "database"])
def test_kills(town: Cluster, victim: str, full: bool) -> None:
    """SIGKILL under load, again and again: nothing acknowledged is lost, and all is learned."""
    rng = random.Random(1)
    if victim == "learner":  # so that each that is killed has begun with a snapshot
        town.stop_learner()
        town.start_learner()
    with Load(town.port) as load:
        for _ in range(20 if full else 2):
            time.sleep(rng.uniform(0.5, 2.0))
            if victim == "database":
                town.server.kill()
                town.server.start()
            elif victim == "learner":
                town.learner.kill()
                town.start_learner()
            else:
                town.decider.kill()
                town.start_decider()
        time.sleep(1)
    assert all(answer.taken for answer in load.answers)  # of those that tried again too
    result = assert_nothing_lost(town, load)
    print(
        f"\n{victim}: {len(load.answers)} requests, {load.share(60.0):.4%} taken at once; {result}"
    )
    if victim != "decider":
        assert load.share(60.0) >= 0.999
