"""What went wrong, as RFC 9457 has it."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from belated.exceptions import (
    InvalidInput,
    JournalClosed,
    JournalUnavailable,
)

#: The longest detail, in characters.
LONGEST = 300


class Problem(msgspec.Struct, frozen=True, omit_defaults=True):
    """A problem, to be answered as application/problem+json.

    Attributes:
        title: what kind it is.
        status: the HTTP status.
        detail: what is wrong here, and what to do.
        type: names the kind.
    """

    title: str
    status: int
    detail: str = ""
    type: str = "about:blank"


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


def problem_of(error: Exception) -> Problem:
    """The problem that an error is to a client; nothing of the inside is told."""
    if isinstance(error, ProblemError):
        return error.problem
    if isinstance(error, msgspec.ValidationError | InvalidInput):
        return Problem("Invalid request", 422, _short(str(error)))
    if isinstance(error, msgspec.DecodeError):
        return Problem("Malformed JSON", 400, str(error))
    if isinstance(error, UnicodeDecodeError):
        return Problem("Malformed text", 400, "the request holds text that is not UTF-8")
    if isinstance(error, RecursionError):
        return Problem("Malformed JSON", 400, "it is nested too deeply")
    if isinstance(error, JournalUnavailable | JournalClosed):
        return Problem("Try again", 503, "the journal cannot be reached now: nothing was taken")
    return Problem("Internal error", 500, "something went wrong here; the log says what")


def headers_of(error: Exception) -> dict[str, str]:
    """What else is to be said of an error."""
    if isinstance(error, JournalUnavailable | JournalClosed):
        return {"retry-after": "1"}
    return error.headers if isinstance(error, ProblemError) else {}
