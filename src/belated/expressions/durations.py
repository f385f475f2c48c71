"""Time spans as people write them."""

from __future__ import annotations

import re
from datetime import timedelta

from belated.exceptions import InvalidInput

_UNITS = {"d": "days", "h": "hours", "m": "minutes", "s": "seconds"}


def as_span(text: str) -> timedelta:
    """A time span: whole numbers with their units.

    >>> as_span("7d")
    datetime.timedelta(days=7)
    >>> as_span("1h30m")
    datetime.timedelta(seconds=5400)
    """
    if not re.fullmatch(r"(\d+[dhms])+", text, re.ASCII):
        message = f"{text!r} is no time span: 7d, 12h, 30m or 45s was expected"
        raise InvalidInput(message, text)
    try:
        parts = re.findall(r"(\d+)([dhms])", text)
        return sum((timedelta(**{_UNITS[unit]: int(n)}) for n, unit in parts), timedelta())
    except (OverflowError, ValueError):  # the latter beyond 4,300 digits
        raise InvalidInput(f"{text!r} is too long", text) from None
