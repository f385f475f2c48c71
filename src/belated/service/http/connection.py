"""Connections: from bytes to requests, and their responses back, in bounded room and time.

Everything that a client can make the server hold has a bound here, and no bound depends on the
number of clients. Proxies in front read the same bytes: what two programs could read differently is
refused, and the connection closed, which prevents request smuggling.
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

from belated.exceptions import BelatedError
from belated.service.http.app import Service
from belated.service.http.problems import ProblemError, problem_of
from belated.service.http.routes import Exchange, encode
from belated.service.operating.config import Limits

#: Bytes of the request line and the headers together, and how many headers there may be.
MAX_HEAD_BYTES, MAX_HEADERS = 64 << 10, 100
#: Headers that are used. Each may occur once; all others are ignored.
KNOWN = frozenset(
    {
        b"access-control-request-method",
        b"authorization",
        b"content-encoding",
        b"content-type",
        b"expect",
        b"host",
        b"origin",
        b"transfer-encoding",
        b"upgrade",
    }
)
#: Paths of health probes, which are answered under any host name.
PROBES = (b"/livez", b"/readyz")
#: Bytes that are parsed at a time: the size of a partial request is known this exactly.
PIECE = 16 << 10
#: Pipelined requests per connection.
MAX_PIPELINE = 16
#: Seconds for the headers, from their first byte on; and for the body, extended by a second for
#: every `BODY_RATE` bytes received.
HEAD_SECONDS, BODY_SECONDS, BODY_RATE = 10.0, 30.0, 64 << 10
#: Seconds for which an idle connection is kept: longer than balancers keep theirs, or they would
#: send requests down one that is being closed.
KEEP_ALIVE_SECONDS = 75.0
#: Seconds for which a response may wait to be read; and for which a connection that is being closed
#: is still read: a client that is still sending would not see the last response otherwise.
WRITE_SECONDS, LINGER_SECONDS = 30.0, 2.0
#: Bytes of incomplete or queued requests and of unread responses, of all connections together; at
#: least this many bodies of the maximal size.
MAX_HELD, MIN_BODIES = 16 << 20, 4
#: If more bytes were held, memory is returned to the system once most of them are free.
MUCH = 4 << 20
#: Seconds between two checks of deadlines, which are late by this much at most.
LOOK_SECONDS = 1.0

PROBLEM = b"application/problem+json"
_HOST = re.compile(rb"([A-Za-z0-9._~!$&'()*+;=%-]*|\[[0-9A-Fa-f:.]+\])(?::[0-9]*)?")
_ABSOLUTE = re.compile(rb"https?://([^/?#]*)(.*)", re.IGNORECASE | re.DOTALL)
_IDLE, _HEAD, _BODY = range(3)


class Connections:
    """The connections of one server, on one event loop.

    Args:
        service: answers their requests.
        loop: theirs.
        limits: of them.
    """

    def __init__(self, service: Service, loop: asyncio.AbstractEventLoop, limits: Limits) -> None:
        self.service = service
        self.limits = limits
        #: Seconds as of the last look: exact enough for deadlines, and costs nothing to read.
        self.now = time.monotonic()
        #: Bytes that all of them hold.
        self.held = 0
        self._most = 0  # of them at any look, since memory was given back
        self._room = max(MAX_HELD, MIN_BODIES * service.max_body_bytes)
        self._loop = loop
        self._all: set[Connection] = set()
        self._addresses: Counter[str] = Counter()
        self._heads: dict[tuple[int, bytes], bytes] = {}
        self._timer: asyncio.TimerHandle | None = None

    def __len__(self) -> int:
        return len(self._all)

    def add(self, connection: Connection, address: str) -> bool:
        """Add a connection, unless a limit is reached; returns whether it was added."""
        limits = self.limits
        if (
            len(self._all) >= limits.connections
            or self._addresses[address] >= limits.per_address
        ):  # fmt: skip
            return False
        if self._timer is None:  # it stops when the last connection is closed
            self._look()
            self._timer = self._loop.call_later(LOOK_SECONDS, self._look)
        self._all.add(connection)
        self._addresses[address] += 1
        return True

    def remove(self, connection: Connection, address: str) -> None:
        """Remove a connection."""
        self._all.discard(connection)
        self._addresses[address] -= 1
        if not self._addresses[address]:
            del self._addresses[address]

    def hold(self, more: int) -> None:
        """Count bytes that are held; above the limit, the largest holders are closed."""
        self.held += more
        if self.held <= self._room:
            return
        # An eighth at once: to look for the greatest of a crowd at each piece of a flood would take
        # more time than the flood itself.
        enough = self._room - self._room // 8
        for one in sorted(self._all, key=lambda one: one.held, reverse=True):
            if self.held <= enough or not one.held:
                return
            one.give_up()

    def head(self, status: int, kind: bytes) -> bytes:
        """Return the head of a response, up to its content length."""
        found = self._heads.get((status, kind))
        if found is None:
            phrase = HTTPStatus(status).phrase
            date = formatdate(usegmt=True)
            length = b"" if status == 204 else b"content-type: %b\r\ncontent-length: " % kind
            found = f"HTTP/1.1 {status} {phrase}\r\ndate: {date}\r\n".encode() + length
            self._heads[status, kind] = found
        return found

    def message(
        self, status: int, kind: bytes, data: bytes, more: Mapping[str, str], whole: bool = True
    ) -> bytes:
        """Return a response with further headers; without its body unless it is whole."""
        head = self.head(status, kind)
        parts = [head if status == 204 else b"%b%d\r\n" % (head, len(data))]
        parts += [f"{name}: {value}\r\n".encode("latin-1") for name, value in more.items()]
        return b"".join([*parts, b"\r\n", data if whole else b""])

    async def close(self, idle: float, grace: float) -> None:
        """Close all connections, once requests in flight are answered.

        Args:
            idle: seconds for which idle ones may send another request.
            grace: seconds after which the others are aborted.
        """
        await self._wait(idle)
        for connection in list(self._all):
            connection.stop()
        await self._wait(grace)
        for connection in list(self._all):
            connection.cut()

    async def _wait(self, seconds: float) -> None:
        """Wait until all have ended, or for so many seconds."""
        deadline = time.monotonic() + seconds
        while self._all and time.monotonic() < deadline:
            await asyncio.sleep(0.02)

    def _look(self) -> None:
        self.now = now = time.monotonic()
        self._heads.clear()  # they contain the date
        self._timer = self._loop.call_later(LOOK_SECONDS, self._look) if self._all else None
        for one in list(self._all):
            if one.due <= now:
                one.expire()
        self._most = max(self._most, self.held)
        if self._most > MUCH and self.held < self._most // 4:
            self._most = self.held
            give_back_memory()


class Connection(asyncio.Protocol):
    """Requests over one connection are answered one after the other, in their order.

    Args:
        connections: of the server.

    Attributes:
        service: handles the requests.
        due: when it has taken too long, in seconds of the connections' clock.
        held: bytes it keeps for requests that are not complete or wait, and for unread answers.
    """

    _transport: asyncio.Transport

    def __init__(self, connections: Connections) -> None:
        self._shared = connections
        self.service = connections.service
        self.due = math.inf
        self.held = 0
        self._parser: HttpRequestParser | None = HttpRequestParser(self)
        self._address: str | None = None  # once it is counted
        # The request that is being read.
        self._stage = _IDLE
        self._url = b""
        self._headers: dict[bytes, bytes] = {}
        self._header_count = self._size = self._partial = self._skipped = self._burst = 0
        self._current: Exchange | None = None
        self._mixed = False
        # Those that are complete; the first one is being answered.
        self._queue: deque[Exchange] = deque()
        self._dispatched = False
        # Whether the other side does not read, and whether this one does.
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
                503, "Too many connections", "try again soon", headers={"retry-after": "1"}
            )
            self.service.count(None, 503)
            problem, headers = problem_of(error)
            transport.write(self._shared.message(503, PROBLEM, encode(problem), headers))
            transport.close()

    def connection_lost(self, exc: Exception | None) -> None:
        """Drop queued requests; responses to those in flight are discarded."""
        self._ended = True
        self._queue.clear()
        self._hold(0)
        self._parser = self._current = None  # they refer to each other
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
                self._end_with(malformed("this is not HTTP/1.1"))
        else:
            if self._stage != _IDLE:
                self._wait_for_more(len(data))

    def eof_received(self) -> bool:
        """Note that the client has stopped sending; it may still read."""
        self._half_closed = True
        return bool(self._queue)

    def pause_writing(self) -> None:
        """Stop reading: the client does not read its responses."""
        self._stalled = True
        self.due = self._shared.now + WRITE_SECONDS
        self._hold_all()
        self._set_reading()

    def resume_writing(self) -> None:
        """Go on: the client reads again."""
        self._stalled = False
        self._restart_clock()
        self._hold_all()
        self._advance()
        self._set_reading()

    # --- the parser ------------------------------------------------------------------------------

    def on_message_begin(self) -> None:
        """Start a request."""
        if self._ended:
            raise _Ended
        self._stage = _HEAD
        self._url = b""
        self._headers = {}
        self._header_count = self._size = self._partial = 0
        self.due = self._shared.now + HEAD_SECONDS

    def on_url(self, url: bytes) -> None:
        """Add a part of the request target."""
        self._url += url
        self._size += len(url)
        if self._size > MAX_HEAD_BYTES:
            self._stop_with(large_head())

    def on_header(self, name: bytes, value: bytes) -> None:
        """Add a header; trailers after the body are ignored."""
        self._header_count += 1
        self._size += len(name) + len(value) + 4
        if self._size > MAX_HEAD_BYTES or self._header_count > MAX_HEADERS:
            self._stop_with(large_head())
        name = name.lower()
        if name in KNOWN and self._stage == _HEAD:
            if name in self._headers:
                self._stop_with(malformed(f"{name.decode()} occurs twice"))
            self._headers[name] = value

    def on_headers_complete(self) -> None:
        """Find the route and authorize the request before any of its body is received."""
        parser, shared = self._parser, self._shared
        assert parser is not None
        try:
            newest = check_framing(self._headers, parser)
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
        exchange = Exchange(self, method, newest and parser.should_keep_alive(), query)
        self._current = exchange
        try:
            self.service.admit(exchange, path, self._headers)
        except Exception as error:
            exchange.error = error
            if not self._queue and not self._stalled:
                self._enqueue(exchange)  # whatever its body is
        else:
            expected = self._headers.get(b"expect", b"").lower()
            if expected == b"100-continue" and not self._queue and not self._stalled:
                self._transport.write(b"HTTP/1.1 100 Continue\r\n\r\n")

    def on_body(self, body: bytes) -> None:
        """Add a part of the body."""
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
            most = f"a body may have {self.service.max_body_bytes:,} bytes"
            self._stop_with(ProblemError(413, "Too large", most))

    def on_message_complete(self) -> None:
        """Queue the request: it is complete."""
        self._stage = _IDLE
        self._mixed = True
        exchange, self._current = self._current, None
        if exchange is not None:
            self._enqueue(exchange)
        if self.held:
            self._hold_all()

    # --- bounds ----------------------------------------------------------------------------------

    def _wait_for_more(self, size: int) -> None:
        """Count what is held of an incomplete request."""
        if self._stage == _BODY:
            self.due += size / BODY_RATE
        else:
            # What the parser keeps of a header is not seen here before it is complete. Of a piece
            # in which another request ends, the size of that part is unknown.
            self._partial += 0 if self._mixed else size
            if self._partial > MAX_HEAD_BYTES:
                self._end_with(large_head())
        self._hold_all()

    def _hold_all(self) -> None:
        size = self._partial + sum(len(one.body) for one in self._queue)
        if self._current is not None:
            size += len(self._current.body)
        if self._stalled:
            size += self._transport.get_write_buffer_size()
        self._hold(size)

    def _hold(self, size: int) -> None:
        if size != self.held:
            more, self.held = size - self.held, size
            self._shared.hold(more)

    def give_up(self) -> None:
        """Close this connection to free memory: it holds more than most others."""
        if self._stalled or self._queue:
            self.cut()
        elif not self._ended:
            detail = "too many requests are under way: try again soon"
            self._end_with(ProblemError(503, "Too busy", detail, headers={"retry-after": "1"}))
        self._hold(0)

    def expire(self) -> None:
        """Close a connection whose deadline has passed, unless the service is the slow side."""
        if self._stalled:
            self.cut()
        elif self._queue:
            return
        elif self._ended:
            self.cut()
        elif self._stage == _IDLE:
            self._transport.close()
        else:
            self._end_with(ProblemError(408, "Too slow", "the request was not complete in time"))

    def stop(self) -> None:
        """Accept no further request."""
        self._stopping = True
        if not self._queue and self._stage == _IDLE and not self._ended:
            self._close()

    def cut(self) -> None:
        """Abort the connection."""
        self._ended = True
        self._transport.abort()

    # --- answers ---------------------------------------------------------------------------------

    def respond(self, exchange: Exchange, status: int, kind: bytes, data: bytes) -> None:
        """Send a response."""
        self.service.count(exchange.route, status)
        self._send(exchange, status, kind, data, exchange.more)

    def refuse(self, exchange: Exchange, error: Exception) -> None:
        """Send a problem in place of the response."""
        if isinstance(error, BelatedError) and error.issue:
            exchange.bandit.note_refused(error)
        problem, headers = self.service.problem_for(exchange.route, error)
        more = {**headers, **(exchange.more or {})}
        self._send(exchange, problem.status, PROBLEM, encode(problem), more)

    def _send(
        self,
        exchange: Exchange,
        status: int,
        kind: bytes,
        data: bytes,
        more: dict[str, str] | None,
    ) -> None:
        """Send a response in one write, then start the next request."""
        self._dispatched = False
        queue, transport = self._queue, self._transport
        if not queue or transport.is_closing():
            return
        queue.popleft()
        last = not exchange.keep_alive or self._stopping or self.service.draining
        if last or more or status == 204 or exchange.method == "HEAD":
            more = more or {}
            if last:
                more = {**more, "connection": "close"}
            transport.write(
                self._shared.message(status, kind, data, more, exchange.method != "HEAD")
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
            # Raised here it would keep this frame, and that the error: and all that was received,
            # in the frames that called, until the collector of cycles looks.
            self.refuse(exchange, exchange.error)
            return
        body, exchange.body = exchange.body, b""  # need not be kept while a commit is awaited
        try:
            self.service.dispatch(exchange, body)
        except Exception as error:
            self.refuse(exchange, error)

    def _stop_with(self, error: ProblemError) -> NoReturn:
        """Refuse the request from within the parser, and stop parsing."""
        self._end_with(error)
        raise _Ended

    def _end_with(self, error: ProblemError) -> None:
        """Refuse the current request, once all before it are answered, and close."""
        self._ended = True
        if self._stage == _BODY and self._current is None:  # it was answered
            self._close()
            return
        exchange = self._current or Exchange(self, "GET", False)
        exchange.error = error
        exchange.keep_alive = False
        exchange.body = b""
        self._enqueue(exchange)

    def _close(self) -> None:
        """Close the connection, once the client has read the last response."""
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
        """Read unless responses are not read, or requests are queued."""
        wanted = not self._stalled and len(self._queue) < 2
        if wanted != self._reading and not self._transport.is_closing():
            self._reading = wanted
            if wanted:
                self._transport.resume_reading()
            else:
                self._transport.pause_reading()


class _Ended(Exception):
    """Stops the parser."""


def check_framing(headers: Mapping[bytes, bytes], parser: HttpRequestParser) -> bool:
    """Refuse anything but HTTP/1.1 and 1.0; returns whether it is 1.1."""
    version = parser.get_http_version()
    newest = version == "1.1"
    if not newest and version != "1.0":
        raise malformed("this service speaks HTTP/1.1")
    if b"upgrade" in headers or parser.should_upgrade():
        raise malformed("upgrades are not supported")
    coding = headers.get(b"transfer-encoding")
    if coding is not None and (coding.lower() != b"chunked" or not newest):
        raise malformed("Transfer-Encoding must be chunked, in HTTP/1.1")
    if newest and b"host" not in headers:
        raise malformed("the Host header is missing")
    return newest


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
        raise malformed("the request target has a fragment")
    path, _, query = url.partition(b"?")
    name = _HOST.fullmatch(host)
    if name is None:
        raise malformed("the Host header is no host name")
    if hosts and path not in PROBES and name[1].decode().lower() not in hosts:
        detail = "this name is not listed: add it to server.hosts in the config file"
        raise ProblemError(421, "Misdirected request", detail)
    return path, query


def _without_host(url: bytes, host: bytes) -> bytes:
    """Return the path and query of an absolute URL, which must name the same host."""
    if url == b"*":
        return url
    whole = _ABSOLUTE.fullmatch(url)
    if whole is None:
        raise malformed("the request target must begin with a slash")
    if whole[1].lower() != host.lower():
        raise malformed("the Host header differs from the request line")
    return whole[2] if whole[2].startswith(b"/") else b"/" + whole[2]


def malformed(detail: str) -> ProblemError:
    """Return the problem of a request that is not valid HTTP, or ambiguous."""
    return ProblemError(400, "Malformed request", detail)


def large_head() -> ProblemError:
    """Return the problem of too long a request line and headers, or too many headers."""
    most = f"request line and headers may have {MAX_HEAD_BYTES:,} bytes, in {MAX_HEADERS} headers"
    return ProblemError(431, "Headers too large", most)


def give_back_memory() -> None:
    """Return free memory to the system, where the C library can.

    glibc keeps it otherwise: after a burst, as much as the burst held at once. Takes some
    milliseconds.
    """
    trim = _malloc_trim()
    if trim is not None:
        trim(0)


@cache
def _malloc_trim() -> Callable[[int], int] | None:
    if sys.platform != "linux":
        return None
    # Of the C library that this process has; musl's has no such function.
    return getattr(ctypes.CDLL(None), "malloc_trim", None)
