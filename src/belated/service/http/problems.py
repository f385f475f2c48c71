"""Errors as problems (RFC 9457), with their status codes and headers."""

from __future__ import annotations

import math
from collections.abc import Mapping

import msgspec

from belated.exceptions import (
    BanditOff,
    Forbidden,
    InvalidInput,
    JournalError,
    NotIndexed,
    RateLimited,
    Unauthenticated,
    UnknownBandit,
)
from belated.wire.problem import Problem
from belated.wire.requests import TIME_HINT

#: The longest detail, in characters.
LONGEST = 300


_NOT_INDEXED = (
    "this service finds no decision by its id, so it cannot tell whether one stands under the id "
    "that was sent: leave the id out, or ask where the journal is folded"
)


def _short(detail: str) -> str:
    """Messages name what was sent, which may be long."""
    return detail if len(detail) <= LONGEST else detail[: LONGEST - 1] + "…"


class ProblemError(Exception):
    """Ends a request with a problem, and further headers."""

    def __init__(
        self, status: int, title: str, detail: str = "", headers: Mapping[str, str] | None = None
    ) -> None:
        super().__init__(detail or title)
        self.problem = Problem(title, status, _short(detail))
        self.headers = dict(headers or {})


def check_content(headers: Mapping[bytes, bytes], *, json: bool) -> None:
    """Refuse a body that is compressed, or not said to be JSON.

    What a compressed one would come to is not known before it is there. And a page of a stranger
    can have a browser send any other type, but this one only where the service allows it.
    """
    coding = headers.get(b"content-encoding")
    if coding is not None and coding.strip().lower() != b"identity":
        raise ProblemError(
            415,
            "Unsupported encoding",
            "a body must be sent as it is, without Content-Encoding",
            headers={"accept-encoding": "identity"},
        )
    if json:
        kind = headers.get(b"content-type", b"")
        if kind != b"application/json" and (
            kind.partition(b";")[0].strip().lower() != b"application/json"
        ):
            told = "send the body as JSON, with Content-Type: application/json"
            raise ProblemError(415, "Unsupported type", told)


def problem_of(error: Exception) -> Problem:
    """The problem that an error is to a client; nothing of the inside is told."""
    if isinstance(error, ProblemError):
        return error.problem
    if isinstance(error, msgspec.ValidationError):
        told = str(error)
        hint = f": {TIME_HINT}" if told.endswith(".at`") else ""
        return Problem("Invalid request", 422, _short(told + hint))
    if isinstance(error, InvalidInput):
        return Problem("Invalid request", 422, _short(str(error)))
    if isinstance(error, msgspec.DecodeError):
        return Problem("Malformed JSON", 400, str(error))
    if isinstance(error, UnicodeDecodeError):
        return Problem("Malformed text", 400, "the request holds text that is not UTF-8")
    if isinstance(error, RecursionError):
        return Problem("Malformed JSON", 400, "it is nested too deeply")
    if isinstance(error, Unauthenticated):
        return Problem("Unauthorized", 401, str(error))
    if isinstance(error, Forbidden):
        return Problem("Not allowed", 403, str(error))
    if isinstance(error, RateLimited):
        return Problem("Too many requests", 429, str(error))
    if isinstance(error, UnknownBandit):
        return Problem("Not found", 404, _short(str(error)))
    if isinstance(error, BanditOff):
        return Problem("Switched off", 503, "this bandit decides nothing now")
    if isinstance(error, NotIndexed):
        return Problem("Not known here", 409, _NOT_INDEXED)
    if isinstance(error, JournalError):  # away, closed, or without its tables and rights
        return Problem("Try again", 503, "the journal cannot be reached now: nothing was taken")
    return Problem("Internal error", 500, "something went wrong here; the log says what")


def headers_of(error: Exception) -> dict[str, str]:
    """What else is to be said of an error."""
    if isinstance(error, JournalError) and not isinstance(error, NotIndexed):
        return {"retry-after": "1"}
    if isinstance(error, Unauthenticated):
        return {"www-authenticate": "Bearer"}
    if isinstance(error, RateLimited):
        return {"retry-after": str(math.ceil(error.retry_after))}
    if isinstance(error, BanditOff):
        return {"retry-after": "60"}
    return error.headers if isinstance(error, ProblemError) else {}
