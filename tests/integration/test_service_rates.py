"""Rate limits of keys and tokens, access to metrics, and stores that refuse."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from belated import Bernoulli, DelayedUCB, Explicit
from belated.journals import Store, open_store
from belated.service import Definition, Service
from belated.service.access.tokens import MAX_REPORTS, TokenSecrets
from tests.integration.keyrings import Made, answers, make
from tests.integration.listening import listening
from tests.integration.postgres_server import PostgresServer
from tests.integration.serving import Serving, served
from tests.waiting import eventually

ROWS = [[1.0, 0.0], [0.0, 1.0]]
NAME = "rated"
OFFERS = Definition(NAME, DelayedUCB(2, Bernoulli()), Explicit(), tokens="enforce")
SECRETS = TokenSecrets({"k1": bytes(range(32))})


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Store:
    """One kind of store is enough for these tests."""
    return open_store(f"sqlite:///{tmp_path_factory.mktemp('rates')}/belated.db")


@pytest.fixture(scope="module")
def serving(store: Store) -> Iterator[Serving]:
    """A service that requires keys, and issues tokens."""
    with served(Service([OFFERS], store, auth="keys", token_keys=SECRETS)) as handle:
        yield handle


@pytest.fixture
def http(serving: Serving) -> Iterator[httpx.Client]:
    """A plain HTTP client."""
    with httpx.Client(base_url=f"{serving.url}/v1/{NAME}/") as http_client:
        yield http_client


def usable(serving: Serving, made: Made) -> Made:
    """Return a key once the service knows it, with its whole rate available."""
    eventually(lambda: answers(serving.url, made, "/v1/nowhere/nothing/at/all") != 401)
    eventually(lambda: answers(serving.url, made, "/metrics") != 401)
    return made


def decide_many(http: httpx.Client, key: Made, count: int) -> httpx.Response:
    """Request several decisions at once."""
    body = {"requests": [{"rows": ROWS}] * count}
    return http.post("decisions/batch", json=body, headers=key.header)


def test_a_batch_counts_as_its_content(http: httpx.Client, serving: Serving, store: Store) -> None:
    """It is accepted as a whole, and delays the following requests."""
    key = usable(serving, make(store, "decide", "reward", rate=5.0))
    assert decide_many(http, key, 1_000).status_code == 201
    response = http.post("decisions", json={"rows": ROWS}, headers=key.header)
    assert response.status_code == 429
    assert 150 <= int(response.headers["retry-after"]) <= 200


def test_a_batch_of_rewards_counts_too(http: httpx.Client, serving: Serving, store: Store) -> None:
    """Like decisions."""
    key = usable(serving, make(store, "reward", rate=5.0))
    body = {"rewards": [{"id": f"r{n}", "value": 1.0} for n in range(500)]}
    assert http.post("rewards/batch", json=body, headers=key.header).status_code == 202
    response = http.post("rewards/batch", json=body, headers=key.header)
    assert response.status_code == 429
    assert int(response.headers["retry-after"]) >= 50


def test_one_by_one_as_many_as_the_rate(http: httpx.Client, serving: Serving, store: Store) -> None:
    """Batches of one count as single requests."""
    key = usable(serving, make(store, "decide", rate=0.01))
    statuses = [decide_many(http, key, 1).status_code for _ in range(2)]
    assert statuses == [201, 429]


def test_a_token_reports_so_often(http: httpx.Client, serving: Serving, store: Store) -> None:
    """A token cannot fill a journal; other tokens and keys are unaffected."""
    key = usable(serving, make(store, "decide", "reward"))
    first, second = decide_many(http, key, 2).json()["decisions"]

    def report(decision: dict[str, Any], headers: dict[str, str] | None = None) -> httpx.Response:
        body = {"value": 1.0, "token": decision["token"]}
        return http.put(f"decisions/{decision['id']}/reward", json=body, headers=headers)

    assert {report(first).status_code for _ in range(MAX_REPORTS)} == {202}
    response = report(first)
    assert response.status_code == 429
    assert 1 <= int(response.headers["retry-after"]) <= 60
    assert report(second).status_code == 202
    assert report(first, key.header).status_code == 202


def test_metrics_are_for_keys_of_all_bandits(serving: Serving, store: Store) -> None:
    """They cover all bandits."""
    bandit_key = usable(serving, make(store, "read", bandits=(NAME,)))
    full_key = usable(serving, make(store, "read"))
    assert answers(serving.url, bandit_key, f"/v1/{NAME}") == 200
    assert answers(serving.url, bandit_key, "/openapi.json") == 200
    assert answers(serving.url, bandit_key, "/metrics") == 403
    assert answers(serving.url, full_key, "/metrics") == 200


def ask(http: httpx.Client) -> int:
    """Return the status of a request for a decision."""
    return http.post("decisions", json={"rows": ROWS}).status_code


@pytest.mark.parametrize(
    ("trouble", "cure"),
    [
        ("ALTER TABLE belated.record RENAME TO gone", "ALTER TABLE belated.gone RENAME TO record"),
        ("ALTER SCHEMA belated RENAME TO gone", "ALTER SCHEMA gone RENAME TO belated"),
    ],
)
def test_a_store_that_refuses_is_told_as_such(
    own_server: PostgresServer, trouble: str, cure: str
) -> None:
    """503, once in the log, and everything works again after the repair."""
    import psycopg

    offers = Definition(NAME, DelayedUCB(2, Bernoulli()), Explicit())
    with (
        listening() as lines,
        served(Service([offers], own_server.dsn)) as serving,
        httpx.Client(base_url=f"{serving.url}/v1/{NAME}/") as http,
        psycopg.connect(own_server.dsn, autocommit=True) as operator,
    ):
        assert ask(http) == 201
        operator.execute(trouble)
        assert [ask(http) for _ in range(3)] == [503] * 3
        assert http.put("decisions/a/reward", json={"value": 1}).status_code == 503
        operator.execute(cure)
        eventually(lambda: ask(http) == 201)
    assert len([line for line in lines if "the store rejects" in line]) == 1


def test_rights_that_vanish_are_no_fault_of_the_service(own_server: PostgresServer) -> None:
    """503, until they are granted again."""
    import psycopg

    offers = Definition(NAME, DelayedUCB(2, Bernoulli()), Explicit())
    with psycopg.connect(own_server.dsn, autocommit=True) as operator:
        operator.execute("CREATE ROLE clerk LOGIN")
        operator.execute("GRANT USAGE ON SCHEMA belated TO clerk")
        operator.execute("GRANT ALL ON ALL TABLES IN SCHEMA belated TO clerk")
        operator.execute("GRANT ALL ON ALL SEQUENCES IN SCHEMA belated TO clerk")
        info = operator.info
        dsn = f"postgresql://clerk@{info.host}:{info.port}/{info.dbname}"
        with (
            served(Service([offers], dsn)) as serving,
            httpx.Client(base_url=f"{serving.url}/v1/{NAME}/") as http,
        ):
            assert ask(http) == 201
            operator.execute("REVOKE ALL ON ALL TABLES IN SCHEMA belated FROM clerk")
            assert ask(http) == 503
            operator.execute("GRANT ALL ON ALL TABLES IN SCHEMA belated TO clerk")
            assert ask(http) == 201
