"""The clients' rules for trying again: those of the one that blocks and of the one for asyncio.

The server is a mock (`httpx.MockTransport`), and so is the sleep: when a request is lost, refused
or late, and for how long the client waits then, cannot be timed with a real one. What the service
itself does is in tests/integration/test_service_http.py.
"""

from __future__ import annotations

import asyncio
import inspect
import subprocess
import sys
from collections.abc import Callable
from datetime import UTC, datetime, timedelta, timezone
from email.utils import format_datetime
from typing import Any

import httpx
import msgspec
import numpy as np
import pandas
import pytest

from belated.exceptions import InvalidInput, ServiceError, ServiceUnavailable
from belated.ids import key_of, slot_of
from belated.ledger.receipts import Receipt
from belated.service import AsyncClient, Client
from belated.service.client.transport import AsyncNetwork, BlockingNetwork, Transport
from belated.service.client.verbs import Verbs
from belated.service.wire.answers import Decided, ManyDecided
from belated.service.wire.problem import Problem
from belated.service.wire.requests import MAX_BODY_BYTES, DecisionRequest, DecisionRequests
from belated.times import Moment

Answer = httpx.Response | Exception
ROWS = np.array([[1.0, 0.0], [0.0, 1.0]])


@pytest.fixture(autouse=True, params=[Client, AsyncClient])
def kind(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> type:
    """Every test is run with each client."""
    monkeypatch.setattr(Mock, "kind", request.param)
    found: type = request.param
    return found


class Awaited:
    """An :class:`AsyncClient` whose verbs are awaited here."""

    def __init__(self, client: AsyncClient) -> None:
        self._client = client

    def __getattr__(self, name: str) -> Callable[..., Any]:
        verb = getattr(self._client, name)
        return lambda *arguments, **named: asyncio.run(verb(*arguments, **named))


class Mock:
    """A service that answers as told, and notes what it is asked and how long it is waited for."""

    kind: type = Client

    def __init__(self, *answers: Answer) -> None:
        self.answers = list(answers)
        self.asked: list[httpx.Request] = []
        self.waits: list[float] = []

    def handle(self, request: httpx.Request) -> httpx.Response:
        """The next answer; the last one for ever."""
        self.asked.append(request)
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        if isinstance(answer, Exception):
            raise answer
        # Another one each time: a client keeps what it has read in it.
        return httpx.Response(answer.status_code, content=answer.content, headers=answer.headers)

    async def sleep(self, seconds: float) -> None:
        """Note it."""
        self.waits.append(seconds)

    def client(self, retries: int = 3) -> Client:
        """A client whose calls end here."""
        here, url = httpx.MockTransport(self.handle), "http://mock"
        if self.kind is AsyncClient:
            awaited = AsyncNetwork(httpx.AsyncClient(base_url=url, transport=here), self.sleep)
            waits = AsyncClient(url, bandit="offers")
            waits._transport = Transport(url, awaited, retries=retries)
            return Awaited(waits)  # type: ignore[return-value]  # it looks like one
        blocking = BlockingNetwork(httpx.Client(base_url=url, transport=here), self.waits.append)
        client = Client(url, bandit="offers")
        client._verbs = Verbs("offers", Transport(url, blocking, retries=retries))
        return client

    def bodies(self, kind: Any) -> list[Any]:
        """What came, as it is meant."""
        return [msgspec.json.decode(one.content, type=kind) for one in self.asked]


def answer(status: int, content: object = None, **headers: str) -> httpx.Response:
    """One of the service's."""
    data = b"" if content is None else msgspec.json.encode(content)
    names = {name.replace("_", "-"): value for name, value in headers.items()}
    return httpx.Response(status, content=data, headers=names)


DECIDED = Decided("a1", "red", 0, 0.5, 0.1, 7, datetime(2026, 11, 16, tzinfo=UTC))
AWAY = Problem("Try again", 503, "the journal cannot be reached now")


@pytest.mark.parametrize(
    "failure",
    [
        httpx.ConnectError("refused"),
        httpx.ConnectTimeout("late"),
        httpx.ReadTimeout("late"),
        httpx.WriteError("broken"),
        httpx.RemoteProtocolError("disconnected"),
        answer(429, Problem("Too many requests", 429)),
        answer(502),
        answer(503, AWAY),
        answer(504, None, content_type="text/html"),
    ],
    ids=lambda one: type(one).__name__ if isinstance(one, Exception) else str(one.status_code),
)
def test_what_may_pass_is_tried_again(failure: Answer) -> None:
    """No connection, no answer in time, a server that cannot answer now, or so often."""
    mock = Mock(failure, failure, answer(201, DECIDED))
    assert mock.client().decide(ROWS) == DECIDED
    assert len(mock.asked) == 3


@pytest.mark.parametrize("status", [301, 400, 401, 404, 405, 409, 413, 422, 500])
def test_what_will_not_pass_is_not_tried_again(status: int) -> None:
    """An answer that says no is an answer."""
    mock = Mock(answer(status, Problem("No", status, "no")))
    with pytest.raises((InvalidInput, ServiceError)):
        mock.client().decide(ROWS)
    assert len(mock.asked) == 1


def test_new_ids_have_the_slot_of_the_last_answer() -> None:
    """So that a commit fills one partition; an id of the caller's is sent as it is."""
    slotted = msgspec.structs.replace(DECIDED, slot=5)
    many = ManyDecided([DECIDED, DECIDED], slot=9)
    mock = Mock(answer(201, slotted), answer(201, many), answer(201, slotted), answer(201, DECIDED))
    client = mock.client()
    assert client.decide(ROWS) == DECIDED
    client.decide_many([ROWS, ROWS])
    client.decide(ROWS)
    client.decide(ROWS, id="order-17")
    first, both, last, own = (msgspec.json.decode(one.content) for one in mock.asked)
    assert first["id"] != both["requests"][0]["id"]
    assert [slot_of(key_of(one["id"])) for one in both["requests"]] == [5, 5]
    assert slot_of(key_of(last["id"])) == 9
    assert own["id"] == "order-17"


def test_tries_are_bounded_and_waits_double_with_jitter(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each wait is a random part of twice the last, and of ten seconds at most."""
    most: list[float] = []

    def half(low: float, high: float) -> float:
        most.append(high)
        return (low + high) / 2

    monkeypatch.setattr("random.uniform", half)
    mock = Mock(httpx.ReadTimeout("late"))
    with pytest.raises(ServiceUnavailable, match="ReadTimeout") as caught:
        mock.client(retries=8).decide(ROWS)
    assert len(mock.asked) == 9
    assert isinstance(caught.value.__cause__, httpx.ReadTimeout)
    assert isinstance(caught.value, OSError)
    assert most[:8] == pytest.approx([0.1, 0.2, 0.4, 0.8, 1.6, 3.2, 6.4, 10.0])
    assert mock.waits == [high / 2 for high in most[:8]]


@pytest.mark.parametrize(
    ("after", "least", "most"),
    [
        ("2", 2.0, 2.0),
        ("0", 0.0, 0.1),
        ("soon", 0.0, 0.1),
        (timedelta(seconds=8), 0.5, 8.0),
        (timedelta(days=-1), 0.0, 0.1),
    ],
)
def test_the_service_says_when_to_come_back(
    after: str | timedelta, least: float, most: float
) -> None:
    """Retry-After in seconds or as a date; nonsense is passed over."""
    if isinstance(after, timedelta):
        after = format_datetime(datetime.now(UTC) + after, usegmt=True)
    mock = Mock(answer(503, AWAY, retry_after=after), answer(201, DECIDED))
    mock.client().decide(ROWS)
    assert len(mock.waits) == 1
    assert least <= mock.waits[0] <= most


def test_nobody_waits_for_an_hour() -> None:
    """A service that asks for longer than is sensible is given up at once."""
    mock = Mock(answer(503, AWAY, retry_after="3600"))
    with pytest.raises(ServiceUnavailable, match="journal cannot be reached") as caught:
        mock.client().decide(ROWS)
    assert (len(mock.asked), mock.waits) == (1, [])
    assert caught.value.problem == AWAY


def test_the_id_is_made_here_and_fresh_only_once() -> None:
    """All tries have the same id; only the first says that it was never sent before."""
    mock = Mock(answer(503, AWAY), answer(502), answer(201, DECIDED))
    mock.client().decide(ROWS)
    offers = mock.bodies(DecisionRequest)
    assert [one.first_attempt for one in offers if isinstance(one, DecisionRequest)] == [
        True,
        False,
        False,
    ]
    (id,) = {one.id for one in offers if isinstance(one, DecisionRequest)}
    assert id is not None
    assert key_of(id).hex() == id

    mock = Mock(answer(503, AWAY), answer(201, {"decisions": [DECIDED, DECIDED]}))
    assert mock.client().decide_many([ROWS, ROWS]) == [DECIDED, DECIDED]
    first, second = [one.requests for one in mock.bodies(DecisionRequests)]
    assert [one.first_attempt for one in first + second] == [True, True, False, False]
    assert [one.id for one in first] == [one.id for one in second]


def test_an_id_of_ones_own_is_never_fresh() -> None:
    """Only the caller knows whether it was sent before."""
    mock = Mock(answer(201, DECIDED))
    mock.client().decide(ROWS, id="order 17")
    (offer,) = mock.bodies(DecisionRequest)
    assert isinstance(offer, DecisionRequest)
    assert (offer.id, offer.first_attempt) == ("order 17", False)


def test_a_reward_is_the_same_event_in_every_try() -> None:
    """Its time is fixed before the first, so the journal keeps it once."""
    tell: list[Callable[[Client], Receipt]] = [
        lambda client: client.observe("a", 1.0),
        lambda client: client.activate("a"),
        lambda client: client.void("a"),
    ]
    for call in tell:
        mock = Mock(answer(503, AWAY), answer(202, {"id": "a", "status": "accepted"}))
        assert call(mock.client()).status == "accepted"
        first, second = mock.asked
        assert (first.url, first.content) == (second.url, second.content)
        assert b"at" in first.content + first.url.query


def test_many_rewards_go_in_requests_of_a_thousand() -> None:
    """However many there are, and from any iterable."""
    mock = Mock(answer(202, {"accepted": 1000}))
    rewards = ((f"r{n}", 1.0) for n in range(2_500))
    receipts = mock.client().observe_many(rewards)
    assert len(mock.asked) == 3
    assert [one.id for one in receipts] == [f"r{n}" for n in range(2_500)]
    told = msgspec.json.decode(mock.asked[2].content)["rewards"]
    assert len(told) == 500
    assert all(datetime.fromisoformat(one["at"]).tzinfo for one in told)
    assert mock.client().observe_many([]) == []
    mock.client().observe_many([{"id": "a", "value": 0.5, "part": "basket", "revision": 2}])
    (told,) = msgspec.json.decode(mock.asked[3].content)["rewards"]
    assert (told["id"], told["value"], told["part"], told["revision"]) == ("a", 0.5, "basket", 2)


def test_many_requests_go_in_bodies_that_the_service_takes() -> None:
    """At most a thousand in one, and no more bytes than it reads; in order, with their ids."""

    def sizes(rows: np.ndarray[Any, Any], count: int) -> list[int]:
        mock = Mock(answer(201, {"decisions": [DECIDED]}))
        ids = [f"order {n}" for n in range(count)]
        mock.client().decide_many([rows] * count, ids=ids)
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
    client.decide(ROWS.tolist(), [1, 2], activated=False)
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
        lambda client: client.decide([[1.0, np.nan]]),
        lambda client: client.decide(ROWS, id=""),
        lambda client: client.decide(ROWS, ["a", "a"]),
        lambda client: client.decide(ROWS, activated=1),
        lambda client: client.decide([[[1.0]]]),
        lambda client: client.decide([[1.0], [1.0, 2.0]]),
        lambda client: client.observe("", 1.0),
        lambda client: client.observe("a", float("nan")),
        lambda client: client.observe("a", 1.0, revision=-1),
        lambda client: client.observe("a", 1.0, at=0.5),
        lambda client: client.observe_many([("a", float("inf"))]),
        lambda client: client.observe_many([{"id": "", "value": 1.0}]),
        lambda client: client.observe_many([{"id": "a", "value": 1.0, "revision": -1}]),
        lambda client: client.decide_many([ROWS, ROWS], ids=["a", ""]),
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
    with pytest.raises(InvalidInput, match=r"^rewards\[1\]: the reward is 'x'"):
        client.observe_many([("a", 1.0), ("b", "x")])
    with pytest.raises(InvalidInput, match=r"^rewards\[0\]: at is 5"):
        client.observe_many([{"id": "a", "value": 1.0, "at": 5}])
    with pytest.raises(InvalidInput, match=r"^requests\[1\]: rows\[0, 1\] is nan"):
        client.decide_many([ROWS, [[1.0, np.nan]]])
    assert mock.asked == []


def test_an_address_that_is_none() -> None:
    """Said at the first call, and not tried again."""
    with Client("decisions:8080", bandit="a") as client, pytest.raises(InvalidInput, match="addr"):
        client.state()

    async def awaited() -> None:
        async with AsyncClient("decisions:8080", bandit="a") as client:
            with pytest.raises(InvalidInput, match="addr"):
                await client.state()

    asyncio.run(awaited())


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
            client._transport = Transport("http://mock", AsyncNetwork(http), retries=0)
            await asyncio.gather(*(client.decide(ROWS) for _ in range(8)))

    asyncio.run(decide())
    assert together == 8


def test_something_else_that_answers() -> None:
    """A proxy that answers in words of its own is no service."""
    page = httpx.Response(200, content=b"<html>")
    with pytest.raises(ServiceError, match="no service of this release"):
        Mock(page).client().state()
    with pytest.raises(ServiceError, match="403 Forbidden") as caught:
        Mock(httpx.Response(403, content=b"<html>")).client().state()
    assert caught.value.problem.status == 403


WITHOUT = """
import sys
sys.modules["httpx"] = None
from belated.ledger.receipts import Receipt
from belated.service import Client
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
