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
    with served(Service(two(), store, auth="keys")) as found:
        yield found


@pytest.fixture
def http(serving: Serving) -> Iterator[httpx.Client]:
    """A plain HTTP client."""
    with httpx.Client(base_url=serving.url) as found:
        yield found


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
    narrow = make(store, scope, bandits=("guarded",))
    wide = make(store, scope)
    eventually(lambda: 401 not in {answers(serving.url, key, "/metrics") for key in (narrow, wide)})
    asked = 0
    journal = store.journal("other")
    for route in ROUTES:
        may = route.scope in (None, scope)
        allowed: tuple[int, ...] = (200, 201, 202, 307, 503)
        if route is EVALUATE:  # which the bandits refuse, because they have no features
            allowed = (400,)
        for bandit in ("guarded", "other", "nowhere") if "{bandit}" in route.path else ("",):
            before = journal.end(0)
            with_narrow = ask(http, route, bandit, narrow.header)
            assert journal.end(0) == before  # it has done nothing to the other
            with_wide = ask(http, route, bandit, wide.header)
            if bandit in ("guarded", "") and may and not route.everywhere:
                assert with_narrow.status_code in allowed, with_narrow.text
            else:
                assert with_narrow.status_code == 403
                assert ("--bandit '*'" in with_narrow.text) == route.everywhere
            if not may:
                assert with_wide.status_code == 403
            elif bandit == "nowhere":
                assert with_wide.status_code == 404
            else:
                assert with_wide.status_code in allowed, with_wide.text
            asked += 1
    assert asked == len(ROUTES) + 2 * sum("{bandit}" in route.path for route in ROUTES)
    journal.close()


def test_a_key_lists_the_bandits_that_it_may_read(serving: Serving, store: Store) -> None:
    """With the address of their routes; a key with another scope lists none."""
    narrow, wide = make(store, "read", bandits=("guarded",)), make(store, "read")
    decide = make(store, "decide")
    eventually(lambda: answers(serving.url, decide, "/v1") == 403)
    with Client(serving.url, bandit="guarded", key=wide.key) as client:
        assert [one.bandit for one in client.bandits()] == ["guarded", "other"]
    with Client(serving.url, bandit="guarded", key=narrow.key) as client:
        (found,) = client.bandits()
    assert (found.bandit, found.mode, found.url) == ("guarded", "learn", "/v1/guarded")


def test_readiness_counts_bandits_that_it_does_not_name(serving: Serving) -> None:
    """Names need a key. Before the first model, the status says that there is none."""
    found = httpx.get(f"{serving.url}/readyz")
    assert found.status_code == 503
    assert found.json() == {
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
            known, unknown = (ask(http, route, name, headers) for name in ("other", "nowhere"))
            assert (known.status_code, known.content) == (unknown.status_code, unknown.content)


@pytest.mark.parametrize("route", ROUTES, ids=lambda one: one.path)
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
    said = [
        problem_in(http.get("/v1/guarded", headers={"authorization": f"Bearer {one}"})).detail
        for one in (key[:-1], key)
    ]
    assert "mistyped" in said[0]
    assert "unknown or revoked API key" in said[1]


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
    slow, other = make(store, "read", rate=0.5), make(store, "read")
    eventually(lambda: answers(serving.url, other, "/metrics") == 200)
    assert http.get("/v1/guarded", headers=slow.header).status_code == 200
    answer = http.get("/v1/guarded", headers=slow.header)
    assert answer.status_code == problem_in(answer).status == 429
    assert answer.headers["retry-after"] in ("1", "2")
    assert http.get("/v1/guarded", headers=other.header).status_code == 200
    with Client(serving.url, bandit="guarded", key=slow.key) as client:
        assert client.state().bandit == "guarded"


def test_the_verbs_with_a_key(serving: Serving, store: Store) -> None:
    """A client with a key can do everything; without one it gets an error without the key."""
    key = make(store, "decide", "reward", bandits=("guarded",))
    eventually(lambda: answers(serving.url, key, "/metrics") == 403)
    with Client(serving.url, bandit="guarded", key=key.key) as client:
        assert client.observe(client.decide(rows=ROWS).id, 1.0).status == "accepted"
        with pytest.raises(ServiceError, match="403") as caught:
            client.state()
        assert key.key not in repr(caught.value)
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
    good, bad = make(store, "read"), new_key()[0]
    with caplog.at_level(logging.DEBUG):
        eventually(lambda: answers(serving.url, good, "/metrics") == 200)
        for path in ("/v1/guarded", "/v1/nowhere", f"/{bad}", f"/v1/{bad}"):
            for key in (good.key, bad):
                http.get(path, headers={"authorization": f"Bearer {key}"})
        metrics = http.get("/metrics", headers=good.header).text
    ours = [one for one in caplog.records if one.name.startswith("belated")]
    said = metrics + "".join(map(repr, (vars(one) for one in ours)))
    assert good.key not in said
    assert bad not in said


# --- where they are kept -------------------------------------------------------------------------


@pytest.fixture
def keys(store: Store) -> Iterator[KeyStore]:
    """The keys in the store."""
    found = store.keys()
    yield found
    found.close()


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
    mine = [one for one in keys.all() if one.name == "shop"]
    assert [one.id for one in mine] == [third, second, first]
    assert [one.revoked is None for one in mine] == [True, True, False]
    assert {one.id for one in keys.live() if one.name == "shop"} == {second, third}
    assert not keys.revoke("nobody")


def test_a_service_need_not_be_able_to_make_keys(dsn: str) -> None:
    """A PostgreSQL role that can only read them knows all, and can add none."""
    made = make(open_store(dsn), "read")
    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute(
            "CREATE ROLE doorman LOGIN; GRANT USAGE ON SCHEMA belated TO doorman;"
            "GRANT SELECT ON belated.cell, belated.migration TO doorman"
        )
        keys = open_store(dsn.replace("belated@", "doorman@")).keys()
        try:
            assert made.id in [one.id for one in keys.live()]
            with pytest.raises(JournalError, match="permission denied"):
                add(keys, "break-in")
            with pytest.raises(JournalError, match="permission denied"):
                keys.revoke(made.id)
        finally:
            keys.close()
            connection.execute("DROP OWNED BY doorman; DROP ROLE doorman")


def test_the_store_holds_no_key(keys: KeyStore, store: Store, address: str) -> None:
    """Only hashes: a leaked backup contains none."""
    made = make(store, "read")
    kept = everything(address)
    assert made.id.encode() in kept
    assert made.key[13:].encode() not in kept
    assert hash_of(made.key) in [one.hash for one in keys.live()]


def everything(address: str) -> bytes:
    """Return everything that is stored about keys."""
    if address.startswith("sqlite:"):
        path = Path(address.removeprefix("sqlite:///"))
        return b"".join(one.read_bytes() for one in path.parent.glob(f"{path.name}*"))
    with psycopg.connect(address) as connection:
        found = connection.execute("SELECT value FROM belated.cell WHERE name = 'keys'").fetchone()
    assert found is not None
    return bytes(found[0])
