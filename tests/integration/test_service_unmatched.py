"""Rewards for unknown decisions: accepted ones are stored, and the others are rejected."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from belated import Bernoulli, DelayedUCB, Explicit
from belated.client import Client
from belated.journals import Store, open_store
from belated.service import Definition, Service
from tests.integration.keyrings import known
from tests.integration.serving import Serving, served
from tests.waiting import eventually

ROWS = [[1.0, 0.0], [0.0, 1.0]]


@pytest.fixture
def store(tmp_path: Path) -> Store:
    """One kind of store is enough for these tests."""
    return open_store(f"sqlite:///{tmp_path}/belated.db")


@pytest.fixture
def serving(store: Store) -> Iterator[Serving]:
    """A service that requires keys, and learns."""
    offers = Definition("offers", DelayedUCB(2, Bernoulli()), Explicit(), keep_requests=0.0)
    with served(Service([offers], store, auth="keys", learn=True)) as handle:
        yield handle


def flood(http: httpx.Client, header: dict[str, str], batches: int) -> tuple[int, httpx.Response]:
    """Report rewards for unknown ids until they are rejected; return how many were accepted."""
    for batch in range(batches):
        rewards = [{"id": f"nobody-{batch}-{n}", "value": 1} for n in range(1_000)]
        response = http.post("rewards/batch", json={"rewards": rewards}, headers=header)
        if response.status_code != 202:
            return batch * 1_000, response
    return batches * 1_000, response


def test_a_flood_of_unknown_ids_is_refused_and_drops_nothing(
    serving: Serving, store: Store
) -> None:
    """Each key has a share; others can report early rewards; known decisions always can."""
    flooder, customer = known(store, serving.url), known(store, serving.url)
    url = f"{serving.url}/v1/offers/"
    with (
        httpx.Client(base_url=url, timeout=60) as http,
        Client(serving.url, bandit="offers", key=customer.key) as client,
    ):
        ids = [client.decide(rows=ROWS).id for _ in range(3)]
        accepted, refusal = flood(http, flooder.header, batches=40)
        assert refusal.status_code == 429
        assert int(refusal.headers["retry-after"]) > 0
        assert "unknown decision id 'nobody-" in refusal.json()["detail"]
        assert "from this key are already waiting for unknown decisions" in refusal.json()["detail"]
        # The limit is 25,000; a learner that lags behind reports some of them later.
        assert 10_000 <= accepted < 40_000

        # A refused reward was not taken.
        entry = http.get(f"decisions/nobody-{accepted // 1_000}-0", headers=customer.header)
        assert entry.status_code == 404 or entry.json()["state"] == "unknown"
        # The flooding key still reports rewards of known decisions.
        for id in ids:
            reward = {"value": 1}
            response = http.put(f"decisions/{id}/reward", json=reward, headers=flooder.header)
            assert response.status_code == 202, response.text
        # Another key reports a reward before its decision, and it counts.
        receipt = http.put("decisions/early/reward", json={"value": 1}, headers=customer.header)
        assert receipt.status_code == 202, receipt.text
        client.decide(rows=ROWS, id="early")
        eventually(lambda: client.state().observations == 4, seconds=60)
        # Every accepted reward is still there.
        client.decide(rows=ROWS, id="nobody-0-0")
        client.decide(rows=ROWS, id=f"nobody-{accepted // 1_000 - 1}-999")
        eventually(lambda: client.state().observations == 6, seconds=60)
        assert client.entry("early").state == "rewarded"

        metrics = httpx.get(f"{serving.url}/metrics", headers=customer.header).text
        samples = dict(
            line.rsplit(" ", 1) for line in metrics.splitlines() if not line.startswith("#")
        )
        assert float(samples['belated_unmatched_refused_total{bandit="offers"}']) == 1_000
        assert float(samples['belated_unmatched_events{bandit="offers"}']) == accepted - 2
