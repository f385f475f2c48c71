"""Open-loop load: requests are sent when they are due, however slow the responses are.

A closed loop, as in wrk, sends fewer requests to a slow server, and so never sees the queue that
real callers cause. Here a latency counts from the moment the request was due.
"""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import Awaitable, Callable, Mapping

import numpy as np

_LENGTH = re.compile(rb"\r\ncontent-length: (\d+)\r\n", re.IGNORECASE)


class Answer:
    """A response, and its latency since the request was due."""

    __slots__ = ("body", "due", "seconds", "status")

    def __init__(self, status: int, body: bytes, due: float, seconds: float) -> None:
        self.status = status
        self.body = body
        self.due = due
        self.seconds = seconds


class _Connection(asyncio.Protocol):
    """A keep-alive connection with one request at a time."""

    def __init__(self) -> None:
        self._transport: asyncio.Transport | None = None
        self._data = b""
        self._answer: asyncio.Future[tuple[int, bytes]] | None = None
        self.is_open = True

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        self._transport = transport

    def ask(self, data: bytes) -> asyncio.Future[tuple[int, bytes]]:
        assert self._transport is not None
        self._answer = asyncio.get_running_loop().create_future()
        self._transport.write(data)
        return self._answer

    def data_received(self, data: bytes) -> None:
        self._data += data
        head = self._data.find(b"\r\n\r\n")
        if head < 0:
            return
        match = _LENGTH.search(self._data, 0, head + 2)
        end = head + 4 + (int(match[1]) if match else 0)
        if len(self._data) < end:
            return
        answer = int(self._data[9:12]), self._data[head + 4 : end]
        self._data = self._data[end:]
        if self._answer is not None and not self._answer.done():
            self._answer.set_result(answer)

    def connection_lost(self, error: Exception | None) -> None:
        self.is_open = False
        if self._answer is not None and not self._answer.done():
            self._answer.set_exception(error or ConnectionError("the connection was closed"))

    def close(self) -> None:
        if self._transport is not None:
            self._transport.close()


class Caller:
    """Calls one server; opens as many connections as are needed concurrently."""

    def __init__(
        self, port: int, host: str = "127.0.0.1", *, headers: Mapping[str, str] | None = None
    ) -> None:
        self._host, self._port = host, port
        self._headers = "".join(f"{name}: {value}\r\n" for name, value in (headers or {}).items())
        self._idle: list[_Connection] = []

    async def ask(self, method: str, path: str, body: bytes, due: float) -> Answer:
        """Send one request; a connection that breaks gives a response with status 0."""
        head = f"{method} {path} HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
        data = f"{head}{self._headers}Content-Length: {len(body)}\r\n\r\n".encode() + body
        try:
            connection = await self._connection()
            status, content = await connection.ask(data)
            self._idle.append(connection)
        except OSError as error:
            status, content = 0, str(error).encode()
        return Answer(status, content, due, time.perf_counter() - due)

    async def _connection(self) -> _Connection:
        while self._idle:
            connection = self._idle.pop()
            if connection.is_open:
                return connection
        loop = asyncio.get_running_loop()
        _, protocol = await loop.create_connection(_Connection, self._host, self._port)
        return protocol

    def close(self) -> None:
        """Close all connections."""
        for connection in self._idle:
            connection.close()


async def at_rate(
    rate: float,
    seconds: float,
    ask: Callable[[int, float], Awaitable[object]],
    *,
    seed: int = 0,
) -> float:
    """Call ``ask(number, due)`` at random moments, ``rate`` times per second on average.

    Returns:
        The delay of the latest call in seconds: the generator's own slowness.
    """
    gaps = np.random.default_rng(seed).exponential(1 / rate, int(rate * seconds))
    start = time.perf_counter()
    latest = 0.0
    waiting: set[asyncio.Future[object]] = set()

    def ended(task: asyncio.Future[object]) -> None:
        waiting.discard(task)
        task.result()  # raise errors of this program

    for number, due in enumerate((start + np.cumsum(gaps)).tolist()):
        while (now := time.perf_counter()) < due:
            await asyncio.sleep(min(due - now, 0.001))
        latest = max(latest, now - due)
        task = asyncio.ensure_future(ask(number, due))
        waiting.add(task)
        task.add_done_callback(ended)
    if waiting:
        await asyncio.wait(waiting, timeout=30)
    return latest


def quantiles(seconds: list[float]) -> str:
    """Format quantiles in milliseconds.

    >>> quantiles([0.001] * 99 + [0.5])
    'p50 1.0, p99 6.0, worst 500.0 ms'
    """
    p50, p99 = np.quantile(seconds, [0.5, 0.99])
    return f"p50 {1e3 * p50:.1f}, p99 {1e3 * p99:.1f}, worst {1e3 * max(seconds):.1f} ms"
