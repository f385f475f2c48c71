"""What clients do without the service: take the fallback, and report it once the service is back.

Against a mock, as in test_client_retries; a real service that stops is in tests/integration/http.
"""

from __future__ import annotations

import math
from datetime import UTC, datetime

import httpx
import msgspec
import pytest

from belated.client import Client
from belated.exceptions import FallbackWarning, InvalidInput, ServiceUnavailable
from belated.wire.messages import (
    Accepted,
    Decided,
    DecisionRequests,
    Fallback,
    ManyDecided,
    Problem,
)
from tests.unit.client.mock import DECIDED, ROWS, Mock, answer

DOWN = httpx.ConnectError("refused")
NAMES = ["red", "blue"]

pytestmark = pytest.mark.filterwarnings("ignore::belated.exceptions.FallbackWarning")


def made(id: str, action: str) -> Decided:
    """What the service answers to a report."""
    return msgspec.structs.replace(DECIDED, id=id, action=action, fallback=True)


@pytest.fixture
def down() -> Mock:
    """A service that cannot be reached at first."""
    return Mock(DOWN)


def test_the_fallback_is_taken_and_reported(down: Mock) -> None:
    """Marked as such; the service then learns what was chosen, when and under which id."""
    client = down.client(retries=0)
    first = client.decide(None, NAMES, rows=ROWS, fallback="blue")
    assert (first.action, first.index, first.propensity, first.fallback) == ("blue", 1, 1.0, True)
    assert math.isnan(first.mean)
    assert datetime.now(UTC) >= first.at
    many = client.decide_many(None, NAMES, rows=[ROWS, ROWS], ids=["a", "b"], fallback="red")
    assert [(one.id, one.action, one.fallback) for one in many] == [
        ("a", "red", True),
        ("b", "red", True),
    ]
    reports = [made(first.id, "blue"), made("a", "red"), made("b", "red")]
    down.answers = [answer(201, DECIDED), answer(201, ManyDecided(reports)), answer(201, DECIDED)]
    down.asked.clear()
    assert client.decide(None, NAMES, rows=ROWS) == DECIDED
    report = msgspec.json.decode(down.asked[1].content, type=DecisionRequests).requests
    assert [(one.id, one.first_attempt) for one in report] == [
        (first.id, False),
        ("a", False),
        ("b", False),
    ]
    assert report[0].fallback == Fallback("blue", first.at)
    assert report[0].actions == NAMES
    assert client.decide(None, NAMES, rows=ROWS) == DECIDED
    assert len(down.asked) == 3  # once


@pytest.mark.parametrize("kind", [Client], indirect=True)
def test_the_warning_shows_the_line_of_the_caller(down: Mock) -> None:
    """And not one of the library, for one decision and for many."""
    client = down.client(retries=0)
    with pytest.warns(FallbackWarning, match="used the fallback 'blue'") as one:
        client.decide(None, NAMES, rows=ROWS, fallback="blue")
    with pytest.warns(FallbackWarning, match="used the fallback 'blue'") as many:
        client.decide_many(None, NAMES, rows=[ROWS], fallback="blue")
    assert {warning.filename for warning in (*one, *many)} == {__file__}


def test_a_lost_answer_is_voided(down: Mock) -> None:
    """The service had decided under the id: what it chose was never shown."""
    client = down.client(retries=0)
    client.decide(None, NAMES, rows=ROWS, id="a1", fallback="blue")
    report = answer(201, ManyDecided([made("a1", "red")]))
    down.answers = [answer(201, DECIDED), report, answer(202, Accepted("a1"))]
    client.decide(None, NAMES, rows=ROWS)
    assert [one.url.path for one in down.asked[-2:]] == [
        "/v1/offers/decisions/batch",
        "/v1/offers/decisions/a1/void",
    ]


def test_a_report_waits_for_the_service(down: Mock) -> None:
    """Reports that fail are sent again; closing sends what is left, or says that it could not."""
    client = down.client(retries=0)
    client.decide(None, NAMES, rows=ROWS, id="a1", fallback="blue")
    down.answers = [answer(201, DECIDED), DOWN]
    assert client.decide(None, NAMES, rows=ROWS) == DECIDED
    with pytest.warns(FallbackWarning, match="1 fallback decision was not reported"):
        client.close()


def test_closing_reports_what_is_left(down: Mock) -> None:
    """So that nothing is lost if no further decision comes."""
    client = down.client(retries=0)
    client.decide(None, NAMES, rows=ROWS, id="a1", fallback="blue")
    down.answers = [answer(201, ManyDecided([made("a1", "blue")]))]
    client.close()
    assert down.asked[-1].url.path == "/v1/offers/decisions/batch"


def test_one_that_is_refused_is_dropped(down: Mock) -> None:
    """With a warning; the others are reported."""
    client = down.client(retries=0)
    for id in ("a1", "a2"):
        client.decide(None, NAMES, rows=ROWS, id=id, fallback="blue")
    refused = answer(422, Problem("Invalid request", 422, "requests[0]: no"))
    good = answer(201, ManyDecided([made("a2", "blue")]))
    down.answers = [answer(201, DECIDED), refused, refused, good, answer(201, DECIDED)]
    down.asked.clear()
    with pytest.warns(FallbackWarning, match="could not be recorded"):
        client.decide(None, NAMES, rows=ROWS)
    client.decide(None, NAMES, rows=ROWS)
    assert len(down.asked) == 5


def test_a_fallback_is_checked_before_it_is_needed() -> None:
    """One that is not offered is refused also while the service answers."""
    mock = Mock(answer(201, DECIDED))
    client = mock.client()
    for action in ("green", 0):
        with pytest.raises(InvalidInput, match="one of the offered actions"):
            client.decide(None, NAMES, rows=ROWS, fallback=action)
    with pytest.raises(InvalidInput, match="one of the offered actions"):
        client.decide(rows=ROWS, fallback="red")  # they have no names
    assert mock.asked == []


def test_actions_that_only_the_service_knows() -> None:
    """The place of the fallback is not known then."""
    client = Mock(DOWN).client(retries=0)
    assert client.decide({"age": 3}, fallback="red").index == -1
    assert client.decide({"age": 3}, {"red": {"price": 1}}, fallback="red").index == 0
    assert client.decide(rows=ROWS, fallback=1).index == 1


def test_without_a_fallback_the_error_is_raised(down: Mock) -> None:
    """Nothing is made up."""
    with pytest.raises(ServiceUnavailable):
        down.client(retries=0).decide(None, NAMES, rows=ROWS)
