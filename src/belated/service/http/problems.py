"""Errors as problems (RFC 9457), with their status codes and headers."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import msgspec

from belated.exceptions import (
    ActionsPaused,
    BanditOff,
    Forbidden,
    InvalidInput,
    JournalError,
    NotIndexed,
    RateLimited,
    Unauthenticated,
    UnknownBandit,
)
from belated.wire.messages import TIME_HINT, Problem

#: The longest detail, in characters.
LONGEST = 300

_NOT_INDEXED = (
    "this service finds no decision by its id, so it cannot tell whether one stands under the id "
    "that was sent: leave the id out, or ask where the journal is folded"
)
_UNAVAILABLE = "the journal cannot be reached now: nothing was taken"


def _short(detail: str) -> str:
    """Truncate a message: it may quote what was sent."""
    return detail if len(detail) <= LONGEST else detail[: LONGEST - 1] + "…"


class ProblemError(Exception):
    """Ends a request with a problem, and further headers."""

    def __init__(
        self, status: int, title: str, detail: str = "", headers: Mapping[str, str] | None = None
    ) -> None:
        super().__init__(detail or title)
        self.problem = Problem(title, status, _short(detail))
        self.headers = dict(headers or {})


#: By the type of an error, the first that fits: status, title, detail (None for the words of the
#: error itself) and headers. Internals are never exposed.
_PROBLEMS: tuple[tuple[Any, int, str, str | None, dict[str, str]], ...] = (
    (msgspec.ValidationError | InvalidInput, 422, "Invalid request", None, {}),
    (msgspec.DecodeError, 400, "Malformed JSON", None, {}),
    (UnicodeDecodeError, 400, "Malformed text", "the request holds text that is not UTF-8", {}),
    (RecursionError, 400, "Malformed JSON", "it is nested too deeply", {}),
    (Unauthenticated, 401, "Unauthorized", None, {"www-authenticate": "Bearer"}),
    (Forbidden, 403, "Not allowed", None, {}),
    (RateLimited, 429, "Too many requests", None, {}),
    (UnknownBandit, 404, "Not found", None, {}),
    (BanditOff, 503, "Switched off", "this bandit decides nothing now", {"retry-after": "60"}),
    (ActionsPaused, 409, "Actions paused", None, {}),
    (NotIndexed, 409, "Not known here", _NOT_INDEXED, {}),
    # The store is unavailable or closed, or lacks tables or rights.
    (JournalError, 503, "Try again", _UNAVAILABLE, {"retry-after": "1"}),
    (Exception, 500, "Internal error", "something went wrong here; the log says what", {}),
)


def problem_of(error: Exception) -> tuple[Problem, dict[str, str]]:
    """Return the problem that an error is to a client, and the headers of the response."""
    if isinstance(error, ProblemError):
        return error.problem, error.headers
    _, status, title, detail, headers = next(row for row in _PROBLEMS if isinstance(error, row[0]))
    if detail is None:
        detail = str(error)
        if isinstance(error, msgspec.ValidationError) and detail.endswith(".at`"):
            detail += f": {TIME_HINT}"
    if isinstance(error, RateLimited):
        headers = {"retry-after": str(math.ceil(error.retry_after))}
    return Problem(title, status, _short(detail)), headers
