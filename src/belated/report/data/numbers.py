"""Numbers as they stand in a report: short, and None where there is none."""

from __future__ import annotations

import math
from typing import Any

#: Of a normal interval of 95 %.
Z = 1.959964


def short(number: float, digits: int = 6) -> float | None:
    """A number with few digits; None if it is not finite.

    >>> short(0.12345678), short(float("nan")), short(123456.789, 3)
    (0.123457, None, 123457.0)
    """
    if not math.isfinite(number):
        return None
    if not number:
        return 0.0
    return round(float(number), max(0, digits - 1 - math.floor(math.log10(abs(number)))))


def interval(value: float, low: float, high: float) -> dict[str, Any]:
    """A value with the ends of its interval."""
    return {"p": short(value), "lo": short(low), "hi": short(high)}


def around(value: float, error: float, least: float = -math.inf) -> dict[str, Any]:
    """A value with a normal interval, which does not go below ``least``."""
    return interval(value, max(value - Z * error, least), value + Z * error)
