"""What went wrong, as RFC 9457 has it."""

from __future__ import annotations

import msgspec


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
