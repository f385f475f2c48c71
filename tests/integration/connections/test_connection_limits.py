"""What a connection may take: headers, bodies, time, memory."""

from __future__ import annotations

import threading
import time
from contextlib import ExitStack
from pathlib import Path

import pytest

from belated.journals import Store
from belated.service import Service
from belated.service.http import connection as connection_module
from belated.service.http.connection import MAX_HEAD_BYTES, MAX_HEADERS, MAX_PIPELINE
from belated.service.operating.config import Limits
from tests.integration.connections.offers import OFFERS, chunked, slow_down
from tests.integration.raw_http import OFFER, Raw, get, request, said, statuses
from tests.integration.serving import Serving, served
from tests.waiting import eventually


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Deadlines that a test can wait for."""
    for name in ("HEAD_SECONDS", "BODY_SECONDS", "KEEP_ALIVE_SECONDS", "WRITE_SECONDS"):
        monkeypatch.setattr(connection_module, name, 0.5)
    monkeypatch.setattr(connection_module, "LOOK_SECONDS", 0.1)


# --- bounds --------------------------------------------------------------------------------------


def big(size: int) -> str:
    """A header with so many bytes."""
    return f"X-Big: {'x' * (size - 7)}"


@pytest.mark.parametrize("pieces", [1, 20])
@pytest.mark.parametrize(
    "sent",
    [
        get("/livez", big(MAX_HEAD_BYTES)),
        get("/livez", *[big(MAX_HEAD_BYTES // 20)] * 21),
        get("/livez", big(10 * MAX_HEAD_BYTES)),
        get(f"/{'x' * MAX_HEAD_BYTES}"),
        get("/livez", *["X: 1"] * MAX_HEADERS),
        chunked(OFFER, end=b"0\r\n" + b"X: 1\r\n" * (MAX_HEADERS + 1) + b"\r\n"),
        chunked(OFFER, end=b"0\r\nX: " + b"x" * MAX_HEAD_BYTES + b"\r\n\r\n"),
    ],
)
def test_headers_are_bounded(serving: Serving, sent: bytes, pieces: int) -> None:
    """In all and by their number, in one piece and in many, also after the body: 431."""
    answers = said(serving.port, sent, pieces)
    assert [answer.status for answer in answers] == [431]
    assert "connection: close" in answers[-1].head


def test_as_many_headers_as_there_may_be(serving: Serving) -> None:
    """Just within both bounds."""
    headers = [big((MAX_HEAD_BYTES - 2000) // 90)] * 90
    assert statuses(serving.port, get("/livez", *headers)) == [200, 200]


def test_a_header_without_an_end_is_not_kept(serving: Serving) -> None:
    """It is refused when there is too much of it, not when it ends."""
    with Raw(serving.port) as raw:
        raw.send(b"GET /livez HTTP/1.1\r\nHost: here\r\nX: ")
        for _ in range(40):
            raw.send(b"x" * 4096)
        assert [answer.status for answer in raw.answers()] == [431]


def test_a_body_in_tiny_pieces_takes_no_longer(file: Store) -> None:
    """Else a request could keep everyone waiting."""
    data = request(
        b"1\r\n \r\n" * 1_000_000 + b"0\r\n\r\n", "Transfer-Encoding: chunked", length=False
    )
    with served(Service([OFFERS], file)) as serving:
        start = time.process_time()  # of this process, which is the server's too
        assert statuses(serving.port, data) == [400, 200]
        assert time.process_time() - start < 10.0


def test_a_pipeline_is_bounded(file: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever waits beyond it is refused, and nothing after that is read."""
    app = Service([OFFERS], file)
    with served(app) as serving, Raw(serving.port) as raw:
        may_commit = threading.Event()
        slow_down(app, monkeypatch, may_commit)
        raw.send(request() + get("/livez") * 500)
        time.sleep(0.2)
        may_commit.set()
        answers = [answer.status for answer in raw.answers()]
        assert answers == [201, *[200] * (MAX_PIPELINE - 1), 429]
        assert statuses(serving.port, get("/livez") * (MAX_PIPELINE - 1)) == [200] * MAX_PIPELINE
        assert statuses(serving.port, get("/livez") * 500) == [*[200] * MAX_PIPELINE, 429]


def stall(raw: Raw, app: Service) -> int:
    """Ask for much, a few at a time, until nothing more is answered; gives how often it was."""
    while True:
        base = sum(app.requests.values())
        raw.socket.sendall(get("/openapi.json") * (MAX_PIPELINE - 1))
        deadline = time.monotonic() + 1.0
        while (count := sum(app.requests.values())) < base + MAX_PIPELINE - 1:
            if time.monotonic() > deadline:
                return count
            time.sleep(0.01)


def test_nothing_more_is_read_while_answers_are_not(file: Store) -> None:
    """Requests whose answers nobody reads cost no memory: they stay with the sender."""
    app = Service([OFFERS], file)
    with served(app) as serving, Raw(serving.port, buffer=4096) as raw:
        count = stall(raw, app)
        raw.socket.settimeout(0.5)
        with pytest.raises(TimeoutError):
            raw.socket.sendall(get("/openapi.json") * 200_000)
        assert sum(app.requests.values()) == count
        raw.socket.settimeout(10)
        assert raw.socket.recv(100).startswith(b"HTTP/1.1 200 ")


@pytest.mark.usefixtures("quick")
@pytest.mark.parametrize(
    ("sent", "expected"),
    [
        (b"", []),
        (get("/livez"), [200]),
        (b"\r\n\r\n", []),
        (b"GET /liv", [408]),
        (get("/livez")[:-2], [408]),
        (request()[:-1], [408]),
        (chunked(OFFER, end=b"0\r\n"), [408]),
        (get("/livez") + request()[:-1], [200, 408]),
    ],
)
def test_nobody_is_waited_for_for_ever(file: Store, sent: bytes, expected: list[int]) -> None:
    """Neither for a request that does not end, nor for one that does not begin."""
    with served(Service([OFFERS], file)) as serving, Raw(serving.port) as raw:
        raw.send(sent)
        assert [answer.status for answer in raw.answers()] == expected


@pytest.mark.usefixtures("quick")
def test_whoever_comes_after_a_pause_has_all_the_time(file: Store) -> None:
    """Deadlines count from when it came, not from when somebody came before."""
    with served(Service([OFFERS], file)) as serving:
        assert statuses(serving.port, get("/livez")) == [200, 200]
        time.sleep(1.0)
        with Raw(serving.port) as raw:
            time.sleep(0.2)
            raw.send(request(OFFER, "Connection: close"), pieces=3)
            assert [answer.status for answer in raw.answers()] == [201]


@pytest.mark.usefixtures("quick")
def test_dripping_does_not_help(file: Store) -> None:
    """A byte now and then is no request either; a body that keeps coming is."""
    with served(Service([OFFERS], file)) as serving:
        with Raw(serving.port) as raw:
            for byte in get("/livez")[:15]:
                raw.send(bytes([byte]))
                time.sleep(0.1)
            assert [answer.status for answer in raw.answers()] == [408]
        body = OFFER + b" " * 400_000
        with Raw(serving.port) as raw:
            raw.send(request(body, "Connection: close"), pieces=12)
            assert [answer.status for answer in raw.answers()] == [201]


@pytest.mark.usefixtures("quick")
def test_whoever_does_not_read_is_cut(file: Store) -> None:
    """After a while, and nothing is kept of it."""
    app = Service([OFFERS], file)
    with served(app) as serving, Raw(serving.port, buffer=4096) as raw:
        stall(raw, app)
        with pytest.raises(ConnectionError):
            raw.socket.sendall(get("/openapi.json") * 200_000)
        eventually(lambda: statuses(serving.port, get("/livez")) == [200, 200])


def test_memory_is_given_back_after_a_flood(file: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """Once, when most of what was held is let go; and not for the usual requests."""
    calls: list[int] = []
    monkeypatch.setattr(connection_module, "give_back_memory", lambda: calls.append(1))
    monkeypatch.setattr(connection_module, "LOOK_SECONDS", 0.05)
    monkeypatch.setattr(connection_module, "MUCH", 1 << 20)
    app = Service([OFFERS], file, max_body_bytes=2 << 20)
    with served(app) as serving:
        assert statuses(serving.port, request()) == [201, 200]
        with ExitStack() as stack:
            for _ in range(5):
                raw = stack.enter_context(Raw(serving.port))
                raw.send(request(OFFER + b" " * (1 << 20))[:-1])
            time.sleep(1.0)
            assert not calls
        eventually(lambda: calls == [1])
        assert statuses(serving.port, request()) == [201, 200]
        time.sleep(0.2)
        assert calls == [1]


def test_what_the_allocator_keeps_is_given_back() -> None:
    """Blocks between others, so that none of them is at the end of the heap."""
    statm = Path("/proc/self/statm")
    if not statm.exists():
        pytest.skip("the system does not say how much memory is resident")
    blocks = [b"x" * 100_000 for _ in range(400)]  # written to, and so resident
    sample = blocks[::8]
    del blocks
    pages = int(statm.read_text().split()[1])
    connection_module.give_back_memory()
    assert len(sample) == 50
    freed_bytes = (pages - int(statm.read_text().split()[1])) * 4096
    assert freed_bytes > 20_000_000


def test_connections_are_counted(file: Store) -> None:
    """In all, and for each address; when one ends there is room for another."""
    limits = Limits(connections=5, per_address=3)
    with (
        served(Service([OFFERS], file), limits) as serving,
        ExitStack() as stack,
        ExitStack() as other_stack,
    ):
        for _ in range(3):
            stack.enter_context(Raw(serving.port, source="127.0.0.2"))
        with Raw(serving.port, source="127.0.0.2") as raw:
            (answer,) = raw.answers()
            assert answer.status == 503
            assert "retry-after: 1" in answer.head
        for _ in range(2):
            other_stack.enter_context(Raw(serving.port))
        with Raw(serving.port) as raw:
            assert [answer.status for answer in raw.answers()] == [503]
        stack.close()
        eventually(lambda: statuses(serving.port, get("/livez")) == [200, 200])


def test_what_all_hold_together_is_bounded(file: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """The connection that holds the most memory is refused; others continue."""
    monkeypatch.setattr(connection_module, "MAX_HELD", 100_000)
    app = Service([OFFERS], file, max_body_bytes=25_000)
    with served(app) as serving, ExitStack() as stack:
        connections = [stack.enter_context(Raw(serving.port)) for _ in range(10)]
        for connection in connections:
            connection.send(request(OFFER + b" " * 20_000, "Connection: close")[:-1])
            time.sleep(0.05)
        for connection in connections:
            connection.send(b" ")
        results = [[answer.status for answer in connection.answers()] for connection in connections]
        assert sorted(results) == [[201]] * 4 + [[503]] * 6
        assert statuses(serving.port, request()) == [201, 200]
