"""Twelve kinds of bad input: each is answered with a documented problem, and nothing is kept.

The numbers are those of the list in the threat model.
"""

from __future__ import annotations

import base64
import gzip
import json
import logging
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx
import msgspec
import pytest

from belated import Bernoulli, DelayedUCB, Explicit, Shared
from belated.journals import PostgresJournal
from belated.service import Definition, create_app
from belated.service.openapi import describe
from belated.service.problems import Problem
from belated.service.routes import BANDIT_ROUTES, find
from belated.service.tokens import TokenKeys
from tests.integration.keyrings import Made, known
from tests.integration.serving import Serving, served

#: Stands in what is sent wherever text can be: it must turn up nowhere.
MARK = "mArKeR"
ROW = [1.0, 0.5]
ROWS = [ROW, [0.0, 1.0]]
NOW = time.time_ns() // 1_000
SHARED = Shared(context=["age"], action=["price"])
OFFER = "/v1/refusing/decisions"
BATCH = f"{OFFER}/batch"
REWARD = f"{OFFER}/{MARK}/reward"
REWARDS = "/v1/refusing/rewards/batch"
FEATURES = "/v1/refusing shared/decisions"


@pytest.fixture(scope="module")
def serving(dsn: str) -> Iterator[Serving]:
    """A service with keys and tokens, of two bandits."""
    bandits = [
        Definition("refusing", DelayedUCB(2, Bernoulli()), Explicit(), tokens="enforce"),
        Definition(
            "refusing shared", DelayedUCB(SHARED.dim, Bernoulli()), Explicit(), features=SHARED
        ),
    ]
    keys = TokenKeys({"k1": bytes(range(32))})
    app = create_app(bandits, dsn, auth="keys", token_keys=keys, body_limit=4_000_000)
    with served(app) as found:
        yield found


@pytest.fixture(scope="module")
def key(dsn: str, serving: Serving) -> Made:
    """One that may do all."""
    return known(dsn, serving.url)


@pytest.fixture(scope="module")
def http(serving: Serving, key: Made) -> Iterator[httpx.Client]:
    """Plain requests with the key."""
    with httpx.Client(base_url=serving.url, headers=key.header, timeout=30) as found:
        yield found


@pytest.fixture(scope="module")
def length(dsn: str) -> Iterator[Any]:
    """Gives how much is in the journals."""
    journals = [PostgresJournal(dsn, bandit=name) for name in ("refusing", "refusing shared")]
    yield lambda: [len(one.read(0, 0, 100_000)) for one in journals]
    for one in journals:
        one.close()


def offer(**more: Any) -> dict[str, Any]:
    """One that is right but for what is given."""
    return {"rows": ROWS, **more}


def wide(value: float) -> dict[str, Any]:
    """An offer with one number."""
    return {"rows": [[1.0, value]]}


def nested(depth: int) -> bytes:
    """A context that is nested so deeply."""
    return b'{"context":{"a":' + b"[" * depth + b"]" * depth + b"}}"


CASES: list[tuple[int, str, str, Any, set[int]]] = [
    # 1. what is no number
    *[(1, "POST", OFFER, b'{"rows":[[1,%s]]}' % one, {400, 422})
      for one in (b"NaN", b"Infinity", b"-Infinity", b'"NaN"', b"1e400", b"-1e400", b"null")],
    *[(1, "PUT", REWARD, b'{"value":%s}' % one, {400, 422})
      for one in (b"NaN", b"Infinity", b"-Infinity", b'"NaN"', b"1e400", b"true", b"[]")],
    (1, "POST", OFFER, {"rows": base64.b64encode(b"\xff" * 8).decode()}, {422}),
    # 2. too much
    (2, "POST", OFFER, b" " * 4_000_001, {413}),
    (2, "POST", OFFER, iter([b" " * 1_000_000] * 5), {413}),
    (2, "POST", OFFER, gzip.compress(b" " * 100_000_000), {400}),  # nothing is unpacked
    # 3. too deep, too long
    (3, "POST", OFFER, nested(100_000), {400}),
    (3, "POST", OFFER, b'{"context":' + b'{"a":' * 100_000, {400}),
    (3, "POST", OFFER, b'{"context":{"a":' + b"9" * 100_000 + b"}}", {422}),
    (3, "POST", OFFER, b'{"rows":[[1,' + b"9" * 100_000 + b"]]}", {422}),
    (3, "PUT", REWARD, b'{"value":1,"at":' + b"9" * 100_000 + b"}", {422}),
    (3, "PUT", REWARD, b'{"value":0.' + b"9" * 100_000 + b'e999}', {422}),
    # 4. no text
    (4, "POST", OFFER, b'{"id":"\xff"}', {400}),
    (4, "POST", OFFER, b'{"id":"\\ud800"}', {400}),
    (4, "POST", OFFER, offer(id="a\0b"), {422}),
    (4, "PUT", REWARD, {"value": 1, "part": "a\0b"}, {422}),
    (4, "PUT", f"{OFFER}/%FF/reward", {"value": 1}, {400}),
    (4, "PUT", f"{OFFER}/%00/reward", {"value": 1}, {422}),
    (4, "POST", OFFER, "ä".encode("utf-16"), {400}),
    # 7. tokens
    (7, "PUT", REWARD, {"value": 1, "token": MARK}, {403}),
    (7, "PUT", REWARD, {"value": 1, "token": MARK * 100}, {422}),
    (7, "POST", REWARDS, {"rewards": [{"id": "a", "value": 1, "token": MARK}]}, {403}),
    # 8. rewards out of range
    *[(8, "PUT", REWARD, {"value": one}, {422}) for one in (-1e-300, 1.0000001, 1e308, -1e308)],
    (8, "POST", REWARDS, {"rewards": [{"id": "a", "value": 1}, {"id": "b", "value": 2}]}, {422}),
    # 9. what a client may not say
    *[(9, "POST", OFFER, offer(**{field: 1}), {422})
      for field in ("propensity", "model", "recorded", "index", "mean", "at", "x", "token")],
    *[(9, "PUT", REWARD, {"value": 1, field: 1}, {422})
      for field in ("recorded", "propensity", "model", "status", "id")],
    *[(9, "PUT", REWARD, {"value": 1, "at": at}, {422})
      for at in (0, 1_700_000_000, 1_700_000_000_000, -1, NOW + 10 * 86_400_000_000, 1 << 62)],
    *[(9, "DELETE", f"{OFFER}/a?at={at}", b"", {422}) for at in (0, 1_700_000_000, 1 << 62)],
    (9, "PUT", f"{OFFER}/a/activation?recorded=1", b"", {422}),
    # 10. actions
    (10, "POST", OFFER, {"rows": []}, {422}),
    (10, "POST", OFFER, {"rows": [], "actions": []}, {422}),
    (10, "POST", OFFER, offer(actions=["a", "a"]), {422}),
    (10, "POST", OFFER, offer(actions=["a"]), {422}),
    (10, "POST", OFFER, {"rows": [ROW] * 1_001}, {422}),
    (10, "POST", OFFER, {"rows": [ROW] * 100_000}, {422}),
    (10, "POST", OFFER, {"rows": base64.b64encode(bytes(8 * 1_001)).decode()}, {422}),
    (10, "POST", OFFER, offer(actions=list(range(1_001))), {422}),
    (10, "POST", OFFER, offer(actions=["a", MARK * 30]), {422}),
    (10, "POST", FEATURES,
     {"context": {"age": 1}, "actions": {str(n): {"price": 1} for n in range(1_001)}}, {422}),
    (10, "POST", BATCH, {"offers": [offer()] * 1_001}, {422}),
    (10, "POST", REWARDS, {"rewards": [{"id": "a", "value": 1}] * 1_001}, {422}),
    # 11. rows
    (11, "POST", OFFER, {"rows": [[1.0]]}, {422}),
    (11, "POST", OFFER, {"rows": [[1.0, 2.0, 3.0]]}, {422}),
    (11, "POST", OFFER, {"rows": [ROW, [1.0]]}, {422}),
    *[(11, "POST", OFFER, wide(one), {422}) for one in (1e300, -1e300, 1e9)],
    (11, "POST", OFFER, {"rows": "AAAA"}, {422}),
    (11, "POST", FEATURES, {"context": {}, "actions": {"a": {"price": 1}}}, {422}),
    (11, "POST", FEATURES, {"context": {"age": MARK}, "actions": {"a": {"price": 1}}}, {422}),
    # 12. hostile strings
    (12, "POST", OFFER, offer(id=MARK * 200_000), {422}),
    (12, "PUT", f"{OFFER}/{MARK * 30}/reward", {"value": 1}, {422}),
    (12, "GET", f"/v1/{MARK}", b"", {404}),
    (12, "GET", f"/{MARK}", b"", {404}),
    (12, MARK.upper(), f"/v1/refusing/{MARK}", b"", {400, 404, 405}),
    (12, "PATCH", f"{OFFER}/{MARK}", b"", {405}),
]  # fmt: skip


@pytest.mark.parametrize(
    ("number", "method", "path", "body", "statuses"),
    CASES,
    ids=[f"{case[0]}-{at}" for at, case in enumerate(CASES)],
)
def test_it_is_refused_and_nothing_is_kept(
    http: httpx.Client,
    key: Made,
    length: Any,
    caplog: pytest.LogCaptureFixture,
    number: int,
    method: str,
    path: str,
    body: Any,
    statuses: set[int],
) -> None:
    """With a problem that is documented; neither log nor metrics repeat what was sent."""
    before = length()
    content = json.dumps(body).encode() if isinstance(body, dict) else body
    with caplog.at_level(logging.DEBUG):
        answer = http.request(method, path, content=content)
    assert answer.status_code in statuses, answer.text[:300]
    assert length() == before
    if method == MARK.upper():  # no method of HTTP: uvicorn refuses it
        return
    assert msgspec.json.decode(answer.content, type=Problem).status == answer.status_code
    if answer.status_code not in (404, 405):
        route = find(method, path.partition("?")[0].split("/")[3:])
        operation = describe(BANDIT_ROUTES, keys=True, tokens=True)["paths"][route.path][
            method.lower()
        ]
        assert str(answer.status_code) in operation["responses"]
    # The log of all requests is off in `belated serve`; here pytest turns it on.
    ours = [one for one in caplog.records if one.name.startswith(("belated", "uvicorn.error"))]
    said = http.get("/metrics").text + "".join(repr(vars(one)) for one in ours)
    for secret in (MARK, MARK.upper(), key.key):
        assert secret not in said


def test_every_number_has_a_case() -> None:
    """Those that are no problem at all have tests of their own, below and with the keys."""
    assert {case[0] for case in CASES} == set(range(1, 13)) - {5, 6}


@pytest.mark.parametrize("body", [nested(100_000), b'{"context":{"a":' + b"9" * 100_000 + b"}}"])
def test_hostile_json_costs_little(body: bytes) -> None:
    """It is refused within 50 ms."""
    read = find("POST", ["decisions"]).read
    started = time.perf_counter()
    with pytest.raises((RecursionError, msgspec.MsgspecError)):
        read(body)
    assert time.perf_counter() - started < 0.05


def test_of_a_key_that_stands_twice_the_last_counts(http: httpx.Client) -> None:
    """As in nearly every reader of JSON; one in front that takes the first would see another."""
    body = b'{"rows":[[1,0]],"id":"refused first","id":"refused second"}'
    assert http.post(OFFER, content=body).json()["id"] == "refused second"
    twice = b'{"rows":[[1,0]],"actions":["a"],"actions":["b"]}'
    assert http.post(OFFER, content=twice).json()["action"] == "b"


def test_an_id_names_one_decision(http: httpx.Client, length: Any) -> None:
    """5. The same id with other rows is refused; with the same rows it is the same decision."""
    first = http.post(OFFER, json=offer(id="refused 5"))
    before = length()
    assert http.post(OFFER, json=offer(id="refused 5")).json() == first.json()
    assert http.post(OFFER, json={"rows": [[0.25, 0.25]], "id": "refused 5"}).status_code == 422
    assert length() == before


def test_an_id_names_one_decision_also_in_a_crowd(http: httpx.Client) -> None:
    """5. Of two payloads at once one is decided, and nobody gets the decision of the other."""
    payloads = [{"rows": [[0.5, 0.5]]}, {"rows": [[1.0, 0.0], [0.0, 1.0], [0.25, 0.25]]}]
    for turn in range(10):
        id = f"refused crowd {turn}"
        bodies = [body | {"id": id} for body in payloads * 4]
        with ThreadPoolExecutor(8) as crowd:
            found = list(crowd.map(lambda body: http.post(OFFER, json=body), bodies))
        assert {one.status_code for one in found} <= {201, 422}
        counts = http.get(f"{OFFER}/{id}").json()["decision"]
        for body, answer in zip(bodies, found, strict=True):
            rows: Any = body["rows"]
            mine = len(rows) > counts["index"] and rows[counts["index"]] == counts["x"]
            assert mine or answer.status_code == 422, (turn, answer.text)


def test_an_unknown_decision_is_no_problem(http: httpx.Client) -> None:
    """6. A reward for it is taken and parked, alike in all."""
    known = http.post(OFFER, json=offer()).json()["id"]
    found = [http.put(f"{OFFER}/{id}/reward", json={"value": 1}) for id in (known, "refused 6")]
    assert [one.status_code for one in found] == [202, 202]
    assert [one.json()["status"] for one in found] == ["accepted"] * 2
    assert http.get(f"{OFFER}/refused 6").json()["state"] == "parked"


@pytest.mark.parametrize(
    "body",
    [
        *[wide(value) for value in (0.0, -0.0, 1e-300, 5e-324, 1e8)],
        {"rows": [ROW]},
        {"rows": [ROW] * 3},
        {"rows": [[1.0, 2.0], [2.0, 4.0], [3.0, 6.0]]},
        {"rows": [ROW] * 1_000},
    ],
)
def test_what_is_odd_but_right_is_taken(http: httpx.Client, body: dict[str, Any]) -> None:
    """10, 11. One action, rows that are alike, collinear or tiny: a decision all the same."""
    answer = http.post(OFFER, json=body)
    assert answer.status_code == 201, answer.text
    for value in (0.0, -0.0, 5e-324, 1.0):
        place = f"{OFFER}/{answer.json()['id']}/reward"
        assert http.put(place, json={"value": value}).status_code == 202
