"""The short way of a request: from uvicorn's parser to the service and back, without a coroutine.

An application of ASGI is a task for each request, with an event and two messages either way; for a
decision that is as much work as all the rest. Requests that are asked most, and have nothing
unusual about them, are taken from the parser as they are. All others go the way of ASGI, and are
answered alike: both ways call the same steps of the service.
"""

from __future__ import annotations

import threading
from asyncio import Future, TimerHandle
from collections.abc import Callable
from typing import Any, ClassVar

from uvicorn.config import Config
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol

from belated.service.http.app import Service
from belated.service.http.asgi_io import JSON, PROBLEM, encode, too_large
from belated.service.http.cors import NO_HEADERS
from belated.service.http.routes import Route


def protocol_for(app: object) -> type[HttpToolsProtocol]:
    """What speaks HTTP on a connection; any application but the service only knows ASGI."""
    return FastPathProtocol if isinstance(app, Service) else HttpToolsProtocol


class FastPathProtocol(HttpToolsProtocol):
    """A connection of uvicorn; where it starts a task for a request, that is often not needed."""

    cycle: Any

    def __init__(self, config: Config, *arguments: Any, **more: Any) -> None:
        super().__init__(config, *arguments, **more)
        assert isinstance(config.app, Service)  # protocol_for has seen to it
        self.service = config.app
        self._idle_since: float | None = None
        self._watch: TimerHandle | None = None

    def on_message_begin(self) -> None:
        """A request begins; what ASGI wants to know of it is only put together if it goes there."""
        self.url = b""
        self.headers = []
        self.expect_100_continue = False
        self._idle_since = None

    def on_headers_complete(self) -> None:
        """Take a request the short way, if nothing speaks against it."""
        url, parser = self.url, self.parser
        method = parser.get_method()
        if (
            (method == b"POST" or method == b"PUT")
            and url.startswith(b"/v1/")
            and url.isascii()
            and b"?" not in url
            and b"#" not in url
            and (self.cycle is None or self.cycle.response_complete)  # else they have an order
            and not self.expect_100_continue
            and parser.get_http_version() == "1.1"
            and not parser.should_upgrade()
        ):
            self.cycle = _FastRequest(self, parser.should_keep_alive())
            self.cycle.begin("POST" if method == b"POST" else "PUT", url)
        else:
            headers, expects = self.headers, self.expect_100_continue
            super().on_message_begin()
            self.url, self.expect_100_continue = url, expects
            self.headers += headers
            super().on_headers_complete()

    def on_body(self, body: bytes) -> None:
        """A part of the body."""
        if isinstance(self.cycle, _FastRequest):
            self.cycle.take(body)
        else:
            super().on_body(body)

    def on_message_complete(self) -> None:
        """All of it is there."""
        if isinstance(self.cycle, _FastRequest):
            self.cycle.end()
        else:
            super().on_message_complete()

    def answered(self) -> None:
        """An answer has gone out by the short way.

        uvicorn starts a timer after each, and stops it with the next request. Here there is one for
        as long as the connection lives, which looks again when it is too early.
        """
        if self.pipeline:
            self.on_response_complete()
            return
        self.server_state.total_requests += 1
        self._idle_since = self.loop.time()
        if self._watch is None:
            self._watch = self.loop.call_later(self.timeout_keep_alive, self._look)

    def _look(self) -> None:
        idle = 0.0 if self._idle_since is None else self.loop.time() - self._idle_since
        if idle >= self.timeout_keep_alive:
            self.timeout_keep_alive_handler()
        else:
            self._watch = self.loop.call_later(self.timeout_keep_alive - idle, self._look)

    def connection_lost(self, exc: Exception | None) -> None:
        """The other side has gone, or this one has closed it."""
        if self._watch is not None:
            self._watch.cancel()
        super().connection_lost(exc)


class _FastRequest:
    """A request and its answer; to its connection it looks like one of uvicorn's.

    Attributes:
        keep_alive: whether the connection stays, unless the service is to stop.
        response_complete: whether it was answered.
        disconnected: whether the other side has gone.
    """

    __slots__ = (
        "_body",
        "_connection",
        "_id",
        "_key",
        "_more",
        "_name",
        "_render",
        "_route",
        "disconnected",
        "keep_alive",
        "response_complete",
    )

    #: The connection sets it when it ends; here nobody waits for it.
    message_event: ClassVar = threading.Event()

    _render: Callable[[Any], Any]

    def __init__(self, connection: FastPathProtocol, keep_alive: bool) -> None:
        self._connection = connection
        self._route: Route | None = None
        self._body = bytearray()
        self._more = NO_HEADERS
        self.keep_alive = keep_alive
        self.response_complete = False
        self.disconnected = False

    def begin(self, method: str, path: bytes) -> None:
        """See what is asked, and whether that is allowed."""
        service, headers = self._connection.service, self._connection.headers
        try:
            self._name, self._route, self._id = service.find(method, path)
            self._more = service.cors.admit(self._route, headers)
            self._key = service.admit(self._name, self._route, headers)
        except Exception as error:
            self._refuse(error)

    def take(self, part: bytes) -> None:
        """Take a part of the body; their bytes are counted."""
        if self.response_complete:
            return
        self._body += part
        limit = self._connection.service.max_body_bytes
        if len(self._body) > limit:
            self._body = bytearray()
            self._refuse(too_large(limit))

    def end(self) -> None:
        """Ask; the answer comes later."""
        if self.response_complete:
            return
        body, self._body = self._body, bytearray()
        connection = self._connection
        try:
            assert self._route is not None
            waiting, self._render = connection.service.ask(
                self._name, self._route, self._id, self._key, body, b""
            )
        except Exception as error:
            self._refuse(error)
            return
        if not isinstance(waiting, Future):
            waiting = connection.loop.create_task(waiting)
            connection.tasks.add(waiting)  # a task that nobody holds may vanish
            waiting.add_done_callback(connection.tasks.discard)
        waiting.add_done_callback(self._respond)

    def _respond(self, found: Future[Any]) -> None:
        route = self._route
        assert route is not None
        try:
            content = encode(self._render(found.result()))
        except Exception as error:
            self._refuse(error)
            return
        self._connection.service.count(route, route.status)
        self._answer(route.status, JSON, content)

    def _refuse(self, error: Exception) -> None:
        problem, headers = self._connection.service.refused(self._route, error)
        self._more = {**headers, **self._more}
        self._answer(problem.status, PROBLEM, encode(problem))

    def _answer(self, status: int, kind: bytes, data: bytes) -> None:
        """All in one piece, which is one call of the system instead of two."""
        connection = self._connection
        self.response_complete = True
        if self.disconnected or connection.transport.is_closing():
            return
        if connection.service.draining:
            self.keep_alive = False
        parts = [STATUS_LINE[status]]
        for name, value in connection.server_state.default_headers:
            parts += (name, b": ", value, b"\r\n")
        for also, text in self._more.items():
            parts.append(f"{also}: {text}\r\n".encode("latin-1"))
        if not self.keep_alive:
            parts.append(b"connection: close\r\n")
        parts.append(b"content-type: %b\r\ncontent-length: %d\r\n\r\n%b" % (kind, len(data), data))
        connection.transport.write(b"".join(parts))
        if not self.keep_alive:
            connection.transport.close()
        connection.answered()
