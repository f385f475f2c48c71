"""Bad input: refused with a documented problem, not kept and not logged; or taken, and harmless.

What is refused for its shape alone is in test_service_http.py.
"""

from __future__ import annotations

import gzip
import time
import zlib
from collections.abc import Callable, Iterator
from datetime import timedelta
from functools import cache
from typing import Any

import httpx
import numpy as np
import pytest

from belated import Bernoulli, DelayedThompson, DelayedUCB, Explicit, Gaussian
from belated.fold import Fold
from belated.journals import PostgresJournal
from belated.service import Definition, create_app
from tests.integration.asking import SECRET, Asking, nothing_logged
from tests.integration.serving import Serving, served
from tests.waiting import eventually

# The learner warns of what it is given here, and goes on.
pytestmark = pytest.mark.filterwarnings("ignore::belated.exceptions.BelatedWarning")

DIM = 4
COIN, FREE = "bad coin", "bad free"  # rewards from 0 to 1, and of any size
DEFINITIONS = [
    Definition(COIN, DelayedThompson(DIM, Bernoulli()), Explicit(timedelta(days=1))),
    Definition(FREE, DelayedUCB(DIM, Gaussian()), Explicit()),
]
LIMIT = 1 << 21
ROW = [1.0, 0.5, -0.5, 0.0]


@pytest.fixture(scope="module")
def serving(dsn: str) -> Iterator[Serving]:
    """A service that learns too."""
    with served(create_app(DEFINITIONS, dsn, learn=True, body_limit=LIMIT)) as found:
        yield found


@pytest.fixture(params=[COIN, FREE])
def asking(request: pytest.FixtureRequest, serving: Serving, dsn: str) -> Iterator[Asking]:
    """Each of the bandits; what was sent never stands in the log."""
    bandit: str = request.param
    with (
        nothing_logged(),
        httpx.Client(base_url=serving.url) as http,
        PostgresJournal(dsn, bandit=bandit) as journal,
    ):
        yield Asking(http, journal, bandit.replace(" ", "%20"))


coin = pytest.mark.parametrize("asking", [COIN], indirect=True)
free = pytest.mark.parametrize("asking", [FREE], indirect=True)


# --- 1. numbers that are none --------------------------------------------------------------------

NO_NUMBERS = [b"NaN", b"Infinity", b"-Infinity", b'"NaN"', b'"Infinity"', b"1e400", b"-1e400"]
NO_NUMBERS += [b"nan", b"0x10", b"1_0", b"01", b"+1", b".5", b"5.", b"true", b"null", b"[]"]


@pytest.mark.parametrize("number", NO_NUMBERS, ids=bytes.decode)
def test_what_is_no_number_is_refused(asking: Asking, number: bytes) -> None:
    """In rows, in rewards and in times, of one and of many."""
    row = b'{"rows":[[1,2,3,%b]],"id":"hush-7f3a"}' % number
    value = b'{"value":%b,"part":"hush-7f3a"}' % number
    named = b'{"rewards":[{"id":"hush-7f3a","value":%b}]}' % number
    asking.refused(lambda: asking.decide(row), 400, 422)
    asking.refused(
        lambda: asking.send("POST", "/decisions/batch", b'{"offers":[%b]}' % row), 400, 422
    )
    asking.refused(lambda: asking.reward(value), 400, 422)
    asking.refused(lambda: asking.send("POST", "/rewards/batch", named), 400, 422)
    if number != b"null":  # that is as if it were not given
        at = b'{"value":1,"at":%b}' % number
        asking.refused(lambda: asking.reward(at), 400, 422)


# --- 2. too large, or compressed -----------------------------------------------------------------


def test_a_body_beyond_the_limit_is_refused(asking: Asking) -> None:
    """With Content-Length or in pieces; and the next request is answered."""
    piece = SECRET.encode() * 1_000

    def pieces() -> Iterator[bytes]:
        for _ in range(1_000):
            yield piece

    url = f"{asking.base}/decisions"
    for content in (piece * 1_000, pieces()):
        detail = asking.refused(lambda: asking.http.post(url, content=content), 413)  # noqa: B023
        assert f"{LIMIT:,} bytes" in detail
    assert asking.decide({"rows": [ROW]}).status_code == 201


@cache
def bomb(compress: Callable[[bytes, int], bytes] = gzip.compress) -> bytes:
    """20 MB of blanks and an offer, in 20 kB."""
    return compress(b" " * 20_000_000 + b'{"rows":[[1,2,3,4]],"id":"hush-7f3a"}', 9)


@pytest.mark.parametrize("name", ["gzip", "GZIP", "deflate", "br", "zstd", "gzip, gzip", "x-hush"])
def test_what_is_compressed_is_refused_and_never_inflated(asking: Asking, name: str) -> None:
    """415, at once, and the answer names what is taken."""
    body = bomb(zlib.compress) if name == "deflate" else bomb()
    start = time.perf_counter()
    response = asking.send("POST", "/decisions", body, content_encoding=name)
    assert time.perf_counter() - start < 1
    assert response.headers["accept-encoding"] == "identity"
    asking.refused(lambda: response, 415)
    # JSON that only claims to be compressed is refused as well: one of the two is wrong.
    plain = b'{"value":1}'
    asking.refused(
        lambda: asking.send(
            "PUT", f"/decisions/{SECRET}/reward", plain, content_encoding=name
        ), 415,
    )  # fmt: skip


def test_compressed_bytes_without_a_header_are_no_json(asking: Asking) -> None:
    """And what says that it is not compressed is taken."""
    asking.refused(lambda: asking.decide(bomb()), 400)
    plain = asking.send("POST", "/decisions", {"rows": [ROW]}, content_encoding="Identity")
    assert plain.status_code == 201


# --- 3. deep and long ----------------------------------------------------------------------------

DEEP = b"[" * 100_000 + b"]" * 100_000
LONG = b"9" * 100_000
HEAVY = {
    "lists": b'{"context":{"a":' + DEEP + b"}}",
    "objects": b'{"context":' + b'{"a":' * 100_000 + b"1" + b"}" * 100_000 + b"}",
    "rows": b'{"rows":' + DEEP + b"}",
    "unfinished": b"[" * 100_000,
    "whole number": b'{"rows":[[1,2,3,' + LONG + b"]]}",
    "dim": b'{"rows":[[1,2,3,4]],"dim":' + LONG + b"}",
    "in a context": b'{"context":{"a":' + LONG + b"}}",
    "action": b'{"rows":[[1,2,3,4]],"actions":[' + LONG + b"]}",
    "exponent": b'{"rows":[[1,2,3,1e' + LONG + b"]]}",
    "field": b'{"' + b"hush-7f3a" * 10_000 + b'":1}',
}


@pytest.mark.parametrize("body", HEAVY.values(), ids=HEAVY)
def test_deep_nesting_and_long_numbers_are_refused_at_once(asking: Asking, body: bytes) -> None:
    """Within 50 ms, the network included; the best of five, as others use this machine too."""

    def seconds() -> float:
        start = time.perf_counter()
        asking.decide(body)
        return time.perf_counter() - start

    asking.refused(lambda: asking.decide(body), 400, 422)
    assert min(seconds() for _ in range(5)) < 0.05


def test_a_time_of_many_digits_is_refused(asking: Asking) -> None:
    """In a query too."""
    asking.refused(lambda: asking.reward(b'{"value":1,"at":' + LONG + b"}"), 422)
    asking.refused(lambda: asking.reward(b'{"value":1,"revision":' + LONG + b"}"), 422)
    digits = "9" * 5_000
    asking.refused(lambda: asking.send("DELETE", f"/decisions/x?at={digits}", b""), 422)


def test_a_long_address_is_refused(asking: Asking) -> None:
    """An id and a time as long as clients send, and a query of 15,000 parameters."""
    long = "9" * 60_000
    for path in (
        f"/decisions/{long}",
        f"/decisions/x?at={long}",
        "/decisions/x?" + "a=1&" * 15_000,
    ):
        asking.refused(lambda: asking.send("DELETE", path, b""), 422)  # noqa: B023


# --- 4. text that is none ------------------------------------------------------------------------

NO_TEXT = {
    "invalid UTF-8": b"hush-7f3a\xff",
    "an overlong NUL": b"\xc0\x80",
    "half a character": b"\xc3",
    "a surrogate in UTF-8": b"\xed\xa0\x80",
    "a lone surrogate": b"\\ud800",
    "surrogates in the wrong order": b"\\udc00\\ud800",
    "a bare NUL": b"\0",
    "an escaped NUL": b"hush-7f3a\\u0000",
    "half an escape": b"\\u12",
    "an unknown escape": b"\\x41",
    "a line break": b"a\nb",
}


@pytest.mark.parametrize("text", NO_TEXT.values(), ids=NO_TEXT)
def test_what_is_no_text_is_refused(asking: Asking, text: bytes) -> None:
    """As the id of a decision, of a reward, or as the name of its part."""
    offer = b'{"rows":[[1,2,3,4]],"id":"%b"}' % text
    asking.refused(lambda: asking.decide(offer), 400, 422)
    part = b'{"value":1,"part":"%b"}' % text
    asking.refused(lambda: asking.reward(part), 400, 422)
    named = b'{"rewards":[{"id":"%b","value":1}]}' % text
    asking.refused(lambda: asking.send("POST", "/rewards/batch", named), 400, 422)


@pytest.mark.parametrize("name", ["a\0b", "\U0001f600", "\u202e\u0007", "é" * 128, ""])
def test_an_action_may_have_any_text_for_a_name(asking: Asking, name: str) -> None:
    """It is kept and given back as it was, and is never part of a query or a label."""
    response = asking.decide({"rows": [ROW], "actions": [name]})
    assert response.status_code == 201, response.text
    assert response.json()["action"] == name
    story = asking.http.get(f"{asking.base}/decisions/{response.json()['id']}")
    assert story.json()["decision"]["action"] == name


def test_of_a_key_that_stands_twice_the_last_counts(asking: Asking) -> None:
    """As in JavaScript and in Python: documented, and the same everywhere here."""
    twice = b'{"rows":[[9]],"id":"never","rows":[[1,2,3,4]],"id":"%b"}'
    id = "stands-twice"
    response = asking.decide(twice % id.encode())
    assert (response.status_code, response.json()["id"]) == (201, id)
    assert asking.reward(b'{"value":7e99,"value":1,"part":"a","part":"b"}', id).status_code == 202
    kept = asking.http.get(f"{asking.base}/decisions/{id}").json()["records"][1]
    assert (kept["value"], kept["part"]) == (1.0, "b")


# --- 8. rewards ----------------------------------------------------------------------------------


@coin
@pytest.mark.parametrize("value", [-5e-324, 1.0000000000000002, -1, 2, 1e308, -1e308])
def test_a_reward_out_of_range_is_refused(asking: Asking, value: float) -> None:
    """Alone, and among many of which the others are right: then none is kept."""
    asking.refused(lambda: asking.reward({"value": value}), 422)
    many = [{"id": "fine", "value": 1}, {"id": SECRET, "value": value}]
    asking.refused(lambda: asking.send("POST", "/rewards/batch", {"rewards": many}), 422)


@free
@pytest.mark.parametrize("value", [1e308, -1e308, 1.0000000000000002e9, -1e10, 10**20])
def test_a_reward_whose_square_would_not_add_up_is_refused(asking: Asking, value: float) -> None:
    """Where the family has no bounds: at most 1e9."""
    assert "1e+09" in asking.refused(lambda: asking.reward({"value": value}), 422)


@pytest.mark.parametrize("value", [-0.0, 0.0, 5e-324, 2.2e-308, 1.0])
def test_the_smallest_rewards_are_taken(asking: Asking, value: float) -> None:
    """Minus zero is zero, and numbers below the normal ones are numbers."""
    id = asking.decide({"rows": [ROW]}).json()["id"]
    assert asking.reward({"value": value}, id).status_code == 202
    story = asking.http.get(f"{asking.base}/decisions/{id}").json()
    assert (story["state"], story["value"]) == ("rewarded", value)


# --- 9. what only the service can say ------------------------------------------------------------

OURS: dict[str, Any] = {
    "propensity": 1.0,
    "model": 3,
    "mean": 0.5,
    "index": 0,
    "recorded": 5,
    "position": 1,
}
OURS |= {"x": ROW, "at": 5, "policy": "Uniform()", "bandit": "other"}


@pytest.mark.parametrize("field", OURS)
def test_what_the_service_says_cannot_be_sent(asking: Asking, field: str) -> None:
    """A propensity or a model of the client's own is refused, not passed over in silence."""
    offer = {"rows": [ROW], "id": SECRET, field: OURS[field]}
    assert field in asking.refused(lambda: asking.decide(offer), 422)
    if field != "at":
        reward = {"value": 1, field: OURS[field]}
        assert field in asking.refused(lambda: asking.reward(reward), 422)


@pytest.mark.parametrize("at", [946_684_800_000_000, 1_262_304_000_000_000])
def test_a_time_of_the_client_is_kept_and_decides_nothing(asking: Asking, at: int) -> None:
    """2000 and 2010: windows follow the journal's own clock."""
    id = asking.decide({"rows": [ROW], "activated": False}).json()["id"]
    assert asking.send("PUT", f"/decisions/{id}/activation?at={at}", b"").status_code == 202
    assert asking.reward({"value": 1, "at": at}, id).status_code == 202
    story = asking.http.get(f"{asking.base}/decisions/{id}").json()
    assert (story["state"], story.get("late", False)) == ("rewarded", False)
    assert [one["at"] for one in story["records"][1:]] == [at, at]
    assert all(abs(one["recorded"] - story["decision"]["at"]) < 60e6 for one in story["records"])


@pytest.mark.parametrize("at", [-1, 0, 1, 4_102_444_800_000_000, 2**63 - 1, 2**63, 1.5])
def test_a_time_that_cannot_be_is_refused(asking: Asking, at: float) -> None:
    """Before 2000, in 2100, at the end of time, and beyond 64 bits."""
    asking.refused(lambda: asking.reward({"value": 1, "at": at}), 422)
    for method, path in (("PUT", "/decisions/x/activation"), ("DELETE", "/decisions/x")):
        asking.refused(lambda: asking.send(method, f"{path}?at={at}", b""), 422)  # noqa: B023


# --- 10. actions ---------------------------------------------------------------------------------


def test_one_action_is_a_choice_with_certainty(asking: Asking) -> None:
    """Its propensity is 1; it is learned from like any other."""
    response = asking.decide({"rows": [ROW], "actions": ["only"]})
    assert response.status_code == 201
    assert (response.json()["action"], response.json()["propensity"]) == ("only", 1.0)


def test_no_action_and_the_same_action_twice_are_refused(asking: Asking) -> None:
    """However they are given; 1 and "1" are two."""
    asking.refused(lambda: asking.decide({"rows": [], "actions": []}), 422)
    asking.refused(lambda: asking.decide({"rows": [], "id": SECRET}), 422)
    asking.refused(lambda: asking.decide({"rows": [ROW] * 3, "actions": [SECRET, 1, SECRET]}), 422)
    asking.refused(lambda: asking.decide({"rows": [ROW] * 2, "actions": [7, 7]}), 422)
    assert asking.decide({"rows": [ROW] * 2, "actions": [1, "1"]}).status_code == 201


def test_a_hundred_thousand_actions(asking: Asking) -> None:
    """A thousand are chosen from, more are refused; more than a body may hold are 413."""
    response = asking.decide({"rows": [ROW] * 1_000, "actions": list(range(1_000))})
    assert response.status_code == 201, response.text
    assert 0 < response.json()["propensity"] <= 1
    for count in (1_001, 100_000):
        asking.refused(lambda: asking.decide({"rows": [[1, 2, 3, 4]] * count}), 422)  # noqa: B023
    asking.refused(lambda: asking.decide({"rows": [[1, 2, 3, 4]] * 300_000}), 413)
    names = list(range(999))
    asking.refused(lambda: asking.decide({"rows": [ROW], "actions": names}), 422)
    detail = asking.refused(lambda: asking.decide({"rows": [ROW], "actions": [*names, 998]}), 422)
    assert detail == "the action 998 is offered twice"


# --- 11. rows ------------------------------------------------------------------------------------


@pytest.mark.parametrize("scale", [1e300, -1e300, 3.5e38, 1.1e8])
def test_rows_of_a_scale_that_would_not_add_up_are_refused(asking: Asking, scale: float) -> None:
    """With the place of the first such number."""
    offer = {"rows": [ROW, [1, scale, 3, 4]], "id": SECRET}
    assert "rows[1, 1]" in asking.refused(lambda: asking.decide(offer), 422)


@pytest.mark.parametrize("width", [0, 1, DIM - 1, DIM + 1, 2 * DIM, 10_000])
def test_rows_of_another_width_are_refused(asking: Asking, width: int) -> None:
    """All of them, or one among others."""
    asking.refused(lambda: asking.decide({"rows": [[1.0] * width] * DIM}), 422)
    asking.refused(lambda: asking.decide({"rows": [ROW, [1.0] * width, ROW]}), 422)


DEGENERATE = {
    "zero": [[0.0] * DIM] * 3,
    "constant": [[1.0] * DIM] * 3,
    "collinear": [[t, 2 * t, -t, 0.5 * t] for t in (1.0, 2.0, 3.0)],
    "tiny": [[1e-300] * DIM, [5e-324, 0, 0, 0], [-1e-300] * DIM],
    "subnormal": [[1e-45] * DIM, [1e-40] * DIM],
    "large": [[1e8] * DIM, [-1e8] * DIM, [1e8, -1e8, 0, 1]],
    "mixed": [[1e8, 1e-30, 1, 0], [1e-8, 1e4, -1, 1e-4]],
}


@pytest.mark.parametrize("rows", DEGENERATE.values(), ids=DEGENERATE)
def test_rows_that_tell_little_leave_the_estimate_finite(
    asking: Asking, rows: list[list[float]], dsn: str
) -> None:
    """Columns that are constant, collinear or zero, of any scale that is let in."""
    ids = []
    for turn in range(8):
        response = asking.decide({"rows": rows})
        assert response.status_code == 201, response.text
        answer = response.json()
        assert 0 < answer["propensity"] <= 1
        assert np.isfinite(answer["mean"])
        ids.append(answer["id"])
        assert asking.reward({"value": turn % 2}, answer["id"]).status_code == 202
    assert asking.http.get(f"{asking.base}/decisions/{ids[0]}").json()["state"] == "rewarded"


def test_after_all_of_it_the_estimates_are_finite(serving: Serving, dsn: str) -> None:
    """Of a fold of all that was taken here; and the service is ready and has never failed."""
    for definition in DEFINITIONS:
        with PostgresJournal(dsn, bandit=definition.name) as journal:
            fold = Fold(definition.policy, definition.rewards, partitions=journal.partitions)
            fold.catch_up(journal)
        for numbers in (fold.model.theta, fold.model.observed, fold.model.decided):
            assert np.isfinite(numbers).all()
    eventually(lambda: httpx.get(f"{serving.url}/readyz").status_code == 200)
    text = httpx.get(f"{serving.url}/metrics").text
    assert 'status="5' not in text
    for definition in DEFINITIONS:
        assert f'belated_learner_failures_total{{bandit="{definition.name}"}} 0.0' in text
