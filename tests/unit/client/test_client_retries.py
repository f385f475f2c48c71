"""The clients' rules for trying again: those of the one that blocks and of the one for asyncio.

The server is a mock (`httpx.MockTransport`), and so is the sleep: when a request is lost, refused
or late, and for how long the client waits then, cannot be timed with a real one. What the service
itself does is in tests/integration/http.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime

import httpx
import msgspec
import pytest

from belated.client import Client
from belated.core.ids import key_of, slot_of
from belated.exceptions import InvalidInput, ServiceError, ServiceUnavailable
from belated.fold.receipts import Receipt
from belated.wire.messages import DecisionRequest, DecisionRequests, ManyDecided, Problem
from tests.unit.client.mock import DECIDED, ROWS, Answer, Mock, answer

AWAY = Problem("Try again", 503, "the journal is unavailable")


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
    assert mock.client().decide(rows=ROWS) == DECIDED
    assert len(mock.asked) == 3


@pytest.mark.parametrize("status", [301, 400, 401, 404, 405, 409, 413, 422, 500])
def test_what_will_not_pass_is_not_tried_again(status: int) -> None:
    """An answer that says no is an answer."""
    mock = Mock(answer(status, Problem("No", status, "no")))
    with pytest.raises((InvalidInput, ServiceError)):
        mock.client().decide(rows=ROWS)
    assert len(mock.asked) == 1


def test_new_ids_have_the_slot_of_the_last_answer() -> None:
    """So that a commit fills one partition; an id of the caller's is sent as it is."""
    slotted = msgspec.structs.replace(DECIDED, slot=5)
    many = ManyDecided([DECIDED, DECIDED], slot=9)
    mock = Mock(answer(201, slotted), answer(201, many), answer(201, slotted), answer(201, DECIDED))
    client = mock.client()
    assert client.decide(rows=ROWS) == DECIDED
    client.decide_many(rows=[ROWS, ROWS])
    client.decide(rows=ROWS)
    client.decide(rows=ROWS, id="order-17")
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
        mock.client(retries=8).decide(rows=ROWS)
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
    mock.client().decide(rows=ROWS)
    assert len(mock.waits) == 1
    assert least <= mock.waits[0] <= most


def test_nobody_waits_for_an_hour() -> None:
    """A service that asks for longer than is sensible is given up at once."""
    mock = Mock(answer(503, AWAY, retry_after="3600"))
    with pytest.raises(ServiceUnavailable, match="journal is unavailable") as caught:
        mock.client().decide(rows=ROWS)
    assert (len(mock.asked), mock.waits) == (1, [])
    assert caught.value.problem == AWAY


def test_the_id_is_made_here_and_fresh_only_once() -> None:
    """All tries have the same id; only the first says that it was never sent before."""
    mock = Mock(answer(503, AWAY), answer(502), answer(201, DECIDED))
    mock.client().decide(rows=ROWS)
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
    assert mock.client().decide_many(rows=[ROWS, ROWS]) == [DECIDED, DECIDED]
    first, second = [one.requests for one in mock.bodies(DecisionRequests)]
    assert [one.first_attempt for one in first + second] == [True, True, False, False]
    assert [one.id for one in first] == [one.id for one in second]


def test_an_id_of_ones_own_is_never_fresh() -> None:
    """Only the caller knows whether it was sent before."""
    mock = Mock(answer(201, DECIDED))
    mock.client().decide(rows=ROWS, id="order 17")
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
