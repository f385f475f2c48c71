"""Bad inputs 1 to 4 of the threat model: what cannot be read.

Each is refused with a documented problem, and then the journal is as long as before; or, where it
only looks bad, it is taken and harmless. Neither log nor metrics repeat anything of it. What is
refused for its shape alone is in http/test_service_refusals.py.
"""

from __future__ import annotations

import gzip
import time
import zlib
from collections.abc import Callable, Iterator
from functools import cache

import msgspec
import numpy as np
import pytest

from belated.service.http.routes import find
from tests.integration.asking import SECRET, Asking
from tests.integration.bad_inputs.bandits import LIMIT, ROW, packed
from tests.waiting import eventually

# The learner warns of what it is given here, and goes on.
pytestmark = pytest.mark.filterwarnings("ignore::belated.exceptions.BelatedWarning")


# --- 1. numbers that are none --------------------------------------------------------------------

NO_NUMBERS = [b"NaN", b"Infinity", b"-Infinity", b'"NaN"', b'"Infinity"', b"1e400", b"-1e400"]
NO_NUMBERS += [b"nan", b"0x10", b"1_0", b"01", b"+1", b".5", b"5.", b"true", b"null", b"[]"]


@pytest.mark.parametrize("number", NO_NUMBERS, ids=bytes.decode)
def test_bad_input_01_what_is_no_number(asking: Asking, number: bytes) -> None:
    """In rows, in rewards and in times, of one and of many."""
    row = b'{"rows":[[1,2,3,%b]],"id":"hush-7f3a"}' % number
    value = b'{"value":%b,"part":"hush-7f3a"}' % number
    named = b'{"rewards":[{"id":"hush-7f3a","value":%b}]}' % number
    many = b'{"requests": [%b]}' % row
    asking.refused(lambda: asking.decide(row), 400, 422)
    asking.refused(lambda: asking.send("POST", "/decisions/batch", many), 400, 422)
    asking.refused(lambda: asking.reward(value), 400, 422)
    asking.refused(lambda: asking.send("POST", "/rewards/batch", named), 400, 422)
    if number != b"null":  # that is as if it were not given
        at = b'{"value":1,"at":%b}' % number
        asking.refused(lambda: asking.reward(at), 400, 422)


@pytest.mark.parametrize("number", [np.nan, np.inf, -np.inf])
def test_bad_input_01_what_is_no_number_in_base64(asking: Asking, number: float) -> None:
    """There it can be written."""
    asking.refused(lambda: asking.decide({"rows": packed(1, 2, 3, number), "id": SECRET}), 422)


# --- 2. too large, or compressed -----------------------------------------------------------------


def test_bad_input_02_a_body_beyond_the_limit(asking: Asking) -> None:
    """With Content-Length or in pieces; and the next request is answered."""
    piece = SECRET.encode() * 1_000

    def pieces() -> Iterator[bytes]:
        for _ in range(1_000):
            yield piece

    url = f"{asking.base}/decisions"
    for content in (piece * 1_000, b" " * (LIMIT + 1), pieces()):
        detail = asking.refused(lambda: asking.http.post(url, content=content), 413)  # noqa: B023
        assert f"{LIMIT:,} bytes" in detail
    assert asking.decide({"rows": [ROW]}).status_code == 201


@cache
def bomb(compress: Callable[[bytes, int], bytes] = gzip.compress) -> bytes:
    """100 MB of blanks and an offer, in 100 kB."""
    return compress(b" " * 100_000_000 + b'{"rows":[[1,2,3,4]],"id":"hush-7f3a"}', 9)


@pytest.mark.parametrize("name", ["gzip", "GZIP", "deflate", "br", "zstd", "gzip, gzip", "x-hush"])
def test_bad_input_02_what_is_compressed_is_never_inflated(asking: Asking, name: str) -> None:
    """415, at once, and the answer names what is taken."""
    body = bomb(zlib.compress) if name == "deflate" else bomb()
    start = time.process_time()  # of this process, which is the server's too
    response = asking.send("POST", "/decisions", body, content_encoding=name)
    assert time.process_time() - start < 1
    assert response.headers["accept-encoding"] == "identity"
    asking.refused(lambda: response, 415)
    # JSON that only claims to be compressed is refused as well: one of the two is wrong.
    place = f"/decisions/{SECRET}/reward"
    asking.refused(lambda: asking.send("PUT", place, {"value": 1}, content_encoding=name), 415)


def test_bad_input_02_compressed_bytes_without_a_header(asking: Asking) -> None:
    """They are no JSON; and what says that it is not compressed is taken."""
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
    "unfinished objects": b'{"context":' + b'{"a":' * 100_000,
    "whole number": b'{"rows":[[1,2,3,' + LONG + b"]]}",
    "dim": b'{"rows":[[1,2,3,4]],"dim":' + LONG + b"}",
    "in a context": b'{"context":{"a":' + LONG + b"}}",
    "action": b'{"rows":[[1,2,3,4]],"actions":[' + LONG + b"]}",
    "exponent": b'{"rows":[[1,2,3,1e' + LONG + b"]]}",
    "field": b'{"' + b"hush-7f3a" * 10_000 + b'":1}',
}


@pytest.mark.parametrize("body", HEAVY.values(), ids=HEAVY)
def test_bad_input_03_deep_nesting_and_long_numbers(asking: Asking, body: bytes) -> None:
    """Refused within 50 ms, the network included, once nobody else needs this machine."""

    def seconds() -> float:
        start = time.perf_counter()
        asking.decide(body)
        return time.perf_counter() - start

    asking.refused(lambda: asking.decide(body), 400, 422)
    eventually(lambda: seconds() < 0.05)


@pytest.mark.parametrize("name", ["lists", "in a context"])
def test_bad_input_03_costs_the_reader_little(name: str) -> None:
    """The same without a network, each time."""
    parse = find("POST", "offers", ["decisions"]).parse
    start = time.thread_time()
    with pytest.raises((RecursionError, msgspec.MsgspecError)):
        parse(HEAVY[name])
    assert time.thread_time() - start < 0.05


def test_bad_input_03_rewards_and_times_of_many_digits(asking: Asking) -> None:
    """In a query too."""
    for field in (b'"value":1,"at":%b', b'"value":1,"revision":%b', b'"value":0.%be999'):
        asking.refused(lambda: asking.reward(b"{" + field % LONG + b"}"), 422)  # noqa: B023
    digits = "9" * 5_000
    asking.refused(lambda: asking.send("POST", f"/decisions/x/void?at={digits}"), 422)


def test_bad_input_03_a_long_address(asking: Asking) -> None:
    """An id and a time as long as clients send, and a query of 15,000 parameters."""
    long = "9" * 60_000
    for path in (f"{long}/void", f"x/void?at={long}", "x/void?" + "a=1&" * 15_000):
        asking.refused(lambda: asking.send("POST", f"/decisions/{path}"), 422)  # noqa: B023


# --- 4. text that is none, keys that stand twice -------------------------------------------------

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
def test_bad_input_04_what_is_no_text(asking: Asking, text: bytes) -> None:
    """As the id of a decision, of a reward, or as the name of its part."""
    offer = b'{"rows":[[1,2,3,4]],"id":"%b"}' % text
    asking.refused(lambda: asking.decide(offer), 400, 422)
    part = b'{"value":1,"part":"%b"}' % text
    asking.refused(lambda: asking.reward(part), 400, 422)
    named = b'{"rewards":[{"id":"%b","value":1}]}' % text
    asking.refused(lambda: asking.send("POST", "/rewards/batch", named), 400, 422)


def test_bad_input_04_what_is_no_text_elsewhere(asking: Asking) -> None:
    """In a path, and for a whole body."""
    asking.refused(lambda: asking.reward({"value": 1}, id="%FF"), 400)
    asking.refused(lambda: asking.reward({"value": 1}, id="%00"), 422)
    asking.refused(lambda: asking.decide("ä".encode("utf-16")), 400)


@pytest.mark.parametrize("name", ["a\0b", "\U0001f600", "\u202e\u0007", "é" * 128, ""])
def test_bad_input_04_an_action_may_have_any_text_for_a_name(asking: Asking, name: str) -> None:
    """It is kept and given back as it was, and is never part of a query or a label."""
    response = asking.decide({"rows": [ROW], "actions": [name]})
    assert response.status_code == 201, response.text
    assert response.json()["action"] == name
    assert asking.story(response.json()["id"])["decision"]["action"] == name


def test_bad_input_04_last_value_of_a_repeated_key_wins(asking: Asking) -> None:
    """As in nearly every reader: documented; one in front that takes the first sees another."""
    response = asking.decide(b'{"rows":[[9]],"id":"never","rows":[[1,2,3,4]],"id":"stands-twice"}')
    assert (response.status_code, response.json()["id"]) == (201, "stands-twice")
    twice = b'{"value":7e99,"value":1,"part":"a","part":"b"}'
    assert asking.reward(twice, "stands-twice").status_code == 202
    kept = asking.story("stands-twice")["records"][1]
    assert (kept["value"], kept["part"]) == (1.0, "b")
    twice = b'{"rows":[[1,2,3,4]],"actions":["a"],"actions":["b"]}'
    assert asking.decide(twice).json()["action"] == "b"
