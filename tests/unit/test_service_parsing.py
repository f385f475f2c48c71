"""What a decision request over HTTP may hold, and what it may leave out."""

from __future__ import annotations

import base64
import struct
from collections.abc import Callable

import msgspec
import pytest

from belated import Bernoulli, DelayedUCB, Explicit, Flag, PerArm, Shared
from belated.exceptions import InvalidInput
from belated.features import Features
from belated.service.http.routes import find, parse_request
from belated.service.serving.definition import Definition
from belated.wire.messages import DecisionRequest


def defined(features: Features) -> Definition:
    """A bandit with these features."""
    return Definition("b", DelayedUCB(features.dim, Bernoulli()), Explicit(), features=features)


def test_features_that_know_the_actions_need_none_named() -> None:
    """And a bandit without contexts needs nothing at all."""
    colors = defined(PerArm(["blue", "red"]))
    parsed, rows = parse_request(DecisionRequest(), colors)
    assert (parsed.actions, parsed.n_rows) == (("blue", "red"), 2)
    assert rows == parse_request(DecisionRequest(actions=["blue", "red"]), colors)[1]
    members = defined(PerArm(["blue", "red"], context={"member": Flag()}))
    assert parse_request(DecisionRequest(context={"member": None}), members)[0].n_rows == 2


def test_other_features_need_them() -> None:
    """They cannot know what is on offer."""
    with pytest.raises(InvalidInput, match="send `context` and `actions`"):
        parse_request(DecisionRequest(), defined(Shared(action=["price"])))


@pytest.fixture
def rows_of() -> Callable[[str], bytes]:
    """From the JSON of rows to what is decided."""
    bandit = Definition("b", DelayedUCB(2, Bernoulli()), Explicit())

    def read(text: str) -> bytes:
        request = find("POST", "offers", ["decisions"]).parse(b'{"rows":%b}' % text.encode())
        parsed, rows = parse_request(request, bandit)
        assert len(rows) == 8 * parsed.n_rows
        return rows

    return read


def test_rows_are_the_same_in_every_form(rows_of: Callable[[str], bytes]) -> None:
    """As numbers, or packed; whoever reads them."""
    expected = struct.pack("<4f", 0.1, -2, 1e-5, 3)
    assert rows_of("[[0.1,-2],[1e-5,3.0]]") == expected
    assert rows_of(f'"{base64.b64encode(expected).decode()}"') == expected


@pytest.mark.parametrize("given", ["7", '[["a",1]]', "[[1,null]]", "{}", "true"])
def test_invalid_rows_are_refused_with_their_place(
    rows_of: Callable[[str], bytes], given: str
) -> None:
    """The path is that within the body."""
    with pytest.raises(msgspec.ValidationError, match=r"at `\$\.rows"):
        rows_of(given)


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ("null", "`rows` is missing"),
        ("[]", "at least one row, each of 2 numbers"),
        ("[[1]]", "each of 2 numbers"),
        ("[[1,2],[3]]", "each of 2 numbers"),
        ('"!"', "not valid base64"),
        ('"AAAA"', "3 bytes, which is not a multiple of 8"),
        ("[[1e39,0]]", "1e"),
    ],
)
def test_rows_that_cannot_be_decided_are_refused(
    rows_of: Callable[[str], bytes], given: str, told: str
) -> None:
    """In words."""
    with pytest.raises(InvalidInput, match=told):
        rows_of(given)


def test_more_rows_than_an_offer_may_have_are_refused(rows_of: Callable[[str], bytes]) -> None:
    """However they are sent."""
    assert len(rows_of(f"[{','.join(['[1,2]'] * 1000)}]")) == 8000
    with pytest.raises(msgspec.ValidationError, match="length <= 1000"):
        rows_of(f"[{','.join(['[1,2]'] * 1001)}]")
    with pytest.raises(InvalidInput, match="1,001 rows"):
        rows_of(f'"{base64.b64encode(bytes(8008)).decode()}"')


def test_a_context_may_come_with_rows_that_are_null(rows_of: Callable[[str], bytes]) -> None:
    """As programs write it that name every field."""
    parse = find("POST", "offers", ["decisions"]).parse
    colors = defined(PerArm(["blue", "red"]))
    assert parse_request(parse(b'{"rows":null,"dim":null}'), colors)[0].n_rows == 2
    with pytest.raises(InvalidInput, match="without `rows`"):
        parse_request(parse(b'{"rows":[[1]]}'), colors)
