"""What comes over a connection: every way to ask, and the bounds on all that can be sent."""

from __future__ import annotations

import json
import socket
import threading
from typing import Any

import pytest

from belated.journals import Store
from belated.service import Service
from belated.service.http.connection import Connection
from belated.service.operating.config import Limits
from tests.integration.connections.offers import LIMIT, NAME, OFFERS, SHOP, chunked, slow_down
from tests.integration.keyrings import Made, known
from tests.integration.listening import listening
from tests.integration.raw_http import OFFER, PATH, Raw, get, request, said, statuses
from tests.integration.serving import Serving, served
from tests.waiting import eventually

NAMED = b'{"rows":[[1,0],[0,1]],"id":"order-1"}'
BATCH = b'{"requests": [{"rows":[[1,0]]},{"rows":[[0,1]]}]}'
NONE = b"0\r\n\r\n"  # a body in chunks, which is empty
ASKING = ("Access-Control-Request-Method: POST", "Access-Control-Request-Headers: content-type")


def reward(id: str, body: bytes = b'{"value":1}', *headers: str) -> bytes:
    """One of a decision."""
    return request(body, *headers, start=f"PUT {PATH}/{id}/reward HTTP/1.1")


#: What is sent, and the statuses of all answers before the one to a last request; none if the
#: connection is closed before that.
CASES: dict[str, tuple[bytes, list[int]]] = {
    "decide": (request(), [201]),
    "decide under a name": (request(NAMED) + request(NAMED), [201, 201]),
    "decide many": (request(BATCH, start=f"POST {PATH}/batch HTTP/1.1"), [201]),
    "reward": (reward("order-1") + reward("nobody%2Fknows") + reward("%ff"), [202, 202, 400]),
    "reward by POST": (
        request(b'{"value":1}', start=f"POST {PATH}/order-1/reward HTTP/1.1"),
        [202],
    ),
    "several in one piece": (
        request() + reward("a") + request(b"{}") + reward("b") + get("/livez") + request(),
        [201, 202, 422, 202, 200, 201],
    ),
    "an activation with a time": (
        request(b"", start=f"PUT {PATH}/order-1/activation?at=1700000000000000 HTTP/1.1"),
        [202],
    ),
    "a void with a time": (
        request(b"", start=f"POST {PATH}/order-1/void?at=2026-01-31T12:00:00%2B01:00 HTTP/1.1"),
        [202],
    ),
    "what goes around": (get("/livez") + get("/openapi.json") + get("/nothing"), [200, 200, 404]),
    "in chunks": (chunked(OFFER[:11], OFFER[11:]), [201]),
    "with a word after the body": (chunked(OFFER, end=b"0\r\nX-More: 1\r\n\r\n"), [201]),
    "with a question before": (request(OFFER, "Expect: 100-continue"), [100, 201]),
    "with a whole address": (request(start=f"POST http://here{PATH} HTTP/1.1"), [201]),
    "malformed": (request(b'{"rows":[['), [400]),
    "no body where one is needed": (request(b""), [400]),
    "wrong": (request(b'{"rows":[[1]]}') + reward("a", b'{"value":7}'), [422, 422]),
    "compressed": (request(OFFER, "Content-Encoding: gzip"), [415]),
    "of no bandit": (request(start="POST /v1/nothing/decisions HTTP/1.1"), [404]),
    "of no route": (request(start=f"POST /v1/{NAME}/nothing HTTP/1.1"), [404]),
    "of another method": (request(start=f"PATCH {PATH} HTTP/1.1"), [405]),
    "of a listed page": (request(OFFER, f"Origin: {SHOP}"), [201]),
    "wrong, of a listed page": (request(b"{}", f"Origin: {SHOP}"), [422]),
    "of another page": (request(OFFER, "Origin: https://evil.example"), [403]),
    "of a hidden page": (request(OFFER, "Origin: null"), [403]),
    "a listed page asks first": (
        request(b"", f"Origin: {SHOP}", *ASKING, start=f"OPTIONS {PATH} HTTP/1.1"),
        [204],
    ),
    "another page asks first": (
        request(b"", "Origin: https://evil.example", *ASKING, start=f"OPTIONS {PATH} HTTP/1.1"),
        [403],
    ),
    "a listed page switches": (
        request(b'{"mode":"off"}', f"Origin: {SHOP}", start=f"PUT /v1/{NAME}/mode HTTP/1.1"),
        [403],
    ),
}
#: After these the connection ends.
ENDING: dict[str, tuple[bytes, list[int]]] = {
    "the last": (request(OFFER, "Connection: close"), [201]),
    "of an older protocol": (request(start=f"POST {PATH} HTTP/1.0"), [201]),
    "too large": (request(b" " * (LIMIT + 1)) + request(), [413]),
    "too large, in chunks": (chunked(*[b" " * 1024] * 200), [413]),
    "a header that is none": (request(OFFER, "What is this"), [400]),
    "a path that is no text": (request(start=f"PUT {PATH}/é/reward HTTP/1.1"), [400]),
    "after two good ones": (request() + get("/livez") + b"\0\0", [201, 200, 400]),
}


# --- every way to ask ----------------------------------------------------------------------------


@pytest.mark.parametrize("pieces", [1, 3, 40])
@pytest.mark.parametrize("case", CASES)
def test_requests_are_answered_in_their_order(serving: Serving, case: str, pieces: int) -> None:
    """However their bytes are cut; and the connection goes on."""
    data, expected = CASES[case]
    assert statuses(serving.port, data, pieces) == [*expected, 200]


@pytest.mark.parametrize("pieces", [1, 3])
@pytest.mark.parametrize("case", ENDING)
def test_what_ends_a_connection(serving: Serving, case: str, pieces: int) -> None:
    """The last answer comes, and then the end."""
    data, expected = ENDING[case]
    answers = said(serving.port, data, pieces)
    assert [answer.status for answer in answers] == expected
    assert "connection: close" in answers[-1].head


def test_an_answer_is_whole(serving: Serving) -> None:
    """The length is right, and it comes in one piece; a HEAD has none of it."""
    with Raw(serving.port) as raw:
        for _ in range(3):
            raw.send(request())
            head, _, content = raw.socket.recv(65_536).partition(b"\r\n\r\n")
            assert head.startswith(b"HTTP/1.1 201 Created\r\ndate: ")
            assert f"content-length: {len(content)}".encode() in head
            assert json.loads(content)["propensity"] > 0.0
        raw.send(request(b"", "Connection: close", start=f"HEAD {PATH} HTTP/1.1"))
        head, _, content = raw.rest().partition(b"\r\n\r\n")
        assert head.startswith(b"HTTP/1.1 405 ")
        assert content == b""


def test_who_has_no_key_is_refused_before_anything_is_sent(store: Store) -> None:
    """The body is not waited for, and then not counted as a request; with a key it is."""
    with served(Service([OFFERS], store, auth="keys")) as serving:
        key: Made = known(store, serving.url)
        with Raw(serving.port) as raw:
            raw.send(request()[: -len(OFFER)])
            assert raw.socket.recv(65_536).startswith(b"HTTP/1.1 401 ")
            raw.send(OFFER + get("/livez", "Connection: close"))
            assert [answer.status for answer in raw.answers()] == [200]
        header = f"Authorization: Bearer {key.key}"
        assert statuses(serving.port, request(OFFER, header)) == [201, 200]
        assert statuses(serving.port, request(OFFER, header, header)) == [400]


def test_whoever_sends_no_more_still_gets_the_answer(serving: Serving) -> None:
    """Half of the connection is closed as soon as the request is out."""
    with Raw(serving.port) as raw:
        raw.send(request() + request(NAMED))
        raw.socket.shutdown(socket.SHUT_WR)
        assert [answer.status for answer in raw.answers()] == [201, 201]


def test_one_who_goes_spoils_nothing(serving: Serving) -> None:
    """In the middle of a request, or before its answer."""
    for data in (request()[:-5], request(), request(NAMED)):
        for _ in range(20):
            with Raw(serving.port) as raw:
                raw.send(data)
    assert statuses(serving.port, request()) == [201, 200]


def test_an_error_inside_is_told_as_such(
    serving: Serving, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """500, without a word of what it was; the log has that."""

    def fail(*arguments: object) -> None:
        raise ZeroDivisionError("inside")

    monkeypatch.setattr(Service, "dispatch", fail)
    with Raw(serving.port) as raw:
        raw.send(request(OFFER, "Connection: close"))
        (answer,) = raw.answers()
    assert answer.status == 500
    assert b"inside" not in answer.content
    assert "inside" in caplog.text


def test_what_is_under_way_is_answered_before_it_stops(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And the client is told that the connection ends; one without a request ends at once."""
    app = Service([OFFERS], store)
    with served(app) as serving, Raw(serving.port) as raw, Raw(serving.port) as idle_raw:
        raw.send(request())
        assert raw.socket.recv(65_536).startswith(b"HTTP/1.1 201 ")
        idle_raw.send(request())
        assert idle_raw.socket.recv(65_536).startswith(b"HTTP/1.1 201 ")
        may_commit = threading.Event()
        start_event = slow_down(app, monkeypatch, may_commit)
        raw.send(request())
        assert start_event.wait(10)
        serving.stop_soon()
        assert idle_raw.rest() == b""
        may_commit.set()
        (answer,) = raw.answers()
        assert answer.status == 201
        assert "connection: close" in answer.head


# --- what two programs could read differently, and who may ask -----------------------------------


@pytest.mark.parametrize(
    "sent",
    [
        request(OFFER, "Connection: upgrade", "Upgrade: websocket"),
        request(get("/livez"), "Connection: upgrade", "Upgrade: websocket"),
        request(OFFER, "Upgrade: h2c"),
        b"CONNECT here:80 HTTP/1.1\r\nHost: here:80\r\n\r\n",
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
        request(start=f"POST {PATH} HTTP/2.0"),
        request(start=f"POST {PATH} HTTP/0.9"),
        request(host=None),
        request(OFFER, "Host: there"),
        request(host="he re"),
        request(host="here/there"),
        request(host="user@here"),
        request(start=f"POST http://there{PATH} HTTP/1.1"),
        request(start=f"POST {PATH}#part HTTP/1.1"),
        request(start="POST v1 HTTP/1.1"),
        request(NONE, "Transfer-Encoding: gzip, chunked", length=False),
        request(NONE, "Transfer-Encoding: chunked, chunked", length=False),
        request(NONE, "Transfer-Encoding: identity"),
        request(NONE, *["Transfer-Encoding: chunked"] * 2, length=False),
        request(NONE, "Transfer-Encoding: chunked", start=f"POST {PATH} HTTP/1.0", length=False),
        request(NONE, "Transfer-Encoding: chunked"),
        request(OFFER, "Content-Length: 5"),
    ],
)  # fmt: skip
def test_what_can_be_read_in_two_ways_is_refused(
    serving: Serving, app: Service, sent: bytes
) -> None:
    """One answer, nothing is done, and the connection ends."""
    count = app.bandits[NAME].stats.decisions
    answers = said(serving.port, sent)
    assert [answer.status for answer in answers] == [400]
    assert "connection: close" in answers[0].head
    assert app.bandits[NAME].stats.decisions == count


def test_names_that_are_listed(file: Store) -> None:
    """With or without a port, in any letters; others are refused, but for the probes."""
    limits = Limits(hosts=frozenset({"bandits.example", "[::1]"}))
    with served(Service([OFFERS], file), limits) as serving:
        for host in ("bandits.example", "Bandits.Example:8080", "[::1]:8080"):
            with Raw(serving.port) as raw:
                raw.send(request(OFFER, "Connection: close", host=host))
                assert [answer.status for answer in raw.answers()] == [201]
        for host in ("evil.example", "bandits.example.evil", "[::2]", "127.0.0.1"):
            assert statuses(serving.port, request(host=host)) == [421]
        assert statuses(serving.port, request(start=f"POST {PATH} HTTP/1.0", host=None)) == [421]
        assert statuses(serving.port, get("/livez")) == [200, 200]


@pytest.mark.parametrize("kind", ["text/plain", "application/x-www-form-urlencoded", None, "json"])
def test_a_body_is_said_to_be_json(serving: Serving, kind: str | None) -> None:
    """A page can send other types without asking first."""
    assert statuses(serving.port, request(kind=kind)) == [415, 200]
    assert statuses(serving.port, request(kind="Application/JSON; charset=utf-8")) == [201, 200]


def test_nothing_of_an_invalid_request_is_logged(serving: Serving, app: Service) -> None:
    """It is counted, and that is all."""
    count = app.requests["other", "other", 400]
    with listening() as lines:
        for data in (b"hush-7f3a\r\n\r\n", b"GET /hush-7f3a HTTP/9.9\r\n\r\n", b"\x16\x03\x01hush"):
            assert statuses(serving.port, data) == [400]
    assert not [line for line in lines if "hush" in line or "nvalid" in line]
    assert app.requests["other", "other", 400] == count + 3


def test_nothing_is_left_of_connections_that_ended(file: Store) -> None:
    """Neither a count nor a byte."""
    connections: list[Connection] = []
    init = Connection.__init__

    def noted(self: Connection, *arguments: Any) -> None:
        init(self, *arguments)
        connections.append(self)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Connection, "__init__", noted)
        with served(Service([OFFERS], file)) as serving:
            for data in (b"", b"GET", request()[:-1], request(), b"\0", get("/livez") * 40):
                with Raw(serving.port) as raw:
                    raw.send(data)
            eventually(lambda: len(connections) == 6)
            shared = connections[0]._shared
            eventually(lambda: len(shared) == 0)
            assert shared.held == 0
            assert not shared._addresses
