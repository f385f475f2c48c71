"""The service with its log in Kafka: it decides, learns, and refuses what it cannot know."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import httpx
import msgspec
import pytest

from belated import Bernoulli, DelayedUCB, Explicit
from belated.client import Client
from belated.core.ids import new_id
from belated.exceptions import InvalidInput, ServiceError
from belated.journals import KafkaJournal, Store, open_store
from belated.service import Definition, Service
from tests.integration.kafka_server import KafkaCluster
from tests.integration.serving import served
from tests.waiting import eventually

ROWS = [[1.0, 0.0], [0.0, 1.0]]


@pytest.fixture
def store(kafka: KafkaCluster, dsn: str) -> Store:
    """A store of one broker and one database."""
    return open_store(f"kafka://{kafka.address}?copies=1&shelf={dsn}")


@pytest.fixture
def served_app(store: Store, bandit: str) -> Iterator[tuple[Service, str]]:
    """Start a service with a learner; yield its address."""
    definition = Definition(bandit, DelayedUCB(2, Bernoulli()), Explicit(), partitions=16)
    app = Service([definition], store, learn=True)
    with served(app) as serving:
        yield app, serving.url


def test_it_decides_and_learns(served_app: tuple[Service, str], store: Store, bandit: str) -> None:
    """Rewards are learned, and have separate commits; all responses are in the journal."""
    app, url = served_app
    callers, count = 8, 20

    def play(n: int) -> list[str]:
        with Client(url, bandit=bandit) as client:
            decision_ids = [client.decide(rows=ROWS).id for _ in range(count)]
            for id in decision_ids[::2]:
                client.observe(id, 1.0)
            return decision_ids

    with ThreadPoolExecutor(callers) as crew:
        decision_ids = [id for ids in crew.map(play, range(callers)) for id in ids]
    served_bandit = app.bandits[bandit]
    eventually(lambda: served_bandit.decider.model.n == callers * count // 2, seconds=60)
    commits, rewards = served_bandit.commits, served_bandit.reward_commits
    assert (commits.failures.total(), rewards.failures.total()) == (0, 0)
    assert (commits.sizes.total, rewards.sizes.total) == (callers * count, callers * count // 2)
    assert commits.sizes.cumulative[-1] < commits.sizes.total
    assert rewards.sizes.cumulative[-1] < rewards.sizes.total / 2  # they wait for each other
    with store.journal(bandit) as journal:
        assert isinstance(journal, KafkaJournal)
        records = [record for p in range(16) for record in journal.read(p, 0, 10_000)]
        ids = [getattr(record.event, "id", None) for record in records]
        assert set(decision_ids) <= set(ids)


def test_what_it_cannot_know_is_refused_in_words(
    served_app: tuple[Service, str], bandit: str
) -> None:
    """An id of the caller, and a retry that another process may have answered, are refused."""
    app, url = served_app
    with Client(url, bandit=bandit) as client:
        for call in (
            lambda: client.decide(rows=ROWS, id="order-17"),
            lambda: client.decide(rows=ROWS, id=new_id(10**15)),
            lambda: client.entry(new_id(10**15)),
        ):
            with pytest.raises(ServiceError, match="cannot look up decisions by id"):
                call()
        with pytest.raises(InvalidInput, match="cannot look up decisions by subject"):
            client.decide(rows=ROWS, subject="user-17", sticky="1d")
    assert app.bandits[bandit].commits.sizes.total == 0


def test_a_retry_is_answered_where_it_was_decided(
    served_app: tuple[Service, str], bandit: str
) -> None:
    """The same decision, as long as no model includes it."""
    app, url = served_app
    app.bandits[bandit].decider.change_mode("freeze")  # then no model takes its place
    body = {"rows": ROWS, "id": new_id(10**15), "first_attempt": True}
    target = f"{url}/v1/{bandit.replace(' ', '%20')}/decisions"
    response = httpx.post(target, json=body)
    retry = httpx.post(target, json={**body, "first_attempt": False})
    assert (response.status_code, retry.status_code) == (201, 201)
    decisions = [msgspec.json.decode(reply.content) for reply in (response, retry)]
    assert decisions[0]["index"] == decisions[1]["index"]
    assert app.bandits[bandit].commits.sizes.total == 1
