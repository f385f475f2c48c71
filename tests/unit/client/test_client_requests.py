"""What clients send, and what they refuse to send."""

from __future__ import annotations

import asyncio
import inspect
import subprocess
import sys
from collections.abc import Callable
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import httpx
import msgspec
import numpy as np
import pandas
import pytest

from belated.client import AsyncClient, Client
from belated.client.transport import Transport
from belated.core.times import Moment
from belated.exceptions import InvalidInput, ServiceError
from belated.wire.messages import MAX_BODY_BYTES, DecisionRequests, Problem
from tests.unit.client.mock import DECIDED, ROWS, Mock, answer


def test_many_requests_go_in_bodies_that_the_service_takes() -> None:
    """At most a thousand in one, and no more bytes than it reads; in order, with their ids."""

    def sizes(rows: np.ndarray[Any, Any], count: int) -> list[int]:
        mock = Mock(answer(201, {"decisions": [DECIDED]}))
        ids = [f"order {n}" for n in range(count)]
        mock.client().decide_many(rows=[rows] * count, ids=ids)
        sent = mock.bodies(DecisionRequests)
        assert [one.id for body in sent for one in body.requests] == ids
        assert max(len(one.content) for one in mock.asked) <= MAX_BODY_BYTES
        return [len(body.requests) for body in sent]

    assert sizes(ROWS, 2_500) == [1_000, 1_000, 500]
    wide = sizes(np.ones((100, 100)), 40)  # 53 kB each
    assert len(wide) == 3
    assert sum(wide) == 40


@pytest.mark.parametrize(
    "at",
    [
        datetime(2026, 11, 16, 12, tzinfo=UTC),
        datetime(2026, 11, 16, 13, tzinfo=timezone(timedelta(hours=1))),
        "2026-11-16T13:00:00+01:00",
        pandas.Timestamp("2026-11-16 12:00", tz="UTC"),
        1_794_830_400_000_000,
    ],
)
def test_a_time_is_sent_as_rfc_3339(at: Moment) -> None:
    """However it is given, in UTC."""
    mock = Mock(answer(202, {"id": "a", "status": "accepted", "accepted": 1}))
    client = mock.client()
    client.observe("a", 1.0, at=at)
    client.observe_many([{"id": "a", "value": 1.0, "at": at}])
    client.void("a", at=at)
    one, many, void = mock.asked
    sent = [msgspec.json.decode(one.content), *msgspec.json.decode(many.content)["rewards"]]
    assert [it["at"] for it in sent] == ["2026-11-16T12:00:00Z"] * 2
    assert void.url.params["at"] == "2026-11-16T12:00:00+00:00"


def test_frames_are_sent_line_by_line() -> None:
    """Contexts with their ids, and rewards with their times."""
    mock = Mock(answer(201, {"decisions": [DECIDED], "accepted": 2}))
    client = mock.client()
    visitors = pandas.DataFrame({"order": ["a", "b"], "age": [41, 18]})
    client.decide_many(visitors, ["red", "blue"], ids="order")
    (body,) = mock.bodies(DecisionRequests)
    assert [(one.id, one.context) for one in body.requests] == [
        ("a", {"age": 41}),
        ("b", {"age": 18}),
    ]
    night = pandas.DataFrame(
        {
            "id": ["a", "b"],
            "value": [1.0, 0.0],
            "at": pandas.to_datetime([1, 2], unit="D", utc=True, origin="2026-01-01"),
        }
    )
    assert [one.id for one in client.observe_many(night)] == ["a", "b"]
    told = msgspec.json.decode(mock.asked[1].content)["rewards"]
    assert [one["at"] for one in told] == ["2026-01-02T00:00:00Z", "2026-01-03T00:00:00Z"]


def test_requests_share_actions_or_have_their_own() -> None:
    """Contexts with the same actions for all, or pairs."""
    mock = Mock(answer(201, {"decisions": [DECIDED]}))
    client = mock.client()
    client.decide_many([{"age": 1}, {"age": 2}], ["red", "blue"])
    client.decide_many([({"age": 1}, ["red"]), ({"age": 2}, ["blue"])], activated=False)
    sent = [
        [(one.context, one.actions) for one in body.requests]
        for body in mock.bodies(DecisionRequests)
    ]
    assert sent == [
        [({"age": 1}, ["red", "blue"]), ({"age": 2}, ["red", "blue"])],
        [({"age": 1}, ["red"]), ({"age": 2}, ["blue"])],
    ]
    assert not any(one.activated for one in mock.bodies(DecisionRequests)[1].requests)


def test_what_is_sent() -> None:
    """Rows as bytes with their width; contexts and records as JSON, also from numpy."""
    mock = Mock(answer(201, DECIDED))
    client = mock.client()
    client.decide(rows=ROWS.tolist(), actions=[1, 2], activated=False)
    client.decide({"age": np.float32(0.5), "tags": ("a", np.int64(3))}, ["red"])
    client.decide(None, {"red": {"price": np.float64(2)}})
    client.decide([0.5, 2], ["red"])
    sent = [msgspec.json.decode(one.content) for one in mock.asked]
    for one in sent:
        del one["id"], one["first_attempt"]
    assert sent == [
        {"rows": "AACAPwAAAAAAAAAAAACAPw==", "dim": 2, "actions": [1, 2], "activated": False},
        {"context": {"age": 0.5, "tags": ["a", 3]}, "actions": ["red"]},
        {"actions": {"red": {"price": 2.0}}},
        {"context": [0.5, 2.0], "actions": ["red"]},
    ]


@pytest.mark.parametrize(
    "wrong",
    [
        lambda client: client.decide(rows=[[1.0, np.nan]]),
        lambda client: client.decide(rows=ROWS, id=""),
        lambda client: client.decide(rows=ROWS, actions=["a", "a"]),
        lambda client: client.decide(rows=ROWS, activated=1),
        lambda client: client.decide(rows=[[[1.0]]]),
        lambda client: client.decide(rows=[[1.0], [1.0, 2.0]]),
        lambda client: client.observe("", 1.0),
        lambda client: client.observe("a", float("nan")),
        lambda client: client.observe("a", 1.0, revision=-1),
        lambda client: client.observe("a", 1.0, at=0.5),
        lambda client: client.observe_many([("a", float("inf"))]),
        lambda client: client.observe_many([{"id": "", "value": 1.0}]),
        lambda client: client.observe_many([{"id": "a", "value": 1.0, "revision": -1}]),
        lambda client: client.decide_many(rows=[ROWS, ROWS], ids=["a", ""]),
        lambda client: client.entry("x" * 129),
        lambda client: Client("http://mock", bandit=""),
        lambda client: Client("http://mock", bandit="a", retries=-1),
    ],
)
def test_what_is_wrong_is_not_sent(wrong: Callable[[Client], object]) -> None:
    """It is refused here, in the words of the library."""
    mock = Mock(answer(422, Problem("Invalid request", 422, "refused")))
    with pytest.raises(InvalidInput) as caught:
        wrong(mock.client())
    if mock.asked:
        assert str(caught.value) == "refused"


def test_the_one_of_many_that_is_wrong_is_named() -> None:
    """And none is sent."""
    mock = Mock(answer(201, {"decisions": []}))
    client = mock.client()
    with pytest.raises(InvalidInput, match=r"^rewards\[1\]: the reward must be .*got 'x'"):
        client.observe_many([("a", 1.0), ("b", "x")])
    with pytest.raises(InvalidInput, match=r"^rewards\[0\]: `at` is 5"):
        client.observe_many([{"id": "a", "value": 1.0, "at": 5}])
    with pytest.raises(InvalidInput, match=r"^rows\[1\]: rows\[0, 1\] is nan"):
        client.decide_many(rows=[ROWS, [[1.0, np.nan]]])
    assert mock.asked == []


def test_an_address_that_is_none() -> None:
    """Said when the client is made, with the address that was meant."""
    for kind in (Client, AsyncClient):
        for url, meant in {
            "decisions:8080": "http://decisions:8080",
            "decisions:8080/v1": "http://decisions:8080",
            "https://decisions/v1/": "https://decisions",
            "ftp://decisions": "http://localhost:8080",
        }.items():
            with pytest.raises(InvalidInput, match=f"pass '{meant}'"):
                kind(url, bandit="a")


def test_both_clients_have_the_same_verbs() -> None:
    """With the same arguments and the same documentation; one of them to be awaited."""

    def verbs(kind: type) -> dict[str, Any]:
        return {name: one for name, one in inspect.getmembers(kind) if not name.startswith("_")}

    assert verbs(Client).keys() == verbs(AsyncClient).keys() >= {"decide", "observe", "close"}
    for name, verb in verbs(Client).items():
        awaited = verbs(AsyncClient)[name]
        assert inspect.signature(verb) == inspect.signature(awaited)
        assert inspect.getdoc(verb) == inspect.getdoc(awaited)
        assert inspect.iscoroutinefunction(awaited)
        assert not inspect.iscoroutinefunction(verb)
    assert inspect.signature(Client) == inspect.signature(AsyncClient)


def test_many_awaited_calls_run_at_once() -> None:
    """While one is waited for, others are sent."""
    under_way, together = 0, 0

    async def handle(request: httpx.Request) -> httpx.Response:
        nonlocal under_way, together
        under_way += 1
        together = max(together, under_way)
        await asyncio.sleep(0)
        under_way -= 1
        return answer(201, DECIDED)

    async def decide() -> None:
        async with AsyncClient("http://mock", bandit="offers") as client:
            await client._transport.close()
            http = httpx.AsyncClient(base_url="http://mock", transport=httpx.MockTransport(handle))
            client._transport = Transport("http://mock", http, asyncio.sleep, retries=0)
            await asyncio.gather(*(client.decide(rows=ROWS) for _ in range(8)))

    asyncio.run(decide())
    assert together == 8


def test_something_else_that_answers() -> None:
    """The response of a proxy is not mistaken for one of the service."""
    page = httpx.Response(200, content=b"<html>")
    with pytest.raises(ServiceError, match="unexpected response"):
        Mock(page).client().state()
    with pytest.raises(ServiceError, match="403 Forbidden") as caught:
        Mock(httpx.Response(403, content=b"<html>")).client().state()
    assert caught.value.problem.status == 403


WITHOUT = """
import sys
sys.modules["httpx"] = None
from belated.fold.receipts import Receipt
from belated.client import Client
try:
    Client("http://mock", bandit="a")
except ImportError as error:
    print(error)
"""


def test_a_missing_extra_is_named() -> None:
    """Without httpx the service can be imported, and the client says what to install."""
    ran = subprocess.run(
        [sys.executable, "-c", WITHOUT], capture_output=True, text=True, check=True
    )
    assert "pip install 'belated[client]'" in ran.stdout
