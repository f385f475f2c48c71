"""Outcomes in SQLite, PostgreSQL and Kafka are what the ledger says."""

from __future__ import annotations

import json
import sqlite3
import time
from collections.abc import Callable
from contextlib import closing
from datetime import datetime
from typing import Any
from urllib.parse import quote

import msgspec
import psycopg
import pytest

from belated import DelayedUCB, Gaussian
from belated.core.events import Settled
from belated.core.outcomes import DecisionOutcome
from belated.exceptions import OwnerFenced
from belated.journals import (
    Journal,
    KafkaJournal,
    PostgresJournal,
    SQLiteJournal,
    Store,
    open_store,
)
from belated.journals.outcomes import OutcomeLog, OutcomeMessage
from belated.service import Definition
from belated.service.learning.learning_service import LearningService
from belated.service.learning.shared_learner import SharedLearner
from tests.integration.kafka_journals import read_outcomes
from tests.integration.kafka_server import KafkaCluster
from tests.learners import learning_service, shared_learner
from tests.outcomes import REWARDS, WINDOW, Consumer, Traffic, check_equal

PARTITIONS = 4
#: Seconds after which all windows have ended.
ENDED = float(WINDOW[:-1]) + 1.0
Learner = LearningService | SharedLearner


def definition(bandit: str) -> Definition:
    """Return the definition of a bandit with outcomes."""
    policy = DelayedUCB(2, Gaussian(1.0))
    return Definition(bandit, policy, REWARDS, partitions=PARTITIONS, outcomes=True)


def kill(learner: Learner) -> None:
    """Make others believe that a learner has died; it neither saves nor gives back."""
    learner.lease._renewal.stop()
    if isinstance(learner, SharedLearner):
        learner.worker.membership.close()


def step(learners: list[Learner], seconds: float) -> None:
    """Step learners in turn."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if not sum(learner.step() for learner in learners):
            time.sleep(0.01)


def sent(learner: Learner) -> dict[int, int]:
    """Return the positions up to which a learner has sent all outcomes, by partition."""
    if isinstance(learner, SharedLearner):
        folds = {n: owned.fold for n, owned in learner.worker.owned.items()}
        return {n: fold.position for n, fold in folds.items() if fold.has_sent(n)}
    fold = learner.fold
    return {} if fold is None else {n: fold.positions[n] for n in fold.folded if fold.has_sent(n)}


def finish(learners: list[Learner], journal: Journal) -> None:
    """Step learners until all windows have ended, and all outcomes are sent."""
    step(learners, ENDED)
    deadline = time.monotonic() + 120
    while True:
        positions: dict[int, int] = {}
        for learner in learners:
            positions |= sent(learner)
        journal_ends = {n: journal.end(n) for n in range(PARTITIONS)}
        if positions == journal_ends:
            return
        assert time.monotonic() < deadline, (positions, journal_ends)
        step(learners, 0.2)


def play(
    journal: Journal, new_learner: Callable[[], Learner], count: int, *, learners: int
) -> tuple[Traffic, list[Learner]]:
    """Append ``count`` decisions while learners die, join and leave; return the living."""
    traffic, running, killed = Traffic(journal, seed=count), [new_learner()], list[Learner]()
    size, rounds = max(20, count // 100), 0
    while traffic.decisions < count:
        traffic.append(size)
        step(running, 0.05)
        rounds += 1
        if rounds % 17 == 5:
            traffic.undo()
        if rounds % 23 == 9 and len(running) < learners:
            running.append(new_learner())
        if rounds % 31 == 15:
            killed.append(running.pop(0))
            kill(killed[-1])
            running.append(new_learner())
        if rounds % 31 == 28 and len(running) > 1:
            running.pop().close()
    finish(running, journal)
    for learner in killed:
        learner.close(save=False)
    return traffic, running


def check(consumer: Consumer, journal: Journal, traffic: Traffic) -> None:
    """Compare with the ledger; every kind of outcome must be among them."""
    table = check_equal(consumer, journal, REWARDS)
    states = {message["state"] for message in consumer.newest.values()}
    assert {"rewarded", "defaulted", "voided", "erased"} <= states
    assert len(table) + traffic.erased >= traffic.decisions
    erasures = [message for message in consumer.newest.values() if message["state"] == "erased"]
    assert all(message.keys() == {"id", "version", "state"} for message in erasures)


def rows_of(address: str, bandit: str) -> list[dict[str, Any]]:
    """Return the rows of the view of outcomes."""
    select = "SELECT * FROM {} WHERE bandit = {}"
    if address.startswith("sqlite:"):
        path = address.removeprefix("sqlite:///")
        with closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True)) as connection:
            cursor: Any = connection.execute(select.format("outcomes", "?"), (bandit,))
            names = [column[0] for column in cursor.description]
            return [dict(zip(names, row, strict=True)) for row in cursor.fetchall()]
    with psycopg.connect(address) as server:
        cursor = server.execute(select.format("belated.outcomes", "%s").encode(), (bandit,))
        names = [column.name for column in cursor.description]
        return [dict(zip(names, row, strict=True)) for row in cursor.fetchall()]


def as_message(row: dict[str, Any]) -> str:
    """Return a row of the view as a message; empty columns are fields that are left out."""
    fields = {
        name: value.isoformat() if isinstance(value, datetime) else value
        for name, value in row.items()
        if value is not None
    }
    if row["state"] == "erased":  # columns that have a default
        fields = {name: fields[name] for name in ("id", "version", "state")}
    return json.dumps(fields)


def test_the_view_is_what_the_ledger_says(
    store: Store, address: str, bandit: str, full: bool
) -> None:
    """With corrections, erasures, retractions, and learners that die."""
    learners: Callable[[], Learner] = lambda: learning_service(  # noqa: E731
        definition(bandit), store, lease=0.5
    )
    with store.journal(bandit, partitions=PARTITIONS) as journal:
        traffic, running = play(journal, learners, 100_000 if full else 1_000, learners=1)
        rows = rows_of(address, bandit)
        consumer = Consumer()
        consumer.take(map(as_message, rows))
        check(consumer, journal, traffic)
        assert len(rows) == len(consumer.newest)
        assert {row["partition"] for row in rows} == set(range(PARTITIONS))
        rewarded_row = next(row for row in rows if row["subject"] is not None)
        context = rewarded_row["context"]
        context = json.loads(context) if isinstance(context, str) else context
        assert context["city"].startswith("Köln")
        assert rewarded_row["delay"] is None or rewarded_row["delay"] >= 0
        assert any(row["conflict"] for row in rows)
        for learner in running:
            learner.close()


def test_older_versions_are_ignored(store: Store, address: str, bandit: str) -> None:
    """A replaced learner that sends late changes nothing."""
    with store.journal(bandit) as journal:
        assert isinstance(journal, OutcomeLog)
        for version in (5, 7, 6):
            data = b'{"id":"a","version":%d,"state":"voided"}' % version
            journal.put_outcomes(0, [OutcomeMessage("a", version, data)])
    (row,) = rows_of(address, bandit)
    assert (row["id"], row["version"], row["state"]) == ("a", 7, "voided")


def test_outcomes_of_trimmed_records_are_deleted(store: Store, address: str, bandit: str) -> None:
    """Up to the last record that is dropped, in its partition."""
    with store.journal(bandit, partitions=2) as journal:
        assert isinstance(journal, PostgresJournal | SQLiteJournal)
        journal.append([Settled(0, n) for n in range(9)])
        for partition in range(2):
            messages = [
                OutcomeMessage(id, version, b'{"id":"%s","version":%d}' % (id.encode(), version))
                for id, version in ((f"a{partition}", 5), (f"b{partition}", 6))
            ]
            journal.put_outcomes(partition, messages)
        drop: Any = journal._drop
        journal._write(lambda handle: drop(handle, 0, 5, 100))
    assert {row["id"] for row in rows_of(address, bandit)} == {"b0", "a1", "b1"}


@pytest.mark.parametrize("many", [False, True])
def test_the_topic_is_what_the_ledger_says(
    kafka: KafkaCluster, dsn: str, bandit: str, many: bool, full: bool
) -> None:
    """With one learner, and with several that join, leave and die."""
    store = open_store(f"kafka://{kafka.address}?shelf={quote(dsn, safe='')}&copies=1")
    make = shared_learner if many else learning_service
    learners: Callable[[], Learner] = lambda: make(  # noqa: E731
        definition(bandit), store, lease=1.0
    )
    with store.journal(bandit, partitions=PARTITIONS) as journal:
        assert isinstance(journal, KafkaJournal)
        count = 100_000 if full else 1_000
        traffic, running = play(journal, learners, count, learners=3 if many else 1)
        messages = read_outcomes(kafka, journal)
        consumer = Consumer()
        consumer.take(data for _, data in messages)
        check(consumer, journal, traffic)
        assert consumer.repeated  # or no learner was ever restarted
        for _, data in messages:
            msgspec.json.decode(data, type=DecisionOutcome)
        latest = {key: json.loads(data) for key, data in messages}
        assert latest == consumer.newest
        for learner in running:
            learner.close()


def test_a_replaced_learner_cannot_send(kafka: KafkaCluster, dsn: str, bandit: str) -> None:
    """The brokers fence it, because compaction would keep its older message."""
    store = open_store(f"kafka://{kafka.address}?shelf={quote(dsn, safe='')}&copies=1")
    with (
        store.journal(bandit, partitions=PARTITIONS) as first,
        store.journal(bandit) as second,
    ):
        assert isinstance(first, KafkaJournal)
        assert isinstance(second, KafkaJournal)
        send = [OutcomeMessage("a", n, b'{"version":%d}' % n) for n in range(4)]
        first.put_outcomes(1, send[:1])
        second.put_outcomes(1, send[1:2])
        with pytest.raises(OwnerFenced):
            first.put_outcomes(1, send[2:3])
        first.put_outcomes(2, send[3:])  # another partition
        versions = [json.loads(data)["version"] for _, data in read_outcomes(kafka, first)]
        assert sorted(versions) == [0, 1, 3]
