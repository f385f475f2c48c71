"""The service as an ASGI application, to be mounted in a FastAPI or Starlette application."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, MutableMapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from urllib.parse import quote

from belated.exceptions import BelatedError, MissingExtra
from belated.service.access.authorizer import auth_at
from belated.service.http.app import Service
from belated.service.http.routes import Exchange, encode
from belated.service.operating.config import Config, read_config

try:
    from belated.service.http.connection import (
        BODILESS,
        KNOWN,
        PROBLEM,
        check_target,
        large_body,
        repeated,
    )
except ModuleNotFoundError:
    raise MissingExtra("belated.service.asgi_app", "service") from None

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]

#: Assumed address of a mounted service, because ASGI applications do not know where they listen.
_ANY_HOST = "0.0.0.0"


def asgi_app(config: str | Path | Config) -> AsgiApp:
    """Create an ASGI application for the decision service.

    The application has the same routes as ``belated serve``, below the path where it is mounted.
    The ASGI server is responsible for limits on connections, headers and time, so the corresponding
    settings in the configuration are ignored. API keys are required unless the configuration
    contains ``auth = "off"``.

    Args:
        config: Configuration file, as for ``belated serve``.

    Raises:
        InvalidConfig: the configuration is invalid.
        InvalidInput: the configuration does not specify whether API keys are required.

    Example::

        decisions = asgi_app("belated.toml")
        app = FastAPI(lifespan=decisions.lifespan)
        app.mount("/bandits", decisions)
    """
    if not isinstance(config, Config):
        config = read_config(config)
    service = Service.from_config(config, auth=auth_at(_ANY_HOST, config.server.auth))
    return AsgiApp(service, config.server.limits.hosts)


class AsgiApp:
    """An ASGI application that passes requests to a service.

    Args:
        service: Service to run.
        hosts: Accepted host names; empty to accept any name.
    """

    def __init__(self, service: Service, hosts: Iterable[str] = ()) -> None:
        self._service = service
        self._hosts = frozenset(hosts)
        self._running = False

    @asynccontextmanager
    async def lifespan(self, app: object = None) -> AsyncIterator[None]:
        """Run the service for as long as the parent application runs."""
        self._service.start(asyncio.get_running_loop())
        self._running = True
        try:
            yield
        finally:
            self._running = False
            await asyncio.to_thread(self._service.close)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle a connection of the ASGI server."""
        if scope["type"] == "lifespan":
            await self._run(receive, send)
        elif scope["type"] == "http":
            await self._handle(scope, receive, send)
        else:
            raise NotImplementedError(f"belated does not support {scope['type']} connections")

    async def _run(self, receive: Receive, send: Send) -> None:
        """Start and stop the service together with the server."""
        await receive()
        try:
            async with self.lifespan():
                await send({"type": "lifespan.startup.complete"})
                await receive()
        except BelatedError as error:
            await send({"type": "lifespan.startup.failed", "message": str(error)})
        else:
            await send({"type": "lifespan.shutdown.complete"})

    async def _handle(self, scope: Scope, receive: Receive, send: Send) -> None:
        if not self._running:
            raise RuntimeError(
                "the service was not started: pass lifespan=decisions.lifespan to the application"
                " in which it is mounted"
            )
        service = self._service
        response = _Response(service)
        exchange = Exchange(response, scope["method"], keep_alive=True)
        try:
            headers = _known_headers(scope["headers"])
            path, exchange.query = check_target(_target(scope), headers, self._hosts)
            service.admit(exchange, path, headers)
            body = await self._body(receive)
            if body is None:
                return  # the client has disconnected
            service.dispatch(exchange, body)
        except Exception as error:
            response.refuse(exchange, error)
        status, kind, data = await response.sent
        fields = {name.lower(): value for name, value in (exchange.headers or {}).items()}
        fields |= response.headers
        if status not in BODILESS:
            fields |= {"content-type": kind.decode(), "content-length": str(len(data))}
        encoded = [(name.encode(), value.encode("latin-1")) for name, value in fields.items()]
        await send({"type": "http.response.start", "status": status, "headers": encoded})
        await send(
            {"type": "http.response.body", "body": b"" if scope["method"] == "HEAD" else data}
        )

    async def _body(self, receive: Receive) -> bytearray | None:
        """Read the body of a request; return None if the client has disconnected."""
        body = bytearray()
        while True:
            message = await receive()
            if message["type"] == "http.disconnect":
                return None
            body += message.get("body", b"")
            if len(body) > self._service.max_body_bytes:
                raise large_body(self._service.max_body_bytes)
            if not message.get("more_body", False):
                return body


class _Response:
    """Receives the response to one request.

    Attributes:
        sent: Status, content type and content of the response.
        headers: Additional response headers.
    """

    def __init__(self, service: Service) -> None:
        self._service = service
        self.sent: asyncio.Future[tuple[int, bytes, bytes]] = (
            asyncio.get_running_loop().create_future()
        )
        self.headers: dict[str, str] = {}

    def respond(self, exchange: Exchange, status: int, kind: bytes, data: bytes) -> None:
        """Send a response."""
        self._service.count(exchange.route, status)
        if not self.sent.done():  # cancelled if the client has disconnected
            self.sent.set_result((status, kind, data))

    def refuse(self, exchange: Exchange, error: Exception) -> None:
        """Send an error as a problem."""
        problem, self.headers = self._service.problem_for(exchange, error)
        if not self.sent.done():
            self.sent.set_result((problem.status, PROBLEM, encode(problem)))


def _known_headers(fields: Iterable[tuple[bytes, bytes]]) -> dict[bytes, bytes]:
    """Return the headers that the service uses. Each of them may occur only once."""
    headers: dict[bytes, bytes] = {}
    for name, value in fields:
        if name in KNOWN:
            if name in headers:
                raise repeated(name)
            headers[name] = value
    return headers


def _target(scope: Scope) -> bytes:
    """Return the request target below the path where the application is mounted.

    >>> _target({"path": "/bandits/v1/a b", "root_path": "/bandits", "query_string": b"c"})
    b'/v1/a%20b?c'
    """
    raw: bytes = scope.get("raw_path") or quote(scope["path"], safe="/").encode()
    path = raw.partition(b"?")[0]
    root = quote(scope.get("root_path", ""), safe="/").encode()
    if root and path.startswith(root):
        path = path[len(root) :] or b"/"
    query = scope.get("query_string", b"")
    return path + b"?" + query if query else path
