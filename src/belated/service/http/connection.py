"""One connection: from its bytes to requests, and their answers back, in bounded room and time."""

from __future__ import annotations

import asyncio
import math
from collections import deque
from collections.abc import Mapping
from typing import NoReturn

from httptools import HttpParserError, HttpParserUpgrade, HttpRequestParser

from belated.service.http.connections import Connections
from belated.service.http.exchange import PROBLEM, Exchange, encode
from belated.service.http.framing import (
    KNOWN,
    MAX_HEAD_BYTES,
    MAX_HEADERS,
    check_framing,
    check_target,
    large_head,
    malformed,
)
from belated.service.http.problems import ProblemError, headers_of, problem_of

#: Bytes that are parsed at a time, so that what has come of a request is known that exactly.
PIECE = 16 << 10
#: Requests over one connection that are sent before the first of them is answered.
MAX_PIPELINE = 16
#: Seconds for the headers, from their first byte on; and for the body, which gets another second
#: for so many bytes as come.
HEAD_SECONDS, BODY_SECONDS, BODY_RATE = 10.0, 30.0, 64 << 10
#: Seconds for which an idle connection is kept: longer than balancers keep theirs, or they would
#: send requests down one that is being closed.
KEEP_ALIVE_SECONDS = 75.0
#: Seconds for which an answer may wait to be read; and for which a connection that is to be closed
#: is read from: whoever is still sending would not see the last answer otherwise.
WRITE_SECONDS, LINGER_SECONDS = 30.0, 2.0

_IDLE, _HEAD, _BODY = range(3)


class Connection(asyncio.Protocol):
    """Requests over one connection are answered one after the other, in their order.

    Args:
        connections: of the server.

    Attributes:
        service: answers.
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
        self._asking = False
        # Whether the other side does not read, and whether this one does.
        self._stalled, self._reading = False, True
        self._half_closed = self._stopping = self._ended = False

    # --- the transport ---------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Someone has come."""
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
            transport.write(
                self._shared.message(503, PROBLEM, encode(problem_of(error)), headers_of(error))
            )
            transport.close()

    def connection_lost(self, exc: Exception | None) -> None:
        """It has ended: what waits is not begun, what is under way has nobody to hear of it."""
        self._ended = True
        self._queue.clear()
        self._hold(0)
        self._parser = self._current = None  # they refer to each other
        if self._address is not None:
            self._shared.remove(self, self._address)

    def data_received(self, data: bytes) -> None:
        """Some bytes have come."""
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
            self._end_with(malformed("an upgrade cannot be had"))
        except HttpParserError:
            if not self._ended:
                self._end_with(malformed("this is not HTTP/1.1"))
        else:
            if self._stage != _IDLE:
                self._wait_for_more(len(data))

    def eof_received(self) -> bool:
        """The other side sends no more; it may still read."""
        self._half_closed = True
        return bool(self._queue)

    def pause_writing(self) -> None:
        """The other side does not read: take nothing more from it."""
        self._stalled = True
        self.due = self._shared.now + WRITE_SECONDS
        self._hold_all()
        self._set_reading()

    def resume_writing(self) -> None:
        """It reads again."""
        self._stalled = False
        self._restart_clock()
        self._hold_all()
        self._advance()
        self._set_reading()

    # --- the parser ------------------------------------------------------------------------------

    def on_message_begin(self) -> None:
        """A request begins."""
        if self._ended:
            raise _Ended
        self._stage = _HEAD
        self._url = b""
        self._headers = {}
        self._header_count = self._size = self._partial = 0
        self.due = self._shared.now + HEAD_SECONDS

    def on_url(self, url: bytes) -> None:
        """A part of what is asked for."""
        self._url += url
        self._size += len(url)
        if self._size > MAX_HEAD_BYTES:
            self._stop_with(large_head())

    def on_header(self, name: bytes, value: bytes) -> None:
        """One header; after the body there may be more of them, which mean nothing."""
        self._header_count += 1
        self._size += len(name) + len(value) + 4
        if self._size > MAX_HEAD_BYTES or self._header_count > MAX_HEADERS:
            self._stop_with(large_head())
        name = name.lower()
        if name in KNOWN and self._stage == _HEAD:
            if name in self._headers:
                self._stop_with(malformed(f"{name.decode()} stands there twice"))
            self._headers[name] = value

    def on_headers_complete(self) -> None:
        """See what is asked, and whether that is allowed, before any of the body is taken."""
        parser, shared = self._parser, self._shared
        assert parser is not None
        try:
            newest = check_framing(self._headers, parser)
            path, query = check_target(self._url, self._headers, shared.limits.hosts)
            self._burst += 1
            if max(self._burst, len(self._queue) + 1) > MAX_PIPELINE:
                told = f"{MAX_PIPELINE} requests may wait for their answers"
                raise ProblemError(429, "Too many requests at once", told)
        except ProblemError as error:
            self._stop_with(error)
        self._stage = _BODY
        self._skipped = self._partial = 0
        self.due = shared.now + BODY_SECONDS
        method = parser.get_method().decode("ascii")
        exchange = Exchange(self, method, newest and parser.should_keep_alive())
        exchange.query = query
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
        """A part of the body."""
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
        """All of it is there."""
        self._stage = _IDLE
        self._mixed = True
        exchange, self._current = self._current, None
        if exchange is not None:
            self._enqueue(exchange)
        if self.held:
            self._hold_all()

    # --- bounds ----------------------------------------------------------------------------------

    def _wait_for_more(self, size: int) -> None:
        """A request is there in part: count what is kept of it."""
        if self._stage == _BODY:
            self.due += size / BODY_RATE
        else:
            # What the parser keeps of a header is not seen here before it is complete. Of a piece
            # in which another request ends nobody knows how much that is.
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
        """There is no room for all that is held, and most of it is held here."""
        if self._stalled or self._queue:
            self.cut()
        elif not self._ended:
            told = "too many requests are under way: try again soon"
            self._end_with(ProblemError(503, "Too busy", told, headers={"retry-after": "1"}))
        self._hold(0)

    def expire(self) -> None:
        """It has taken too long, if it is the other side that is waited for."""
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
        """Take no further request."""
        self._stopping = True
        if not self._queue and self._stage == _IDLE and not self._ended:
            self._close()

    def cut(self) -> None:
        """Close it at once, whatever is under way."""
        self._ended = True
        self._transport.abort()

    # --- answers ---------------------------------------------------------------------------------

    def send(
        self, exchange: Exchange, status: int, kind: bytes, data: bytes, more: Mapping[str, str]
    ) -> None:
        """Send an answer, all in one piece; then it is the next one's turn."""
        self._asking = False
        queue, transport = self._queue, self._transport
        if not queue or transport.is_closing():
            return
        queue.popleft()
        last = not exchange.keep_alive or self._stopping or self.service.draining
        if last or more or status == 204 or exchange.method == "HEAD":
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
        if self._queue and not self._asking and not self._stalled:
            self._asking = True
            self._queue[0].ask()

    def _stop_with(self, error: ProblemError) -> NoReturn:
        """End from within the parser, which reads no further."""
        self._end_with(error)
        raise _Ended

    def _end_with(self, error: ProblemError) -> None:
        """Refuse what is being read, once all before it is answered, and close."""
        self._ended = True
        if self._stage == _BODY and self._current is None:  # it has its answer
            self._close()
            return
        exchange = self._current or Exchange(self, "GET", False)
        exchange.error = error
        exchange.keep_alive = False
        exchange.body = b""
        self._enqueue(exchange)

    def _close(self) -> None:
        """Close, once what was sent has been read, or nothing more comes."""
        self._ended = True
        self._queue.clear()
        if self._half_closed or not self._transport.can_write_eof():
            self._transport.close()
        else:
            self._transport.write_eof()
            self.due = self._shared.now + LINGER_SECONDS

    def _restart_clock(self) -> None:
        """Time that was spent here is not the other side's."""
        if self._ended:
            self.due = self._shared.now + LINGER_SECONDS
        elif self._stage == _IDLE:
            self.due = self._shared.now + KEEP_ALIVE_SECONDS
        else:
            self.due = self._shared.now + BODY_SECONDS

    def _set_reading(self) -> None:
        """Read on unless answers are not read, or requests wait for their turn."""
        wanted = not self._stalled and len(self._queue) < 2
        if wanted != self._reading and not self._transport.is_closing():
            self._reading = wanted
            if wanted:
                self._transport.resume_reading()
            else:
                self._transport.pause_reading()


class _Ended(Exception):
    """Stops the parser."""
