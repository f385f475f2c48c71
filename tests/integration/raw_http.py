"""Requests as bytes, and the responses over one connection."""

from __future__ import annotations

import re
import socket
import time
from contextlib import suppress
from typing import NamedTuple

PATH = "/v1/raw/decisions"
OFFER = b'{"rows":[[1,0],[0,1]]}'


def request(
    body: bytes = OFFER,
    *headers: str,
    start: str = f"POST {PATH} HTTP/1.1",
    host: str | None = "here",
    length: bool = True,
    kind: str | None = "application/json",
) -> bytes:
    """Return a request as bytes."""
    lines = [start]
    lines += [] if host is None else [f"Host: {host}"]
    lines += [] if kind is None else [f"Content-Type: {kind}"]
    lines += headers
    lines += [f"Content-Length: {len(body)}"] if length else []
    return "\r\n".join([*lines, "", ""]).encode("latin-1") + body


def get(path: str, *headers: str) -> bytes:
    """Return a request without a body."""
    return request(b"", *headers, start=f"GET {path} HTTP/1.1", length=False, kind=None)


LAST = get("/livez", "Connection: close")


class Answer(NamedTuple):
    """A response: its status, raw headers and content."""

    status: int
    head: str
    content: bytes


class Raw:
    """A connection for raw bytes.

    Args:
        port: of the server.
        source: the address to connect from.
        buffer: size of the kernel's receive buffer; None for the default.
    """

    def __init__(
        self, port: int, *, source: str = "127.0.0.1", buffer: int | None = None, wait: float = 10
    ) -> None:
        self.socket = socket.socket()
        if buffer is not None:
            self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, buffer)
        self.socket.settimeout(wait)
        self.socket.bind((source, 0))
        self.socket.connect(("127.0.0.1", port))

    def __enter__(self) -> Raw:
        return self

    def __exit__(self, *exception: object) -> None:
        self.socket.close()

    def send(self, data: bytes, pieces: int = 1) -> None:
        """Send bytes; it is no error if the server has closed the connection meanwhile."""
        size = max(1, -(-len(data) // pieces))
        with suppress(ConnectionError):
            for start in range(0, len(data), size):
                self.socket.sendall(data[start : start + size])
                if pieces > 1:
                    time.sleep(0.01)

    def rest(self) -> bytes:
        """Return everything received until the other side closes the connection."""
        data = b""
        with suppress(ConnectionError):
            while part := self.socket.recv(65_536):
                data += part
        return data

    def answers(self) -> list[Answer]:
        """Return the parsed responses until the other side closes the connection."""
        return answers_in(self.rest())


def answers_in(data: bytes) -> list[Answer]:
    """Parse consecutive responses; any bytes between two of them are an error."""
    answers = []
    while data:
        form = re.match(rb"HTTP/1\.1 (\d\d\d) [^\r\n]*\r\n", data)
        assert form is not None, data[:200]
        head, _, data = data.partition(b"\r\n\r\n")
        status = int(form[1])
        length = re.search(rb"\r\ncontent-length: (\d+)", head.lower())
        size = int(length[1]) if length and status not in (100, 204) else 0
        assert len(data) >= size, (head, data)
        answers.append(Answer(status, head.decode("latin-1"), data[:size]))
        data = data[size:]
    return answers


def said(port: int, data: bytes, pieces: int = 1) -> list[Answer]:
    """Return the responses to bytes; if the connection stays open, another request closes it."""
    with Raw(port) as raw:
        raw.send(data + LAST, pieces)
        return raw.answers()


def statuses(port: int, data: bytes, pieces: int = 1) -> list[int]:
    """Return only the statuses."""
    return [answer.status for answer in said(port, data, pieces)]
