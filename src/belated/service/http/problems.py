"""Conversion of errors to problem details (RFC 9457), with status codes and headers."""

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

#: Maximum length of a detail, in characters.
LONGEST = 300

_NOT_INDEXED = (
    "this service cannot look up decisions by id, so it cannot check whether the id is already in "
    "use: omit the id, or send the request to a service that folds the journal"
)
_UNAVAILABLE = "the journal is unavailable: nothing was stored"


def _short(detail: str) -> str:
    """Truncate a detail, which may quote parts of the request."""
    return detail if len(detail) <= LONGEST else detail[: LONGEST - 1] + "…"


class ProblemError(Exception):
    """Raised to reject a request with a problem and optional response headers."""

    def __init__(
        self, status: int, title: str, detail: str = "", headers: Mapping[str, str] | None = None
    ) -> None:
        super().__init__(detail or title)
        self.problem = Problem(title, status, _short(detail))
        self.headers = dict(headers or {})


#: For each type of error, the status, title, detail (None for the error's own message) and headers.
#: The first matching row applies. Internal details are never exposed.
_PROBLEMS: tuple[tuple[Any, int, str, str | None, dict[str, str]], ...] = (
    (msgspec.ValidationError | InvalidInput, 422, "Invalid request", None, {}),
    (msgspec.DecodeError, 400, "Malformed JSON", None, {}),
    (UnicodeDecodeError, 400, "Malformed text", "the request contains text that is not UTF-8", {}),
    (RecursionError, 400, "Malformed JSON", "the JSON is nested too deeply", {}),
    (Unauthenticated, 401, "Unauthorized", None, {"www-authenticate": "Bearer"}),
    (Forbidden, 403, "Not allowed", None, {}),
    (RateLimited, 429, "Too many requests", None, {}),
    (UnknownBandit, 404, "Not found", None, {}),
    (BanditOff, 503, "Switched off", "this bandit is switched off", {"retry-after": "60"}),
    (ActionsPaused, 409, "Actions paused", None, {}),
    (NotIndexed, 409, "Lookup not supported", _NOT_INDEXED, {}),
    # The store is unavailable or closed, or tables or permissions are missing.
    (JournalError, 503, "Try again", _UNAVAILABLE, {"retry-after": "1"}),
    (Exception, 500, "Internal error", "the service failed; its log has the details", {}),
)


def malformed_json(error: msgspec.DecodeError, body: bytes | bytearray) -> ProblemError:
    """Return the problem for a body that is not JSON. If it is truncated, show where it ends."""
    detail = str(error)
    if not body:
        detail = "the body is empty: send JSON, for example with curl -d '{\"value\": 1}'"
    elif "truncated" in detail:
        last = bytes(body[-20:]).decode(errors="replace")
        detail = f"the JSON is incomplete (it ends after {len(body)} bytes, with {last!r}): "
        detail += "close all quotation marks and brackets"
    elif re.search(rb"[:,\[]\s*-?(NaN|Infinity)", body):
        detail += ": JSON has no NaN or Infinity; send null for unknown values"
    return ProblemError(400, "Malformed JSON", detail)


#: Field names used by other APIs, and the corresponding field names in this API.
_SYNONYMS = {
    "reward": "value", "decision_id": "id", "decision": "id", "time": "at", "timestamp": "at",
    "arms": "actions", "features": "context", "user": "subject", "user_id": "subject",
}  # fmt: skip
_UNKNOWN_FIELD = re.compile(r"Object contains unknown field `(.*?)`( - at `.*)?", re.DOTALL)


def _unknown_field(detail: str, body: Any) -> str:
    """Add the known fields and a suggestion to msgspec's message about an unknown field."""
    match = _UNKNOWN_FIELD.fullmatch(detail)
    if match is None or body is None:
        return detail
    name, path = match[1], match[2] or ""
    fields = _fields_of(body, nested="[" in path)
    suggestion = _SYNONYMS.get(name, "")
    if suggestion not in fields:
        suggestion = next(iter(difflib.get_close_matches(name, fields, n=1)), "")
    question = f"did you mean `{suggestion}`? " if suggestion else ""
    return f"unknown field `{name}`{path}: {question}Known fields: {', '.join(fields)}"


@cache
def _fields_of(body: Any, nested: bool) -> tuple[str, ...]:
    """Return the field names of a body type, or of the items in its list."""
    info: Any = msgspec.inspect.type_info(body)
    if nested:
        info = info.fields[0].type.item_type
    return tuple(field.encode_name for field in info.fields)


def problem_of(error: Exception, body: Any = None) -> tuple[Problem, dict[str, str]]:
    """Return the problem to send for an error, and the response headers.

    Args:
        error: Error raised while the request was handled.
        body: Type of the request body; None if the route has no body.
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
