"""A service that stops closes its connections without cutting off a request."""

from __future__ import annotations

import socket

import pytest

from belated.journals import Store
from belated.service import Service
from belated.service.http import server
from tests.integration.connections.offers import OFFERS
from tests.integration.raw_http import request
from tests.integration.serving import Serving
from tests.waiting import eventually


def connected(serving: Serving) -> socket.socket:
    """An idle connection, which has been answered once."""
    connection = socket.create_connection(("127.0.0.1", serving.port), timeout=30)
    connection.sendall(request())
    assert connection.recv(65536).startswith(b"HTTP/1.1 201")
    return connection


def refuses(serving: Serving) -> bool:
    """Whether it takes no new connections."""
    try:
        socket.create_connection(("127.0.0.1", serving.port), timeout=30).close()
    except OSError:
        return True
    return False


def test_an_idle_connection_may_send_a_last_request(
    file: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It may have been on its way; the answer says that the connection is closed."""
    monkeypatch.setattr(server, "IDLE_SECONDS", 60.0, raising=False)
    serving = Serving()
    serving.start(Service([OFFERS], file))
    connections = [connected(serving) for _ in range(5)]
    serving.stop_soon()
    eventually(lambda: refuses(serving), seconds=60)
    for connection in connections:
        connection.sendall(request())
    for connection in connections:
        answer = connection.recv(65536)
        assert answer.startswith(b"HTTP/1.1 201")
        assert b"connection: close" in answer
        assert connection.recv(65536) == b""
        connection.close()
    serving.stop()  # with nobody left it does not wait


def test_a_connection_that_stays_idle_is_not_reset(
    file: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A client that sends too late reads the end of the connection, and no error."""
    monkeypatch.setattr(server, "IDLE_SECONDS", 0.0, raising=False)
    serving = Serving()
    serving.start(Service([OFFERS], file))
    connection = connected(serving)
    serving.stop_soon()
    assert connection.recv(65536) == b""
    connection.sendall(request())
    connection.sendall(request())
    assert connection.recv(65536) == b""
    connection.close()
    serving.stop()
