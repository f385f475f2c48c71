"""Parse requests and send responses, with bounded memory and time.

This module bounds all memory that clients can make the server use, regardless of the number of
clients. To prevent request smuggling, it rejects requests that a proxy in front of the server might
parse differently, and closes their connection.
"""

from __future__ import annotations

import asyncio
import ctypes
import math
import re
import sys
import time
from collections import Counter, deque
from collections.abc import Callable, Collection, Mapping
from email.utils import formatdate
from functools import cache
from http import HTTPStatus
from typing import NoReturn

from httptools import HttpParserError, HttpParserUpgrade, HttpRequestParser

from belated.service.http.app import Service
from belated.service.http.problems import ProblemError, problem_of
from belated.service.http.routes import Exchange, encode
from belated.service.operating.config import Limits

#: Maximum total size of the request line and headers, in bytes, and maximum number of headers.
MAX_HEAD_BYTES, MAX_HEADERS = 64 << 10, 100
#: Headers that the server uses. Each may occur only once. All other headers are ignored.
KNOWN = frozenset(
    {
        b"access-control-request-method",
        b"authorization",
        b"content-encoding",
        b"content-type",
        b"expect",
        b"host",
        b"if-none-match",
        b"origin",
        b"transfer-encoding",
        b"upgrade",
    }
)
#: Paths of the health probes, which accept any host name.
PROBES = (b"/livez", b"/readyz")
#: Number of bytes to parse at a time. The size of a partial request is known to this precision.
PIECE = 16 << 10
#: Maximum number of pipelined requests per connection.
MAX_PIPELINE = 16
#: Timeout in seconds for receiving the headers, from their first byte, and for receiving the body.
#: The latter is extended by one second for every `BODY_RATE` bytes received.
HEAD_SECONDS, BODY_SECONDS, BODY_RATE = 10.0, 30.0, 64 << 10
#: Keep-alive timeout of idle connections, in seconds. It must be longer than the idle timeout of
#: load balancers. Otherwise, they may send requests over a connection that is being closed.
KEEP_ALIVE_SECONDS = 75.0
#: Timeout for clients to read their responses, and time for which the server continues to read from
#: a connection that it is closing, in seconds. Without this time, a client that is still sending
#: might not receive the last response.
WRITE_SECONDS, LINGER_SECONDS = 30.0, 2.0
#: Maximum number of bytes that all connections together may hold in incomplete requests, queued
#: requests and unread responses. There is always room for `MIN_BODIES` bodies of the maximum size.
MAX_HELD, MIN_BODIES = 16 << 20, 4
#: After connections have held more bytes than this, free memory is returned to the operating system
#: as soon as they hold less than a quarter of the peak.
MUCH = 4 << 20
#: Interval between deadline checks, in seconds. Timeouts fire late by at most this much.
LOOK_SECONDS = 1.0

PROBLEM = b"application/problem+json"
#: Status codes of responses without a body.
BODILESS = (204, 304)
_HOST = re.compile(rb"([A-Za-z0-9._~!$&'()*+;=%-]*|\[[0-9A-Fa-f:.]+\])(?::[0-9]*)?")
_ABSOLUTE = re.compile(rb"https?://([^/?#]*)(.*)", re.IGNORECASE | re.DOTALL)
_IDLE, _HEAD, _BODY = range(3)


class Connections:
    """The connections of one server, on one event loop.

    Args:
        service: Handles the requests.
        loop: Event loop of the server.
        limits: Limits on the number of connections, and allowed host names.

    Attributes:
        now: Monotonic time of the last deadline check, in seconds. Reading it is cheap.
        held: Sum of :attr:`Connection.held` over all connections, in bytes.
    """

    def __init__(self, service: Service, loop: asyncio.AbstractEventLoop, limits: Limits) -> None:
        self.service = service
        self.limits = limits
        self.now = time.monotonic()
        self.held = 0
        self._peak = 0  # maximum of `held` since memory was last returned to the system
        self._max_held = max(MAX_HELD, MIN_BODIES * service.max_body_bytes)
        self._loop = loop
        self._all: set[Connection] = set()
        self._addresses: Counter[str] = Counter()
        self._heads: dict[tuple[int, bytes], bytes] = {}
        self._timer: asyncio.TimerHandle | None = None

    def __len__(self) -> int:
        return len(self._all)

    def add(self, connection: Connection, address: str) -> bool:
        """Add a connection unless a limit has been reached; return whether it was added."""
        limits = self.limits
        if (
            len(self._all) >= limits.connections
            or self._addresses[address] >= limits.per_address
        ):  # fmt: skip
            return False
        if self._timer is None:  # the timer stops when the last connection is closed
            self._check()
            self._timer = self._loop.call_later(LOOK_SECONDS, self._check)
        self._all.add(connection)
        self._addresses[address] += 1
        return True

    def remove(self, connection: Connection, address: str) -> None:
        """Remove a connection."""
        self._all.discard(connection)
        self._addresses[address] -= 1
        if not self._addresses[address]:
            del self._addresses[address]

    def hold(self, change: int) -> None:
        """Change the number of held bytes. Above the limit, close the largest connections."""
        self.held += change
        if self.held <= self._max_held:
            return
        # Free an eighth of the limit at a time. During a flood, sorting many connections for each
        # piece of data would take longer than receiving it.
        target = self._max_held - self._max_held // 8
        for connection in sorted(self._all, key=lambda connection: connection.held, reverse=True):
            if self.held <= target or not connection.held:
                return
            connection.give_up()

    def head(self, status: int, kind: bytes) -> bytes:
        """Return the start of a response, up to but excluding the value of Content-Length."""
        head = self._heads.get((status, kind))
        if head is None:
            phrase = HTTPStatus(status).phrase
            date = formatdate(usegmt=True)
            length = b"" if status in BODILESS else b"content-type: %b\r\ncontent-length: " % kind
            head = f"HTTP/1.1 {status} {phrase}\r\ndate: {date}\r\n".encode() + length
            self._heads[status, kind] = head
        return head

    def message(
        self,
        status: int,
        kind: bytes,
        data: bytes,
        headers: Mapping[str, str],
        with_body: bool = True,
    ) -> bytes:
        """Return a response with additional headers, with or without the body."""
        head = self.head(status, kind)
        parts = [head if status in BODILESS else b"%b%d\r\n" % (head, len(data))]
        parts += [f"{name}: {value}\r\n".encode("latin-1") for name, value in headers.items()]
        return b"".join([*parts, b"\r\n", data if with_body else b""])

    async def close(self, idle: float, grace: float) -> None:
        """Answer requests in flight, then close all connections.

        Args:
            idle: Seconds for which idle connections may still send a request.
            grace: Seconds after which any remaining connections are aborted.
        """
        await self._wait(idle)
        for connection in list(self._all):
            connection.stop()
        await self._wait(grace)
        for connection in list(self._all):
            connection.cut()

    async def _wait(self, seconds: float) -> None:
        """Wait until all connections are closed, for at most this many seconds."""
        deadline = time.monotonic() + seconds
        while self._all and time.monotonic() < deadline:
            await asyncio.sleep(0.02)

    def _check(self) -> None:
        """Close connections whose deadline has passed. Return free memory to the system."""
        self.now = now = time.monotonic()
        self._heads.clear()  # cached heads contain the date
        self._timer = self._loop.call_later(LOOK_SECONDS, self._check) if self._all else None
        for connection in list(self._all):
            if connection.due <= now:
                connection.expire()
        self._peak = max(self._peak, self.held)
        if self._peak > MUCH and self.held < self._peak // 4:
            self._peak = self.held
            give_back_memory()


class Connection(asyncio.Protocol):
    """A client connection. Its requests are answered one at a time, in order.

    Args:
        connections: All connections of the server.

    Attributes:
        service: Handles the requests.
        due: Current deadline, by the monotonic clock.
        held: Number of bytes in incomplete requests, queued requests and unread responses.
    """

    _transport: asyncio.Transport

    def __init__(self, connections: Connections) -> None:
        self._shared = connections
        self.service = connections.service
        self.due = math.inf
        self.held = 0
        self._parser: HttpRequestParser | None = HttpRequestParser(self)
        self._address: str | None = None  # set once the connection is registered
        # State of the request that is being received.
        self._stage = _IDLE
        self._url = b""
        self._headers: dict[bytes, bytes] = {}
        self._header_count = self._size = self._partial = self._skipped = self._burst = 0
        self._current: Exchange | None = None
        self._mixed = False  # whether the current piece contains the end of a request
        # Complete requests, the first of which is being handled.
        self._queue: deque[Exchange] = deque()
        self._dispatched = False
        # Whether the client has stopped reading responses, and whether the server is reading.
        self._stalled, self._reading = False, True
        self._half_closed = self._stopping = self._ended = False

    # --- the transport ---------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Register the connection, or refuse it if there are too many."""
        self._transport = transport
        peer = transport.get_extra_info("peername")
        address = peer[0] if isinstance(peer, tuple) else ""
        if self._shared.add(self, address):
            self._address = address
            self.due = self._shared.now + HEAD_SECONDS
        else:
            self._ended = True
            error = ProblemError(
                503, "Too many connections", "retry later", headers={"retry-after": "1"}
            )
            self.service.count(None, 503)
            problem, headers = problem_of(error)
            transport.write(self._shared.message(503, PROBLEM, encode(problem), headers))
            transport.close()

    def connection_lost(self, exc: Exception | None) -> None:
        """Drop queued requests. Responses to requests in flight will be discarded."""
        self._ended = True
        self._queue.clear()
        self._hold(0)
        self._parser = self._current = None  # break the reference cycle
        if self._address is not None:
            self._shared.remove(self, self._address)

    def data_received(self, data: bytes) -> None:
        """Parse received bytes."""
        self._burst = 0
        if len(data) <= PIECE:
            self._feed(data)
            return
        view = memoryview(data)
        for start in range(0, len(data), PIECE):
            self._feed(view[start : start + PIECE])

    def _feed(self, data: bytes | memoryview) -> None:
        if self._ended:
            return
        parser = self._parser
        assert parser is not None
        self._mixed = False
        try:
            parser.feed_data(data)
        except HttpParserUpgrade:
            self._end_with(malformed("upgrades are not supported"))
        except HttpParserError:
            if not self._ended:
                self._end_with(malformed("the request is not valid HTTP/1.1"))
        else:
            if self._stage != _IDLE:
                self._count_partial(len(data))

    def eof_received(self) -> bool:
        """Record that the client has stopped sending. The client may still read responses."""
        self._half_closed = True
        return bool(self._queue)

    def pause_writing(self) -> None:
        """Stop reading requests, because the client is not reading its responses."""
        self._stalled = True
        self.due = self._shared.now + WRITE_SECONDS
        self._hold_all()
        self._set_reading()

    def resume_writing(self) -> None:
        """Resume reading requests, because the client is reading its responses again."""
        self._stalled = False
        self._restart_clock()
        self._hold_all()
        self._advance()
        self._set_reading()

    # --- the parser ------------------------------------------------------------------------------

    def on_message_begin(self) -> None:
        """Start a new request."""
        if self._ended:
            raise _Ended
        self._stage = _HEAD
        self._url = b""
        self._headers = {}
        self._header_count = self._size = self._partial = 0
        self.due = self._shared.now + HEAD_SECONDS

    def on_url(self, url: bytes) -> None:
        """Append part of the request target."""
        self._url += url
        self._size += len(url)
        if self._size > MAX_HEAD_BYTES:
            self._stop_with(large_head())

    def on_header(self, name: bytes, value: bytes) -> None:
        """Add a header. Trailers after the body are ignored."""
        self._header_count += 1
        self._size += len(name) + len(value) + 4
        if self._size > MAX_HEAD_BYTES or self._header_count > MAX_HEADERS:
            self._stop_with(large_head())
        name = name.lower()
        if name in KNOWN and self._stage == _HEAD:
            if name in self._headers:
                self._stop_with(repeated(name))
            self._headers[name] = value

    def on_headers_complete(self) -> None:
        """Find the route and authorize the request before its body is received."""
        parser, shared = self._parser, self._shared
        assert parser is not None
        try:
            http_1_1 = check_framing(self._headers, parser)
            path, query = check_target(self._url, self._headers, shared.limits.hosts)
            self._burst += 1
            if max(self._burst, len(self._queue) + 1) > MAX_PIPELINE:
                detail = f"at most {MAX_PIPELINE} requests may be pipelined"
                raise ProblemError(429, "Too many requests at once", detail)
        except ProblemError as error:
            self._stop_with(error)
        self._stage = _BODY
        self._skipped = self._partial = 0
        self.due = shared.now + BODY_SECONDS
        method = parser.get_method().decode("ascii")
        exchange = Exchange(self, method, http_1_1 and parser.should_keep_alive(), query)
        self._current = exchange
        try:
            self.service.admit(exchange, path, self._headers)
        except Exception as error:
            exchange.error = error
            if not self._queue and not self._stalled:
                self._enqueue(exchange)  # reject the request now, and skip its body
        else:
            expected = self._headers.get(b"expect", b"").lower()
            if expected == b"100-continue" and not self._queue and not self._stalled:
                self._transport.write(b"HTTP/1.1 100 Continue\r\n\r\n")

    def on_body(self, body: bytes) -> None:
        """Append part of the body."""
        exchange = self._current
        if exchange is None or exchange.error is not None:
            self._skipped += len(body)
            size = self._skipped
        elif exchange.body:
            if isinstance(exchange.body, bytes):
                exchange.body = bytearray(exchange.body)
            exchange.body += body
            size = len(exchange.body)
        else:
            exchange.body = body
            size = len(body)
        if size > self.service.max_body_bytes:
            self._stop_with(large_body(self.service.max_body_bytes))

    def on_message_complete(self) -> None:
        """Queue the complete request."""
        self._stage = _IDLE
        self._mixed = True
        exchange, self._current = self._current, None
        if exchange is not None:
            self._enqueue(exchange)
        if self.held:
            self._hold_all()

    # --- bounds ----------------------------------------------------------------------------------

    def _count_partial(self, size: int) -> None:
        """Count the bytes held for an incomplete request, and extend its deadline."""
        if self._stage == _BODY:
            self.due += size / BODY_RATE
        else:
            # The parser does not expose the incomplete header that it buffers. If the previous
            # request ends in this piece, it is unknown how many bytes belong to the new request.
            self._partial += 0 if self._mixed else size
            if self._partial > MAX_HEAD_BYTES:
                self._end_with(large_head())
        self._hold_all()

    def _hold_all(self) -> None:
        size = self._partial + sum(len(exchange.body) for exchange in self._queue)
        if self._current is not None:
            size += len(self._current.body)
        if self._stalled:
            size += self._transport.get_write_buffer_size()
        self._hold(size)

    def _hold(self, size: int) -> None:
        if size != self.held:
            change, self.held = size - self.held, size
            self._shared.hold(change)

    def give_up(self) -> None:
        """Close this connection to free memory."""
        if self._stalled or self._queue:
            self.cut()
        elif not self._ended:
            detail = "too many requests are in flight: retry later"
            self._end_with(ProblemError(503, "Too busy", detail, headers={"retry-after": "1"}))
        self._hold(0)

    def expire(self) -> None:
        """Close the connection after its deadline, unless the client is waiting for the service."""
        if self._stalled:
            self.cut()
        elif self._queue:
            return
        elif self._ended:
            self.cut()
        elif self._stage == _IDLE:
            self._transport.close()
        else:
            self._end_with(ProblemError(408, "Too slow", "the request took too long to arrive"))

    def stop(self) -> None:
        """Stop accepting requests."""
        self._stopping = True
        if not self._queue and self._stage == _IDLE and not self._ended:
            self._close()

    def cut(self) -> None:
        """Abort the connection."""
        self._ended = True
        self._transport.abort()

    # --- responses -------------------------------------------------------------------------------

    def respond(self, exchange: Exchange, status: int, kind: bytes, data: bytes) -> None:
        """Send a response."""
        self.service.count(exchange.route, status)
        self._send(exchange, status, kind, data, exchange.headers)

    def refuse(self, exchange: Exchange, error: Exception) -> None:
        """Send an error as a problem."""
        problem, headers = self.service.problem_for(exchange, error)
        headers = {**headers, **(exchange.headers or {})}
        self._send(exchange, problem.status, PROBLEM, encode(problem), headers)

    def _send(
        self,
        exchange: Exchange,
        status: int,
        kind: bytes,
        data: bytes,
        headers: dict[str, str] | None,
    ) -> None:
        """Send a response in one write, then dispatch the next request."""
        self._dispatched = False
        queue, transport = self._queue, self._transport
        if not queue or transport.is_closing():
            return
        queue.popleft()
        last = not exchange.keep_alive or self._stopping or self.service.draining
        if last or headers or status in BODILESS or exchange.method == "HEAD":
            headers = headers or {}
            if last:
                headers = {**headers, "connection": "close"}
            transport.write(
                self._shared.message(status, kind, data, headers, exchange.method != "HEAD")
            )
        else:
            transport.write(b"%b%d\r\n\r\n%b" % (self._shared.head(status, kind), len(data), data))
        if last:
            self._close()
        elif queue:
            self._advance()
        elif self._half_closed:
            transport.close()
        elif self._stage == _IDLE:
            self.due = self._shared.now + KEEP_ALIVE_SECONDS
        if not self._reading:
            self._restart_clock()
            self._hold_all()
            self._set_reading()

    def _enqueue(self, exchange: Exchange) -> None:
        self._current = None
        self._queue.append(exchange)
        self._advance()
        if self._queue and (len(self._queue) > 1 or self._stalled):
            self._hold_all()
            self._set_reading()

    def _advance(self) -> None:
        if self._queue and not self._dispatched and not self._stalled:
            self._dispatched = True
            self._dispatch(self._queue[0])

    def _dispatch(self, exchange: Exchange) -> None:
        """Dispatch the request; the response may be sent later."""
        if exchange.error is not None:
            # Do not raise the error: it would form a reference cycle with its traceback, and the
            # received bytes in the callers' frames would stay alive until garbage collection.
            self.refuse(exchange, exchange.error)
            return
        body, exchange.body = exchange.body, b""  # free the body while waiting for the commit
        try:
            self.service.dispatch(exchange, body)
        except Exception as error:
            self.refuse(exchange, error)

    def _stop_with(self, error: ProblemError) -> NoReturn:
        """Reject the request and stop parsing. Called by the parser's callbacks."""
        self._end_with(error)
        raise _Ended

    def _end_with(self, error: ProblemError) -> None:
        """Refuse the current request after answering all earlier ones, then close."""
        self._ended = True
        if self._stage == _BODY and self._current is None:  # already rejected
            self._close()
            return
        exchange = self._current or Exchange(self, "GET", False)
        exchange.error = error
        exchange.keep_alive = False
        exchange.body = b""
        self._enqueue(exchange)

    def _close(self) -> None:
        """Close the connection after the buffered responses have been sent."""
        self._ended = True
        self._queue.clear()
        if self._half_closed or not self._transport.can_write_eof():
            self._transport.close()
        else:
            self._transport.write_eof()
            self.due = self._shared.now + LINGER_SECONDS

    def _restart_clock(self) -> None:
        """Reset the read deadline: time spent in the server does not count against the client."""
        if self._ended:
            self.due = self._shared.now + LINGER_SECONDS
        elif self._stage == _IDLE:
            self.due = self._shared.now + KEEP_ALIVE_SECONDS
        else:
            self.due = self._shared.now + BODY_SECONDS

    def _set_reading(self) -> None:
        """Pause reading while requests are queued or the client does not read its responses."""
        reading = not self._stalled and len(self._queue) < 2
        if reading != self._reading and not self._transport.is_closing():
            self._reading = reading
            if reading:
                self._transport.resume_reading()
            else:
                self._transport.pause_reading()


class _Ended(Exception):
    """Raised to stop the parser."""


def check_framing(headers: Mapping[bytes, bytes], parser: HttpRequestParser) -> bool:
    """Reject unsupported versions, upgrades and encodings; return whether this is HTTP/1.1."""
    version = parser.get_http_version()
    http_1_1 = version == "1.1"
    if not http_1_1 and version != "1.0":
        raise malformed("this service supports HTTP/1.1")
    if b"upgrade" in headers or parser.should_upgrade():
        raise malformed("upgrades are not supported")
    coding = headers.get(b"transfer-encoding")
    if coding is not None and (coding.lower() != b"chunked" or not http_1_1):
        raise malformed("Transfer-Encoding must be chunked, and requires HTTP/1.1")
    if http_1_1 and b"host" not in headers:
        raise malformed("the Host header is missing")
    return http_1_1


def check_target(
    url: bytes, headers: Mapping[bytes, bytes], hosts: Collection[str]
) -> tuple[bytes, bytes]:
    """Return the path and the query of a request target, and check the host name.

    >>> check_target(b"http://here/v1/a?b", {b"host": b"here"}, ())
    (b'/v1/a', b'b')
    """
    host = headers.get(b"host", b"")
    if not url.startswith(b"/"):
        url = _without_host(url, host)
    if b"#" in url:
        raise malformed("the request target must not contain a fragment")
    path, _, query = url.partition(b"?")
    name = _HOST.fullmatch(host)
    if name is None:
        raise malformed("the Host header is not a valid host name")
    if hosts and path not in PROBES and name[1].decode().lower() not in hosts:
        detail = "this host name is not allowed: add it to server.hosts in the configuration"
        raise ProblemError(421, "Misdirected request", detail)
    return path, query


def _without_host(url: bytes, host: bytes) -> bytes:
    """Return the path and query of an absolute URL, whose host must match the Host header."""
    if url == b"*":
        return url
    match = _ABSOLUTE.fullmatch(url)
    if match is None:
        raise malformed("the request target must begin with a slash")
    if match[1].lower() != host.lower():
        raise malformed("the Host header differs from the host in the request line")
    return match[2] if match[2].startswith(b"/") else b"/" + match[2]


def malformed(detail: str) -> ProblemError:
    """Return the problem for a request that is ambiguous or not valid HTTP."""
    return ProblemError(400, "Malformed request", detail)


def repeated(name: bytes) -> ProblemError:
    """Return the problem for a header that may occur only once."""
    return malformed(f"the header {name.decode()} occurs twice: send it once")


def large_body(limit: int) -> ProblemError:
    """Return the problem for a body of more than ``limit`` bytes."""
    return ProblemError(413, "Too large", f"the body may have at most {limit:,} bytes")


def large_head() -> ProblemError:
    """Return the problem for a request line and headers that are too large, or too many headers."""
    detail = f"at most {MAX_HEAD_BYTES:,} bytes and {MAX_HEADERS} headers are allowed"
    return ProblemError(431, "Headers too large", detail)


def give_back_memory() -> None:
    """Return free memory to the operating system, if the C library supports it.

    Otherwise, glibc would keep all the memory that a burst of requests has used. This takes a few
    milliseconds.
    """
    trim = _malloc_trim()
    if trim is not None:
        trim(0)


@cache
def _malloc_trim() -> Callable[[int], int] | None:
    if sys.platform != "linux":
        return None
    # The C library of this process. musl has no such function.
    return getattr(ctypes.CDLL(None), "malloc_trim", None)
