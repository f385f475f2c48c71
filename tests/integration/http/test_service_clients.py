"""Clients of a service that restarts, loses answers, or runs twice."""

from __future__ import annotations

import asyncio
import json
import threading
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime
from typing import Any

import httpx
import numpy as np
import pytest

from belated import Bernoulli, DelayedThompson, DelayedUCB, Explicit
from belated.client import AsyncClient, Client
from belated.client.transport import Transport
from belated.core.events import Decision, Record, encode
from belated.exceptions import InvalidInput, ServiceError, ServiceUnavailable
from belated.journals import Store
from belated.service import Definition, Service
from tests.integration.http.bandits import DIM, ROWS, problem_in
from tests.integration.postgres_server import PostgresServer
from tests.integration.serving import Serving, served
from tests.ports import free_port
from tests.waiting import eventually

# --- the same again ------------------------------------------------------------------------------


def test_the_same_id_gives_the_same_decision(client: Client) -> None:
    """One after the other; and other rows under it are refused."""
    first = client.decide(rows=ROWS, id="order 1")
    assert client.decide(rows=ROWS, id="order 1") == first
    with pytest.raises(InvalidInput, match="used for another decision"):
        client.decide(rows=ROWS + 0.5, id="order 1")
    assert len(client.entry("order 1").records) == 1


def test_two_deciders_at_once_give_one_answer(store: Store, bandit: str) -> None:
    """Concurrent callers all get the decision that counts."""
    definition = Definition(bandit, DelayedThompson(DIM, Bernoulli()), Explicit())
    with (
        served(Service([definition], store)) as first,
        served(Service([definition], store)) as second,
    ):
        clients = [Client(url, bandit=bandit) for url in (first.url, second.url)] * 4
        barrier = threading.Barrier(len(clients))

        def ask(client: Client) -> None:
            barrier.wait()
            client.decide(rows=ROWS, id="contested")

        with ThreadPoolExecutor(len(clients)) as pool:
            list(pool.map(ask, clients))
        answers = [client.decide(rows=ROWS, id="contested") for client in clients]
        assert len({answer.at for answer in answers}) == 1
        decision = clients[0].entry("contested").decision
        assert decision is not None
        assert (decision.at, decision.index) == (answers[0].at, answers[0].index)
        for client in clients:
            client.close()


class Losing(httpx.HTTPTransport):
    """The network, which loses the first answers: the request arrives, and nobody hears of it."""

    def __init__(self, lost: int) -> None:
        super().__init__()
        self.lost = lost

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        """Ask, and lose the answer."""
        response = super().handle_request(request)
        if self.lost:
            self.lost -= 1
            response.read()
            raise httpx.ReadTimeout("lost", request=request)
        return response


def test_retry_after_lost_response_changes_nothing(url: str, client: Client, store: Store) -> None:
    """The retry gets the decision that was made; what the journal has twice is the same."""
    transport = Losing(2)
    http = httpx.Client(base_url=url, transport=transport)
    client._transport = Transport(url, http, lambda seconds: None, retries=2)
    decision = client.decide(rows=ROWS)
    transport.lost = 2
    client.observe(decision.id, 1.0)
    transport.lost = 1
    decisions = client.decide_many(rows=[ROWS, ROWS])
    with store.journal("rows") as journal:
        records = journal.records_of([decision.id])
        other_records = journal.records_of([decision.id for decision in decisions])
    assert [type(event).__name__ for event in different(records)] == ["Decision", "Reward"]
    assert isinstance(records[0].event, Decision)
    assert (records[0].event.index, records[0].event.at) == (decision.index, decision.at)
    assert sorted(event.id for event in different(other_records)) == sorted(
        decision.id for decision in decisions
    )


def different(records: list[Record]) -> list[Any]:
    """Their events, each once."""
    return list({encode(record.event): record.event for record in records}.values())


def test_what_a_client_returns_can_be_passed_on(client: Client) -> None:
    """As JSON, with the words in which the service said it."""
    decision = client.decide(rows=ROWS, actions=["a", "b", "c"])
    assert json.loads(json.dumps(decision.to_dict())) == dict(decision)
    assert datetime.fromisoformat(decision.to_dict()["at"]) == decision.at
    story = json.loads(json.dumps(client.entry(decision.id).to_dict()))
    assert story["decision"]["at"] == story["records"][0]["at"] == decision.to_dict()["at"]
    assert client.state().to_dict()["bandit"] == "rows"


def test_the_verbs_awaited(url: str) -> None:
    """Many at once over one client; what was decided and reported is there."""

    async def shop() -> None:
        async with AsyncClient(url, bandit="rows") as client:
            decisions = await asyncio.gather(
                *(client.decide(rows=ROWS, actions=["a", "b", "c"]) for _ in range(20))
            )
            assert len({decision.id for decision in decisions}) == 20
            ids = [f"awaited {n}" for n in range(3)]
            batch = await client.decide_many(rows=[ROWS] * 3, ids=ids)
            assert [decision.id for decision in batch] == ids
            assert await client.decide_many(rows=[ROWS] * 3, ids=ids) == batch
            rewards = [(decision.id, 1.0) for decision in (*decisions, *batch)]
            receipts = await client.observe_many(rewards)
            assert [(receipt.id, receipt.status) for receipt in receipts] == [
                (id, "accepted") for id, _ in rewards
            ]
            assert (await client.void(decisions[0].id)).status == "accepted"
            assert (await client.entry(batch[2].id)).state == "rewarded"
            assert (await client.state()).bandit == "rows"
            with pytest.raises(InvalidInput, match="outside"):
                await client.observe(decisions[0].id, 7.0)

    asyncio.run(shop())


# --- outages -------------------------------------------------------------------------------------


def test_a_service_that_is_restarted_is_waited_for(store: Store, bandit: str) -> None:
    """Calls while it is down come back when it is up; with no retries they fail at once."""
    definition = Definition(bandit, DelayedUCB(DIM, Bernoulli()), Explicit())
    serving = Serving(free_port())
    serving.start(Service([definition], store))
    try:
        with (
            Client(serving.url, bandit=bandit, retries=8) as client,
            Client(serving.url, bandit=bandit, retries=0, timeout=1.0) as hasty_client,
        ):
            first = client.decide(rows=ROWS)
            serving.stop()
            with pytest.raises(ServiceUnavailable, match="cannot be reached"):
                hasty_client.decide(rows=ROWS)
            timer = threading.Timer(0.5, serving.start, [Service([definition], store)])
            timer.start()
            second = client.decide(rows=ROWS)  # sent to nobody at first
            assert client.observe(first.id, 1.0).status == "accepted"
            assert client.entry(second.id).state == "pending"
            timer.join()
    finally:
        serving.stop()


def test_unavailable_journal_returns_503_until_it_recovers(
    own_server: PostgresServer, bandit: str
) -> None:
    """Nothing is acknowledged meanwhile, retries say when to come, and afterwards all goes on."""
    definition = Definition(bandit, DelayedUCB(DIM, Bernoulli()), Explicit())
    with (
        served(Service([definition], own_server.dsn)) as serving,
        Client(serving.url, bandit=bandit, retries=10) as client,
    ):
        first = client.decide(rows=ROWS)
        own_server.kill()
        base = f"{serving.url}/v1/{bandit}/decisions".replace(" ", "%20")
        for response in (
            httpx.post(base, json={"rows": ROWS.tolist()}),
            httpx.post(base, json={"rows": ROWS.tolist(), "id": "mine"}),
            httpx.put(f"{base}/x/reward", json={"value": 1}),
            httpx.get(f"{base}/{first.id}"),
        ):
            assert problem_in(response).status == 503
            assert response.headers["retry-after"] == "1"
        assert httpx.get(f"{serving.url}/livez").status_code == 200
        assert client.state().pending == 1  # those that failed do not count
        thread = threading.Thread(target=own_server.start)
        thread.start()
        second = client.decide(rows=ROWS)
        thread.join()
        assert {client.entry(decision.id).state for decision in (first, second)} == {"pending"}
        metrics = httpx.get(f"{serving.url}/metrics").text
        assert f'belated_internal_errors_total{{bandit="{bandit}",kind="commit"}} 0' not in metrics


def test_another_policy_starts_without_the_old_model(store: Store, bandit: str) -> None:
    """It chooses by its prior until the learner, which has the new policy too, has made one."""
    old = Definition(bandit, DelayedUCB(DIM, Bernoulli(), alpha=0.5), Explicit())
    new = Definition(bandit, DelayedUCB(DIM, Bernoulli(), alpha=0.9), Explicit())

    def refused(app: Service, rewards: int) -> int:
        """How many models, once this many rewards are known in all."""
        with served(app) as serving, Client(serving.url, bandit=bandit) as client:
            client.observe(client.decide(rows=ROWS).id, 1.0)
            eventually(lambda: client.state().observations == rewards)
            return app.bandits[bandit].stats.failures["model"]

    assert refused(Service([old], store, learn=True), rewards=1) == 0
    assert refused(Service([new], store, learn=True), rewards=2) >= 1


def test_problems_become_errors(url: str) -> None:
    """InvalidInput for what was refused, ServiceError with the problem for the rest."""
    with Client(url, bandit="nobody") as client:
        with pytest.raises(ServiceError, match="unknown bandit 'nobody'") as error:
            client.state()
        assert error.value.problem.status == 404
    with Client(url, bandit="rows") as client:
        with pytest.raises(InvalidInput, match="each row has 2 numbers, but this bandit expects 4"):
            client.decide(rows=np.eye(2))
        with pytest.raises(InvalidInput, match="outside"):
            client.observe("x", 7.0)
        with pytest.raises(ServiceError, match="413") as error:
            client.decide(rows=np.ones((10_000, DIM)))
        assert error.value.problem.title == "Too large"
