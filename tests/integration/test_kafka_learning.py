"""A bandit on Kafka learns the same as an embedded one."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import closing
from typing import NamedTuple
from urllib.parse import quote

import numpy as np
import pytest

from belated import Bandit, Bernoulli, DelayedUCB, Explicit, Gaussian
from belated.cli.main import main
from belated.core.events import Opaque, Record
from belated.core.ids import subject_id
from belated.exceptions import NotIndexed
from belated.fold.fold import Fold, same_sums
from belated.fold.published import PublishedModel
from belated.journals import Journal, MemoryJournal, Store, open_store
from belated.journals.coordination import Held, renew_leases
from belated.service import Definition
from tests.integration.kafka_server import KafkaCluster
from tests.learners import shared_learner

DIM, ACTIONS, ROUNDS, PARTITIONS = 3, 4, 60, 4
#: Rewards come so many rounds late at most.
LATE = 20
POLICY = DelayedUCB(DIM, Bernoulli())


class Played(NamedTuple):
    """The actions that a bandit chose, and its regret."""

    actions: list[int]
    regret: float


def play(bandit: Bandit, seed: int) -> Played:
    """Decide, and report rewards late, some of them twice; everything is drawn in advance."""
    rng = np.random.default_rng(seed)
    theta = rng.normal(size=DIM)
    rows = rng.normal(size=(ROUNDS, ACTIONS, DIM)) / 2
    probabilities = 1 / (1 + np.exp(-rows @ theta))
    outcomes = rng.random((ROUNDS, ACTIONS)) < probabilities
    delays, is_repeated = rng.integers(0, LATE, ROUNDS), rng.random(ROUNDS) < 0.2
    due: dict[int, list[tuple[str, float]]] = {}
    actions = []
    for t in range(ROUNDS):
        decision = bandit.decide(rows=rows[t])
        actions.append(decision.index)
        rewards = [(decision.id, float(outcomes[t, decision.index]))] * (1 + is_repeated[t])
        due.setdefault(t + int(delays[t]), []).extend(rewards)
        for id, value in due.pop(t, []):
            bandit.observe(id, value)
    regrets = probabilities.max(axis=1) - probabilities[np.arange(ROUNDS), actions]
    return Played(actions, float(regrets.sum()))


@pytest.fixture
def store(kafka: KafkaCluster, dsn: str) -> Store:
    """A store on one broker."""
    return open_store(f"kafka://{kafka.address}?shelf={quote(dsn, safe='')}&copies=1")


@pytest.fixture
def journal(store: Store, bandit: str) -> Iterator[Journal]:
    """A new journal."""
    with store.journal(bandit, partitions=PARTITIONS) as bandit_journal:
        yield bandit_journal


def records_of(journal: Journal) -> list[Record]:
    """Return all records."""
    return [
        record for partition in range(PARTITIONS) for record in journal.read(partition, 0, 10_000)
    ]


def folded(journal: Journal, policy: DelayedUCB) -> Fold:
    """Return a fold of a whole journal."""
    fold = Fold(policy, Explicit(), partitions=PARTITIONS)
    fold.begin(journal)
    fold.catch_up(journal)
    return fold


@pytest.mark.parametrize("seed", [11, 12])
def test_decisions_and_regret_are_those_of_an_embedded_bandit(journal: Journal, seed: int) -> None:
    """With the same random numbers it makes the same choices, and learns the same."""
    with Bandit(policy=POLICY, rewards=Explicit(), journal=journal, seed=seed) as kafka_bandit:
        result = play(kafka_bandit, seed)
        estimate = kafka_bandit.estimate
    memory = MemoryJournal(partitions=PARTITIONS)
    with Bandit(policy=POLICY, rewards=Explicit(), journal=memory, seed=seed) as embedded:
        assert play(embedded, seed) == result
        expected = embedded.estimate
    assert estimate.n == expected.n > ROUNDS / 2
    np.testing.assert_allclose(estimate.theta, expected.theta, rtol=1e-8, atol=1e-10)
    np.testing.assert_allclose(estimate.precision, expected.precision, rtol=1e-8, atol=1e-10)


def test_the_same_records_come_to_the_same(store: Store, journal: Journal) -> None:
    """Folded from Kafka and from memory: states exactly, sums and estimate to rounding."""
    with Bandit(policy=POLICY, rewards=Explicit(), journal=journal, seed=1) as bandit:
        play(bandit, seed=21)
    with store.journal(journal.bandit) as reopened:
        records = records_of(reopened)
        fold = folded(reopened, POLICY)
    memory = MemoryJournal(partitions=PARTITIONS)
    for partition in range(PARTITIONS):
        partition_records = [record for record in records if record.partition == partition]
        events = [
            record.event for record in partition_records if not isinstance(record.event, Opaque)
        ]
        memory.append(events, recorded=[record.recorded for record in partition_records])
    expected = folded(memory, POLICY)
    assert fold.digest == expected.digest
    assert same_sums(fold, expected)
    np.testing.assert_allclose(
        fold.learner.estimate.theta, expected.learner.estimate.theta, rtol=1e-8, atol=1e-10
    )


def test_rewards_of_subjects_come_to_the_same(store: Store, journal: Journal) -> None:
    """Live, folded from Kafka, and folded from memory."""
    with Bandit(policy=POLICY, rewards=Explicit("1d"), journal=journal, seed=1) as bandit:
        decisions = [bandit.decide(rows=np.eye(DIM), subject=f"user-{n % 7}") for n in range(40)]
        for n in range(30):
            at = decisions[n].at
            bandit.observe(subject=f"user-{n % 9}", value=1.0, at=at, event_id=f"order-{n % 20}")
        bandit.void(decisions[33])
        digest, counters = bandit.digest, bandit.event_counts
    assert counters["credited"] > 10
    assert counters["unmatched"] > 0
    fold = Fold(POLICY, Explicit("1d"), partitions=PARTITIONS)
    with store.journal(journal.bandit) as reopened:
        fold.begin(reopened)
        fold.catch_up(reopened)
        memory = MemoryJournal(partitions=PARTITIONS)
        for record in records_of(reopened):
            if not isinstance(record.event, Opaque):
                memory.append([record.event], recorded=[record.recorded])
    replay = Fold(POLICY, Explicit("1d"), partitions=PARTITIONS)
    replay.begin(memory)
    replay.catch_up(memory)
    assert fold.digest == replay.digest == digest
    assert fold.counters == replay.counters == counters


def test_a_subject_is_erased(kafka: KafkaCluster, dsn: str, journal: Journal) -> None:
    """Its records are found by reading its partition; those of another subject count."""
    with Bandit(policy=POLICY, rewards=Explicit("1d"), journal=journal, seed=1) as bandit:
        for subject in ("user-1", "user-2"):
            bandit.decide(rows=np.eye(DIM), subject=subject)
            bandit.observe(subject=subject, value=1.0, event_id="order-1")
        shelf = quote(dsn, safe="")
        address = f"kafka://{kafka.address}?shelf={shelf}&copies=1&bandit={quote(journal.bandit)}"
        assert main(["journal", "erase", address, "--subject", "user-1", "--reason", "asked"]) == 0
        bandit.sync()
        assert bandit.decision_counts["rewarded"] == 1
        with pytest.raises(NotIndexed, match="cannot look up the id 'user-1'"):
            journal.records_of([subject_id("user-1")])


def test_learners_that_share_a_bandit_on_kafka_agree_with_a_replay(
    store: Store, bandit: str
) -> None:
    """One of two dies silently, and the other takes over its partitions."""
    policy = DelayedUCB(DIM, Gaussian(1.0))
    definition = Definition(bandit, policy, Explicit(), partitions=PARTITIONS, learners="many")
    first, second = (shared_learner(definition, store, lease=1.0) for _ in range(2))
    with Bandit(
        policy=policy, rewards=Explicit(), journal=store.journal(bandit), seed=2
    ) as decider:
        play(decider, seed=31)
        deadline = time.monotonic() + 60
        while not (first.worker.owned and second.worker.owned) and time.monotonic() < deadline:
            first.step()
            second.step()
        partitions = set(first.worker.owned)
        assert partitions
        play(decider, seed=32)
    with store.journal(bandit) as journal:
        fold = folded(journal, policy)
        # The first is never called again: neither does it give back, nor save.
        first.worker.membership.close()
        first.lease._renewal.stop()
        model = None
        while (model is None or model.n < fold.model.n) and time.monotonic() < deadline:
            second.step()
            publication = second.coordination.published()
            model = None if publication is None else PublishedModel.read(publication[1])
    assert model is not None
    assert partitions <= set(second.worker.owned)
    assert model.n == fold.model.n
    np.testing.assert_allclose(
        model.model(policy).theta, fold.learner.estimate.theta, rtol=1e-8, atol=1e-10
    )
    second.close()
    first.close()  # what it knows is old, and it can save none of it


def test_leases_are_renewed_in_the_database(store: Store, bandit: str, journal: Journal) -> None:
    """In one transaction; a lease held by another learner is not renewed."""
    with closing(store.coordination(bandit)) as coordination, closing(store.session()) as session:
        epoch = coordination.acquire_lease("me", 1.0)
        assert epoch is not None
        assert renew_leases(session.cells, {bandit: Held("me", epoch)}, 100.0) == {bandit}
        leader = coordination.leader()
        assert leader is not None
        assert leader.seconds > 50.0
        assert renew_leases(session.cells, {bandit: Held("another", epoch + 1)}, 100.0) == set()
