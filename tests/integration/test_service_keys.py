"""The service with keys: a key allows its scopes, for its bandits, and nothing else."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import msgspec
import psycopg
import pytest

from belated import Bernoulli, DelayedUCB, Explicit
from belated.client import Client
from belated.exceptions import JournalError, ServiceError
from belated.journals import Store, open_store
from belated.journals.keys import KeyStore
from belated.service import Definition, Service
from belated.service.http.app import ROUTES
from belated.service.http.ofrep import EVALUATE
from belated.service.http.routes import BANDIT_ROUTES, Route
from belated.wire.keys import SCOPES, hash_of, new_key
from belated.wire.messages import Problem
from tests.integration.keyrings import answers, make, revoke
from tests.integration.postgres_server import PostgresServer
from tests.integration.serving import Serving, served
from tests.waiting import eventually

ROWS = [[1.0, 0.0], [0.0, 1.0]]
BODIES: dict[str, Any] = {
    "DecisionRequest": {"rows": ROWS},
    "DecisionRequests": {"requests": [{"rows": ROWS}]},
    "EvaluationRequest": {"context": {"targetingKey": "someone"}},
    "RewardBody": {"value": 1.0},
    "ModeBody": {"mode": "learn"},
    "ModelBody": {"version": "latest"},
    "ActionBody": {"action": "a", "change": "pause"},
    "RewardsBody": {"rewards": [{"id": "someone", "value": 0.0}]},
    "SubjectRewardsBody": {"rewards": [{"subject": "someone", "value": 0.0, "event_id": "e1"}]},
}


def two() -> list[Definition]:
    """Two bandits."""
    return [Definition(n, DelayedUCB(2, Bernoulli()), Explicit()) for n in ("guarded", "other")]


@pytest.fixture(scope="module")
def serving(store: Store) -> Iterator[Serving]:
    """A service that requires keys."""
    with served(Service(two(), store, auth="keys")) as handle:
        yield handle


@pytest.fixture
def http(serving: Serving) -> Iterator[httpx.Client]:
    """A plain HTTP client."""
    with httpx.Client(base_url=serving.url) as http_client:
        yield http_client


def ask(
    http: httpx.Client, route: Route, bandit: str, headers: dict[str, str] | None = None
) -> httpx.Response:
    """Send a request that is valid except, possibly, for its key."""
    body = None if route.body is None else BODIES[route.body.__name__]
    path = route.path.format(bandit=bandit, id="documented", subject="someone")
    return http.request(route.method, path, json=body, headers=headers)


def problem_in(response: httpx.Response) -> Problem:
    """Return the body of a response, which must be a problem."""
    assert response.headers["content-type"] == "application/problem+json", response.text
    return msgspec.json.decode(response.content, type=Problem)


@pytest.mark.parametrize("scope", SCOPES)
def test_every_route_for_every_scope(
    http: httpx.Client, serving: Serving, store: Store, scope: str
) -> None:
    """On all routes and bandits, a key is limited to its scopes and bandits."""
    bandit_key = make(store, scope, bandits=("guarded",))
    full_key = make(store, scope)
    eventually(
        lambda: 401 not in {answers(serving.url, key, "/metrics") for key in (bandit_key, full_key)}
    )
    requests = 0
    journal = store.journal("other")
    for route in ROUTES:
        is_in_scope = route.scope in (None, scope)
        statuses: tuple[int, ...] = (200, 201, 202, 307, 503)
        if route is EVALUATE:  # which the bandits refuse, because they have no features
            statuses = (400,)
        for bandit in ("guarded", "other", "nowhere") if "{bandit}" in route.path else ("",):
            end_before = journal.end(0)
            bandit_answer = ask(http, route, bandit, bandit_key.header)
            assert journal.end(0) == end_before  # it has done nothing to the other
            full_answer = ask(http, route, bandit, full_key.header)
            if bandit in ("guarded", "") and is_in_scope and not route.everywhere:
                assert bandit_answer.status_code in statuses, bandit_answer.text
            else:
                assert bandit_answer.status_code == 403
                assert ("--bandit '*'" in bandit_answer.text) == route.everywhere
            if not is_in_scope:
                assert full_answer.status_code == 403
            elif bandit == "nowhere":
                assert full_answer.status_code == 404
            else:
                assert full_answer.status_code in statuses, full_answer.text
            requests += 1
    assert requests == len(ROUTES) + 2 * sum("{bandit}" in route.path for route in ROUTES)
    journal.close()


def test_a_key_lists_the_bandits_that_it_may_read(serving: Serving, store: Store) -> None:
    """With the address of their routes; a key with another scope lists none."""
    bandit_key, full_key = make(store, "read", bandits=("guarded",)), make(store, "read")
    decide = make(store, "decide")
    eventually(lambda: answers(serving.url, decide, "/v1") == 403)
    with Client(serving.url, bandit="guarded", key=full_key.key) as client:
        assert [bandit.bandit for bandit in client.bandits()] == ["guarded", "other"]
    with Client(serving.url, bandit="guarded", key=bandit_key.key) as client:
        (bandit,) = client.bandits()
    assert (bandit.bandit, bandit.mode, bandit.url) == ("guarded", "learn", "/v1/guarded")


def test_readiness_counts_bandits_that_it_does_not_name(serving: Serving) -> None:
    """Names need a key. Before the first model, the status says that there is none."""
    response = httpx.get(f"{serving.url}/readyz")
    assert response.status_code == 503
    assert response.json() == {
        "status": "no model",
        "stale_bandits": [],
        "other_features": [],
        "stale": 2,
    }


def test_whether_a_bandit_exists_is_not_told(
    http: httpx.Client, serving: Serving, store: Store
) -> None:
    """For a key of another bandit, or without one, the responses are identical."""
    key = make(store, *SCOPES, bandits=("guarded",))
    eventually(lambda: answers(serving.url, key, "/v1/guarded") == 200)
    for route in BANDIT_ROUTES:
        for headers in (key.header, None):
            response, missing = (ask(http, route, name, headers) for name in ("other", "nowhere"))
            assert (response.status_code, response.content) == (
                missing.status_code,
                missing.content,
            )


@pytest.mark.parametrize("route", ROUTES, ids=lambda route: route.path)
def test_without_a_key_only_the_probes_answer(http: httpx.Client, route: Route) -> None:
    """As does the console's page, which asks for a key. Others return 401 with the remedy."""
    answer = ask(http, route, "guarded")
    if route.path in ("/livez", "/readyz", "/console", "/"):
        assert route.scope is None
        assert answer.status_code in (200, 307, 503)
        assert "guarded" not in answer.text
        return
    assert route.scope in SCOPES
    assert answer.status_code == problem_in(answer).status == 401
    assert answer.headers["www-authenticate"] == "Bearer"
    assert "Authorization: Bearer" in problem_in(answer).detail


def wrong_keys() -> list[bytes]:
    """Return invalid values of the header."""
    key = new_key()[0]
    return [
        b"",
        b"Bearer",
        b"Basic dXNlcjpwYXNz",
        key.encode(),
        f"Bearer {key}".encode(),  # whole, and unknown
        f"Bearer {key[:-1]}".encode(),
        f"Bearer  {key}".encode(),
        f"Bearer {key[:-1]}x".encode(),
        b"Bearer " + b"\xff" * 51,
        b"Bearer blt_" + b"x" * 50_000,
        b"Bearer ' OR 1=1 --",
    ]


@pytest.mark.parametrize("value", wrong_keys())
def test_what_is_no_key_is_refused_and_not_repeated(http: httpx.Client, value: bytes) -> None:
    """401, without any part of the value."""
    answer = http.get("/v1/guarded", headers=[(b"authorization", value)])
    assert answer.status_code in (401, 431) or (answer.status_code == 400 and len(value) > 50_000)
    assert not value[20:] or value[20:] not in answer.content


def test_the_problem_says_whether_a_key_is_mistyped(http: httpx.Client) -> None:
    """So that a mistyped key is not mistaken for a revoked one."""
    key = new_key()[0]
    details = [
        problem_in(http.get("/v1/guarded", headers={"authorization": f"Bearer {secret}"})).detail
        for secret in (key[:-1], key)
    ]
    assert "mistyped" in details[0]
    assert "unknown or revoked API key" in details[1]


def test_a_scheme_is_read_in_any_case(http: httpx.Client, serving: Serving, store: Store) -> None:
    """As in RFC 9110."""
    key = make(store, "read")
    eventually(lambda: answers(serving.url, key, "/metrics") == 200)
    for scheme in ("bearer", "BEARER"):
        headers = {"authorization": f"{scheme} {key.key}"}
        assert http.get("/metrics", headers=headers).status_code == 200


def test_a_revoked_key_works_no_more_within_two_seconds(
    serving: Serving, store: Store, full: bool
) -> None:
    """A new one becomes valid as quickly."""
    key = make(store, "read")
    seconds = 2.0 if full else 10.0  # beside other tests
    eventually(lambda: answers(serving.url, key, "/v1/guarded") == 200, seconds=seconds)
    revoke(store, key.id)
    eventually(lambda: answers(serving.url, key, "/v1/guarded") == 401, seconds=seconds)


def test_a_key_that_asks_too_often_waits(
    http: httpx.Client, serving: Serving, store: Store
) -> None:
    """429 says when to retry; the client does, and other callers are unaffected."""
    slow_key, fast_key = make(store, "read", rate=0.5), make(store, "read")
    eventually(lambda: answers(serving.url, fast_key, "/metrics") == 200)
    assert http.get("/v1/guarded", headers=slow_key.header).status_code == 200
    answer = http.get("/v1/guarded", headers=slow_key.header)
    assert answer.status_code == problem_in(answer).status == 429
    assert answer.headers["retry-after"] in ("1", "2")
    assert http.get("/v1/guarded", headers=fast_key.header).status_code == 200
    with Client(serving.url, bandit="guarded", key=slow_key.key) as client:
        assert client.state().bandit == "guarded"


def test_the_verbs_with_a_key(serving: Serving, store: Store) -> None:
    """A client with a key can do everything; without one it gets an error without the key."""
    key = make(store, "decide", "reward", bandits=("guarded",))
    eventually(lambda: answers(serving.url, key, "/metrics") == 403)
    with Client(serving.url, bandit="guarded", key=key.key) as client:
        assert client.observe(client.decide(rows=ROWS).id, 1.0).status == "accepted"
        with pytest.raises(ServiceError, match="403") as error:
            client.state()
        assert key.key not in repr(error.value)
    with Client(serving.url, bandit="guarded") as client, pytest.raises(ServiceError, match="401"):
        client.decide(rows=ROWS)


def test_known_keys_work_while_database_is_unavailable(own_server: PostgresServer) -> None:
    """Authorization does not depend on it: 503 if the journal is needed, never 401."""
    key = make(open_store(own_server.dsn), "read", "decide")
    with served(Service(two(), own_server.dsn, auth="keys")) as serving:
        assert answers(serving.url, key, "/v1/guarded") == 200
        own_server.stop()
        time.sleep(1.5)  # longer than until the next look
        assert answers(serving.url, key, "/v1/guarded") == 200
        text = httpx.get(f"{serving.url}/metrics", headers=key.header).text
        assert "belated_active_api_keys 1.0" in text


def test_neither_logs_nor_metrics_know_a_key(
    http: httpx.Client, serving: Serving, store: Store, caplog: pytest.LogCaptureFixture
) -> None:
    """Whether it is valid or not."""
    valid_key, unknown_key = make(store, "read"), new_key()[0]
    with caplog.at_level(logging.DEBUG):
        eventually(lambda: answers(serving.url, valid_key, "/metrics") == 200)
        for path in ("/v1/guarded", "/v1/nowhere", f"/{unknown_key}", f"/v1/{unknown_key}"):
            for key in (valid_key.key, unknown_key):
                http.get(path, headers={"authorization": f"Bearer {key}"})
        metrics = http.get("/metrics", headers=valid_key.header).text
    records = [record for record in caplog.records if record.name.startswith("belated")]
    text = metrics + "".join(map(repr, (vars(record) for record in records)))
    assert valid_key.key not in text
    assert unknown_key not in text


# --- where they are kept -------------------------------------------------------------------------


@pytest.fixture
def keys(store: Store) -> Iterator[KeyStore]:
    """The keys in the store."""
    key_store = store.keys()
    yield key_store
    key_store.close()


def add(keys: KeyStore, name: str) -> str | None:
    """Add a key with a name; return its id, or None if it was rejected."""
    key, id = new_key()
    return id if keys.create(id, name, ["*"], ["read"], None, hash_of(key)) else None


def test_there_are_two_keys_at_most_under_a_name(keys: KeyStore) -> None:
    """So that one can be replaced, and old ones do not accumulate; revoked ones do not count."""
    first, second = add(keys, "shop"), add(keys, "shop")
    assert first is not None
    assert second is not None
    assert add(keys, "shop") is None
    assert add(keys, "another shop") is not None
    assert keys.revoke(first)
    assert keys.revoke(first)  # again changes nothing
    third = add(keys, "shop")
    assert third is not None
    shop_keys = [key for key in keys.all() if key.name == "shop"]
    assert [key.id for key in shop_keys] == [third, second, first]
    assert [key.revoked is None for key in shop_keys] == [True, True, False]
    assert {key.id for key in keys.live() if key.name == "shop"} == {second, third}
    assert not keys.revoke("nobody")


def test_a_service_need_not_be_able_to_make_keys(dsn: str) -> None:
    """A PostgreSQL role that can only read them knows all, and can add none."""
    key = make(open_store(dsn), "read")
    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute(
            "CREATE ROLE doorman LOGIN; GRANT USAGE ON SCHEMA belated TO doorman;"
            "GRANT SELECT ON belated.cell, belated.migration TO doorman"
        )
        keys = open_store(dsn.replace("belated@", "doorman@")).keys()
        try:
            assert key.id in [live_key.id for live_key in keys.live()]
            with pytest.raises(JournalError, match="permission denied"):
                add(keys, "break-in")
            with pytest.raises(JournalError, match="permission denied"):
                keys.revoke(key.id)
        finally:
            keys.close()
            connection.execute("DROP OWNED BY doorman; DROP ROLE doorman")


def test_the_store_holds_no_key(keys: KeyStore, store: Store, address: str) -> None:
    """Only hashes: a leaked backup contains none."""
    key = make(store, "read")
    content = everything(address)
    assert key.id.encode() in content
    assert key.key[13:].encode() not in content
    assert hash_of(key.key) in [live_key.hash for live_key in keys.live()]


def everything(address: str) -> bytes:
    """Return everything that is stored about keys."""
    if address.startswith("sqlite:"):
        path = Path(address.removeprefix("sqlite:///"))
        return b"".join(file.read_bytes() for file in path.parent.glob(f"{path.name}*"))
    with psycopg.connect(address) as connection:
        row = connection.execute("SELECT value FROM belated.cell WHERE name = 'keys'").fetchone()
    assert row is not None
    return bytes(row[0])
