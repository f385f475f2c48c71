"""The fast path answers as ASGI does, byte by byte, whatever comes over a connection."""

from __future__ import annotations

import json
import re
import socket
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import Any

import pytest
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from belated import Bernoulli, DelayedUCB, Explicit
from belated.events import Event
from belated.journals import Store
from belated.service import Definition, create_app
from belated.service.http.app import Service
from belated.service.http.fast_path import FastPathProtocol, _FastRequest
from tests.integration.keyrings import Made, known
from tests.integration.serving import Serving, served
from tests.waiting import eventually

LIMIT = 5_000
NAME = "both-ways"
OFFERS = Definition(NAME, DelayedUCB(2, Bernoulli()), Explicit(), partitions=2)
PATH = f"/v1/{NAME}/decisions"
OFFER = b'{"rows":[[1,0],[0,1]]}'


def request(
    body: bytes = OFFER, *headers: str, start: str = f"POST {PATH} HTTP/1.1", length: bool = True
) -> bytes:
    """One, as bytes."""
    lines = [start, "Host: here", *headers, *([f"Content-Length: {len(body)}"] if length else [])]
    return "\r\n".join([*lines, "", ""]).encode() + body


def reward(id: str, body: bytes = b'{"value":1}', *headers: str) -> bytes:
    """One of a decision."""
    return request(body, *headers, start=f"PUT {PATH}/{id}/reward HTTP/1.1")


SHOP = "https://shop.example"
LAST = request(b"", "Connection: close", start="GET /livez HTTP/1.1")
NAMED = b'{"rows":[[1,0],[0,1]],"id":"order-1"}'
BATCH = b'{"requests": [{"rows":[[1,0]]},{"rows":[[0,1]]}]}'
CASES = {
    "decide": request(),
    "decide under a name": request(NAMED) + request(NAMED),
    "decide many": request(BATCH, start=f"POST {PATH}/batch HTTP/1.1"),
    "reward": reward("order-1") + reward("nobody%2Fknows") + reward("%ff"),
    "rewards": request(
        b'{"rewards":[{"id":"order-1","value":1}]}', start=f"POST /v1/{NAME}/rewards/batch HTTP/1.1"
    ),
    "several in one piece": request() + reward("a") + request(b"{}") + reward("b") + request(),
    "an activation with a time": request(
        b"", start=f"PUT {PATH}/order-1/activation?at=1700000000000000 HTTP/1.1"
    ),
    "a void with a time": request(
        b"", start=f"DELETE {PATH}/order-1?at=2026-01-31T12:00:00%2B01:00 HTTP/1.1"
    ),
    "what goes around": request(b"", start="GET /livez HTTP/1.1"),
    "in chunks": request(
        b"b\r\n" + OFFER[:11] + b"\r\nb\r\n" + OFFER[11:] + b"\r\n0\r\n\r\n",
        "Transfer-Encoding: chunked",
        length=False,
    ),
    "with a question before": request(OFFER, "Expect: 100-continue"),
    "the last": request(OFFER, "Connection: close"),
    "of an older protocol": request(start=f"POST {PATH} HTTP/1.0"),
    "with a whole address": request(start=f"POST http://here{PATH} HTTP/1.1"),
    "a path that is no text": request(start=f"PUT {PATH}/é/reward HTTP/1.1"),
    "too large": request(b" " * (LIMIT + 1)) + request(),
    "too large, in chunks": request(
        (b"400\r\n" + b" " * 1024 + b"\r\n") * 6 + b"0\r\n\r\n",
        "Transfer-Encoding: chunked",
        length=False,
    ),
    "compressed": request(OFFER, "Content-Encoding: gzip"),
    "of no bandit": request(start="POST /v1/nothing/decisions HTTP/1.1"),
    "of no route": request(start=f"POST /v1/{NAME}/nothing HTTP/1.1"),
    "of another method": request(start=f"PATCH {PATH} HTTP/1.1"),
    "no body where one is needed": request(b""),
    "malformed": request(b'{"rows":[['),
    "wrong": request(b'{"rows":[[1]]}') + reward("a", b'{"value":7}'),
    "a head": request(b"", start=f"HEAD {PATH} HTTP/1.1"),
    "a header that is none": request(OFFER, "What is this"),
    "an upgrade": request(OFFER, "Connection: upgrade, close", "Upgrade: websocket"),
}
ASKING = ("Access-Control-Request-Method: POST", "Access-Control-Request-Headers: content-type")
CASES |= {
    "of a listed page": request(OFFER, f"Origin: {SHOP}"),
    "wrong, of a listed page": request(b"{}", f"Origin: {SHOP}"),
    "compressed, of a listed page": request(OFFER, f"Origin: {SHOP}", "Content-Encoding: gzip"),
    "too large, of a listed page": request(b" " * (LIMIT + 1), f"Origin: {SHOP}"),
    "of another page": request(OFFER, "Origin: https://evil.example", "Content-Type: text/plain"),
    "of a hidden page": request(OFFER, "Origin: null"),
    "a reward by POST": request(b'{"value":1}', start=f"POST {PATH}/order-1/reward HTTP/1.1"),
    "a listed page asks first": request(
        b"", f"Origin: {SHOP}", *ASKING, start=f"OPTIONS {PATH} HTTP/1.1"
    ),
    "another page asks first": request(
        b"", "Origin: https://evil.example", *ASKING, start=f"OPTIONS {PATH} HTTP/1.1"
    ),
    "a listed page switches": request(
        b'{"mode":"off"}', f"Origin: {SHOP}", start=f"PUT /v1/{NAME}/mode HTTP/1.1"
    ),
}
#: The parser itself ends these: what is sent after that may take the answer with it.
ENDED = ("a path that is no text", "a header that is none", "an upgrade")


@pytest.fixture(scope="module")
def fast(store: Store) -> Iterator[Serving]:
    """As `belated serve` has it."""
    with served(create_app([OFFERS], store, max_body_bytes=LIMIT, cors=[SHOP])) as found:
        yield found


@pytest.fixture(scope="module")
def plain(store: Store) -> Iterator[Serving]:
    """As any server of ASGI has it."""
    with served(
        create_app([OFFERS], store, max_body_bytes=LIMIT, cors=[SHOP]), HttpToolsProtocol
    ) as found:
        yield found


def said(serving: Serving, sent: bytes, pieces: int = 1) -> bytes:
    """All that comes back over a connection; if it goes on, the last request ends it."""
    sent += LAST
    found = b""
    with (
        socket.create_connection(("127.0.0.1", serving.port), timeout=10) as connection,
        suppress(ConnectionError),  # it was closed while more was on the way
    ):
        size = -(-len(sent) // pieces)
        for start in range(0, len(sent), size):
            connection.sendall(sent[start : start + size])
            if pieces > 1:
                time.sleep(0.01)
        while part := connection.recv(65_536):
            found += part
    return found


def constant(answers: bytes) -> list[tuple[str, list[str], Any]]:
    """The parts of answers that do not depend on the moment: status, headers, content."""
    found = []
    for one in re.split(rb"(?=HTTP/1\.1 \d\d\d )", answers)[1:]:
        head, _, content = one.partition(b"\r\n\r\n")
        status, *headers = head.decode("latin-1").split("\r\n")
        # Ids have a length of their own, and so have numbers.
        kept = sorted(line for line in headers if not re.match("date|content-length", line))
        told: Any = content.decode()
        if b"json" in head and told:
            told = json.loads(told)
            for decided in told.get("decisions", [told]):
                for name in ("id", "at", "propensity", "action", "index", "mean"):
                    decided.pop(name, None)
        found.append((status, kept, told))
    return found


@pytest.mark.parametrize(
    ("case", "pieces"), [(case, n) for case in CASES for n in (1, 3) if n == 1 or case not in ENDED]
)
def test_both_ways_answer_alike(fast: Serving, plain: Serving, case: str, pieces: int) -> None:
    """The same statuses, headers and contents, in their order; the connection stays, or not."""
    expected = constant(said(plain, CASES[case], pieces))
    assert constant(said(fast, CASES[case], pieces)) == expected
    assert expected


def test_the_answer_is_the_whole_answer(fast: Serving) -> None:
    """The length is right, and it comes in one piece."""
    with socket.create_connection(("127.0.0.1", fast.port), timeout=10) as connection:
        for _ in range(3):  # over one connection
            connection.sendall(request())
            head, _, content = connection.recv(65_536).partition(b"\r\n\r\n")
            assert head.startswith(b"HTTP/1.1 201 Created\r\n")
            assert f"content-length: {len(content)}".encode() in head
            assert json.loads(content)["propensity"] > 0.0


def test_what_is_asked_most_takes_the_fast_path(
    fast: Serving, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else all of this would prove nothing."""
    ended: list[object] = []
    end = _FastRequest.end

    def seen(one: _FastRequest) -> None:
        ended.append(one)
        end(one)

    monkeypatch.setattr(_FastRequest, "end", seen)
    for sent in (CASES["decide"], CASES["decide many"], reward("a"), CASES["rewards"]):
        said(fast, sent)
    assert len(ended) == 4


def test_who_has_no_key_is_refused_before_anything_is_sent(store: Store) -> None:
    """The body is not waited for; with a key it is."""
    with served(create_app([OFFERS], store, auth="keys")) as serving:
        made: Made = known(store, serving.url)
        begun = request(b"").replace(b"Length: 0", b"Length: 900")
        with socket.create_connection(("127.0.0.1", serving.port), timeout=10) as connection:
            connection.sendall(begun)
            assert connection.recv(65_536).startswith(b"HTTP/1.1 401 ")
        assert said(serving, request()).startswith(b"HTTP/1.1 401 ")
        header = f"Authorization: Bearer {made.key}"
        assert said(serving, request(OFFER, header)).startswith(b"HTTP/1.1 201 ")


def test_a_body_in_tiny_pieces_takes_no_longer(store: Store) -> None:
    """Else a request could keep everyone waiting."""
    count = 1_000_000
    body = b"1\r\n \r\n" * count + b"0\r\n\r\n"
    with served(create_app([OFFERS], store)) as serving:
        start = time.process_time()  # of this process, which is the server's too
        answer = said(serving, request(body, "Transfer-Encoding: chunked", length=False))
        assert answer.startswith(b"HTTP/1.1 400 ")
        assert time.process_time() - start < 10.0


def test_one_who_goes_spoils_nothing(fast: Serving) -> None:
    """In the middle of a request, or before its answer."""
    for sent in (request()[:-5], request(), request(NAMED)):
        for _ in range(20):
            connection = socket.create_connection(("127.0.0.1", fast.port), timeout=10)
            connection.sendall(sent)
            connection.close()
    assert said(fast, request()).startswith(b"HTTP/1.1 201 ")


def test_an_error_inside_is_told_as_such(
    fast: Serving, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """500, without a word of what it was; the log has that."""

    def fail(*arguments: object) -> None:
        raise ZeroDivisionError("inside")

    monkeypatch.setattr(Service, "ask", fail)
    answer = said(fast, request())
    assert answer.startswith(b"HTTP/1.1 500 ")
    assert b"inside" not in answer
    assert "inside" in caplog.text


def test_what_is_under_way_is_answered_before_it_stops(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And the client is told that the connection ends."""
    app = create_app([OFFERS], store)
    with served(app) as serving:
        connection = socket.create_connection(("127.0.0.1", serving.port), timeout=10)
        connection.sendall(request())
        assert connection.recv(65_536).startswith(b"HTTP/1.1 201 ")
        log, may_commit = app.bandits[NAME].commits._log, threading.Event()
        append = log.append

        def patiently(events: Sequence[Event], **options: Any) -> list[int]:
            assert may_commit.wait(10)
            return append(events, **options)

        monkeypatch.setattr(log, "append", patiently)
        connection.sendall(request())
        server = serving._server
        assert server is not None
        (under_way,) = server.server_state.connections
        assert isinstance(under_way, FastPathProtocol)
        eventually(lambda: isinstance(under_way.cycle, _FastRequest))
        server.should_exit = True
        time.sleep(0.2)
        may_commit.set()
        answer = connection.recv(65_536)
        assert answer.startswith(b"HTTP/1.1 201 ")
        assert b"connection: close" in answer
        assert connection.recv(1) == b""
        connection.close()
