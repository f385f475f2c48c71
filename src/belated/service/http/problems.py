"""Errors as problems (RFC 9457), with their status codes and headers."""

from __future__ import annotations

import difflib
import math
import re
from collections.abc import Mapping
from functools import cache
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


def malformed_json(error: msgspec.DecodeError, body: bytes | bytearray) -> ProblemError:
    """Return the problem of a body that is not JSON: where it ends, if it ends too early."""
    detail = str(error)
    if not body:
        detail = "the body is empty: send JSON, with curl as in -d '{\"value\": 1}'"
    elif "truncated" in detail:
        last = bytes(body[-20:]).decode(errors="replace")
        detail = f"the JSON ends too early, after {len(body)} bytes, behind {last!r}"
        detail += ": a quotation mark or a bracket is not closed"
    elif re.search(rb"[:,\[]\s*-?(NaN|Infinity)", body):
        detail += ": JSON has no NaN and no Infinity; send null for what is not known"
    return ProblemError(400, "Malformed JSON", detail)


#: What fields are called elsewhere.
_SYNONYMS = {
    "reward": "value", "decision_id": "id", "decision": "id", "time": "at", "timestamp": "at",
    "arms": "actions", "features": "context", "user": "subject", "user_id": "subject",
}  # fmt: skip
_UNKNOWN_FIELD = re.compile(r"Object contains unknown field `(.*?)`( - at `.*)?", re.DOTALL)


def _unknown_field(detail: str, body: Any) -> str:
    """Return what to say of a field that the body of a route does not have."""
    found = _UNKNOWN_FIELD.fullmatch(detail)
    if found is None or body is None:
        return detail
    name, place = found[1], found[2] or ""
    known = _fields_of(body, nested="[" in place)
    meant = _SYNONYMS.get(name, "")
    if meant not in known:
        meant = next(iter(difflib.get_close_matches(name, known, n=1)), "")
    question = f"did you mean `{meant}`? " if meant else ""
    return f"unknown field `{name}`{place}: {question}Known fields: {', '.join(known)}"


@cache
def _fields_of(body: Any, nested: bool) -> tuple[str, ...]:
    """Return the fields of a body, or of the items that it lists."""
    found: Any = msgspec.inspect.type_info(body)
    if nested:
        found = found.fields[0].type.item_type
    return tuple(field.encode_name for field in found.fields)


def problem_of(error: Exception, body: Any = None) -> tuple[Problem, dict[str, str]]:
    """Return the problem that an error is to a client, and the headers of the response.

    Args:
        error: that ended the request.
        body: type of the request's body; None if it has none.
    """
    if isinstance(error, ProblemError):
        return error.problem, error.headers
    _, status, title, detail, headers = next(row for row in _PROBLEMS if isinstance(error, row[0]))
    if detail is None:
        detail = str(error)
        if isinstance(error, msgspec.ValidationError) and detail.endswith(".at`"):
            detail += f": {TIME_HINT}"
        elif isinstance(error, msgspec.ValidationError):
            detail = _unknown_field(detail, body)
    if isinstance(error, RateLimited):
        headers = {"retry-after": str(math.ceil(error.retry_after))}
    return Problem(title, status, _short(detail)), headers
