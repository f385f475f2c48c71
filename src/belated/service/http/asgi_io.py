"""One HTTP exchange over ASGI: the body in, an answer out."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping, MutableMapping
from typing import Any

import msgspec

from belated.service.http.problems import ProblemError
from belated.service.wire.problem import Problem

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]

JSON, PROBLEM = b"application/json", b"application/problem+json"
encode = msgspec.json.Encoder().encode


def check_plain(headers: Iterable[tuple[bytes, bytes]]) -> None:
    """Refuse a body that is compressed: what it would come to is not known before it is there."""
    for name, value in headers:
        if name == b"content-encoding" and value.strip().lower() != b"identity":
            raise ProblemError(
                415,
                "Unsupported encoding",
                "a body must be sent as it is, without Content-Encoding",
                headers={"accept-encoding": "identity"},
            )


async def body_of(receive: Receive, limit: int) -> bytes:
    """The whole body; its bytes are counted: what the client says of its length may be wrong."""
    message = await receive()
    body: bytes = message.get("body", b"")
    if not message.get("more_body"):
        if len(body) > limit:
            raise too_large(limit)
        return body
    parts, size = [body], len(body)
    while message.get("more_body"):
        if size > limit:
            raise too_large(limit)
        message = await receive()
        if message["type"] == "http.disconnect":
            raise ProblemError(400, "Incomplete request", "the connection ended within the body")
        parts.append(message.get("body", b""))
        size += len(parts[-1])
    if size > limit:
        raise too_large(limit)
    return b"".join(parts)


def too_large(limit: int) -> ProblemError:
    """More than may be sent."""
    return ProblemError(413, "Too large", f"a body may have {limit:,} bytes")


async def answer(send: Send, status: int, content: object, headers: Mapping[str, str]) -> None:
    """Send JSON."""
    await answer_bytes(send, status, JSON, encode(content), headers)


async def answer_problem(send: Send, problem: Problem, headers: Mapping[str, str]) -> None:
    """Send a problem."""
    await answer_bytes(send, problem.status, PROBLEM, encode(problem), headers)


async def answer_bytes(
    send: Send, status: int, kind: bytes, data: bytes, headers: Mapping[str, str]
) -> None:
    """Send bytes of some content type."""
    length = str(len(data)).encode()
    await _send(send, status, headers, data, (b"content-type", kind), (b"content-length", length))


async def answer_empty(send: Send, headers: Mapping[str, str]) -> None:
    """Send nothing but headers."""
    await _send(send, 204, headers, b"")


def last(send: Send) -> Send:
    """For the last answer over a connection: the client is told, and it is closed."""

    async def send_last(message: MutableMapping[str, Any]) -> None:
        if message["type"] == "http.response.start":
            message["headers"] = [*message["headers"], (b"connection", b"close")]
        await send(message)

    return send_last


async def _send(
    send: Send, status: int, headers: Mapping[str, str], data: bytes, *more: tuple[bytes, bytes]
) -> None:
    named = [*more, *((name.encode(), value.encode()) for name, value in headers.items())]
    await send({"type": "http.response.start", "status": status, "headers": named})
    await send({"type": "http.response.body", "body": data})
