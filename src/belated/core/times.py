"""Convert callers' times and durations to microseconds, and format them for display."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from typing import Any

import numpy as np

from belated.core.inputs import must_be
from belated.exceptions import InvalidInput

#: A time as callers pass it: a datetime with a time zone (a pandas Timestamp is one), ISO 8601
#: text, or whole microseconds since 1970.
Moment = datetime | str | int
#: A duration as callers pass it: a timedelta, or text such as "7d" or "1h30m".
Duration = timedelta | str

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)
_FIRST = datetime.min.replace(tzinfo=UTC)
_LAST = datetime.max.replace(tzinfo=UTC)
_UNITS = {"d": 86_400_000_000, "h": 3_600_000_000, "m": 60_000_000, "s": 1_000_000, "us": 1}

#: Numbers in this range, the years 2000 to 2262, can only be microseconds: present-day times are
#: smaller in seconds or milliseconds, and larger in nanoseconds.
MIN_MICROSECONDS = 946_684_800_000_000
MAX_MICROSECONDS = 9_223_372_036_854_775
#: Maximum clock skew, in microseconds: a reported time may be this far ahead of the receiver's
#: clock, or this long before the decision to which it refers.
CLOCK_SKEW = 300_000_000


def as_datetime(microseconds: int) -> datetime:
    """Return a time as a datetime in UTC, limited to the range of :class:`datetime.datetime`.

    >>> str(as_datetime(1_700_000_000_000_000))
    '2023-11-14 22:13:20+00:00'
    """
    try:
        return _EPOCH + timedelta(microseconds=microseconds)
    except OverflowError:  # a caller's clock may be arbitrarily wrong
        return _FIRST if microseconds < 0 else _LAST


def as_microseconds(when: Any, name: str = "at") -> int:
    """Convert a time from a caller to microseconds since 1970.

    >>> as_microseconds(datetime(1970, 1, 2, tzinfo=UTC))
    86400000000
    >>> as_microseconds("2026-11-16T12:00:00+01:00")
    1794826800000000
    >>> as_microseconds(1_700_000_000)
    Traceback (most recent call last):
    belated.exceptions.InvalidInput: `at` is 1700000000, which looks like seconds since 1970: pass \
a datetime, such as datetime.fromtimestamp(1700000000, tz=UTC)
    """
    if isinstance(when, str):
        when = _from_text(when, name)
    if isinstance(when, datetime):
        return _from_datetime(when, name)
    if isinstance(when, int | np.integer) and not isinstance(when, bool):
        return _from_number(int(when), name)
    if isinstance(when, np.datetime64):
        message = f"`{name}` is {when!r}, which has no time zone: pass a timezone-aware datetime,"
        raise InvalidInput(f"{message} or pandas.Timestamp(..., tz='UTC')", when)
    if isinstance(when, float):
        _refuse_seconds(when, name)
    needed = "a timezone-aware datetime, or ISO 8601 text such as '2026-11-16T12:00:00Z'"
    raise must_be(name, needed, when)


def _from_text(text: str, name: str) -> datetime:
    try:
        when = datetime.fromisoformat(text)
    except ValueError:
        raise must_be(name, "ISO 8601 text such as '2026-11-16T12:00:00Z'", text) from None
    if when.utcoffset() is None:
        plain = when.isoformat()
        message = f"`{name}` is {text!r}, which has no time zone: write '{plain}Z' if it is UTC"
        raise InvalidInput(f"{message}, or add its offset, as in '{plain}+01:00'", text)
    return when


def _from_datetime(when: datetime, name: str) -> int:
    if when != when:  # pandas.NaT is not equal to itself
        message = f"`{name}` is {when!r}: pass a time, or omit it to use the current time"
        raise InvalidInput(message, when)
    if when.utcoffset() is None:
        message = f"`{name}` is {when.isoformat()}, which has no time zone: pass a datetime in UTC,"
        raise InvalidInput(f"{message} such as datetime.now(UTC), or .replace(tzinfo=UTC)", when)
    return (when - _EPOCH) // _MICROSECOND


def _from_number(number: int, name: str) -> int:
    if MIN_MICROSECONDS <= number <= MAX_MICROSECONDS:
        return number
    _refuse_seconds(number, name)
    raise InvalidInput(
        f"`{name}` is {number}, which is out of range for microseconds since 1970: pass a"
        " timezone-aware datetime",
        number,
    )


def _refuse_seconds(number: float, name: str) -> None:
    """Raise if a number looks like seconds, milliseconds or nanoseconds since 1970."""
    for unit, microseconds, in_seconds in (
        ("nanoseconds", 1e-3, " / 1e9"),
        ("milliseconds", 1e3, " / 1e3"),
        ("seconds", 1e6, ""),
    ):
        if MIN_MICROSECONDS <= number * microseconds <= MAX_MICROSECONDS:
            raise InvalidInput(
                f"`{name}` is {number}, which looks like {unit} since 1970: pass a datetime, such"
                f" as datetime.fromtimestamp({number}{in_seconds}, tz=UTC)",
                number,
            )


def check_reported(at: int, now: int, decided: int | None = None, skew: int = CLOCK_SKEW) -> None:
    """Reject an event time that clock skew cannot explain.

    Args:
        at: when the event happened, as reported, in microseconds since 1970.
        now: when the report was received.
        decided: when the decision was made; None if unknown.
        skew: maximum clock skew, in microseconds.

    >>> check_reported(1_700_003_600_000_000, now=1_700_000_000_000_000)
    Traceback (most recent call last):
    belated.exceptions.InvalidInput: `at` is 2023-11-14T23:13:20+00:00, 1 hour ahead of this \
machine's clock: send the time of the event with its time zone, and synchronize clocks with NTP
    """
    remedy = "send the time of the event with its time zone, and synchronize clocks with NTP"
    if at > now + skew:
        ahead = lasting((at - now) / 1e6, words=True)
        message = f"{ahead} ahead of this machine's clock: {remedy}"
    elif decided is not None and at < decided - skew:
        before = lasting((decided - at) / 1e6, words=True)
        message = f"{before} before its decision at {as_datetime(decided).isoformat()}: {remedy}"
    else:
        return
    when = as_datetime(at)
    error = InvalidInput(f"`at` is {when.isoformat()}, {message}", when)
    error.issue = "future" if at > now + skew else "early"
    raise error


def as_duration(value: Any, name: str) -> timedelta:
    """Return ``value`` as a timedelta; raise unless it is a positive duration.

    >>> as_duration("1h30m", "window")
    datetime.timedelta(seconds=5400)
    """
    span = parse_duration(value, name) if isinstance(value, str) else value
    if not isinstance(span, timedelta):
        raise must_be(name, "a duration, such as '7d' or timedelta(days=7)", value)
    if span < _MICROSECOND:
        raise must_be(name, "a duration above 0", value)
    return span


def duration_us(span: timedelta) -> int:
    """Return a duration in microseconds."""
    return span // _MICROSECOND


def parse_duration(text: str, name: str | None = None) -> timedelta:
    """Parse a duration written as whole numbers with units: d, h, m, s and us.

    >>> parse_duration("7d")
    datetime.timedelta(days=7)
    """
    if not re.fullmatch(r"(\d+(d|h|m|s|us))+", text, re.ASCII):
        needed = "a duration, such as 7d, 12h, 30m or 45s"
        if name is None:
            raise InvalidInput(f"expected {needed}, got {text!r}", text)
        raise must_be(name, needed, text)
    try:
        parts = re.findall(r"(\d+)(d|h|m|s|us)", text)
        return timedelta(microseconds=sum(int(count) * _UNITS[unit] for count, unit in parts))
    except (OverflowError, ValueError):  # int() raises ValueError beyond 4,300 digits
        raise InvalidInput(f"the duration {text!r} is too long", text) from None


def format_duration(microseconds: int) -> str:
    """Format a duration for :func:`parse_duration`, exact to the microsecond.

    >>> format_duration(5_400_000_000)
    '1h30m'
    """
    parts = []
    for unit, size in _UNITS.items():
        count, microseconds = divmod(microseconds, size)
        if count:
            parts.append(f"{count}{unit}")
    return "".join(parts)


def lasting(seconds: float, *, words: bool = False) -> str:
    """Format a duration in its largest unit, for display.

    >>> lasting(7_300), lasting(0.5), lasting(86_400, words=True), lasting(129_600, words=True)
    ('2 h', '0.5 s', '1 day', '1.5 days')
    """
    size, unit = largest_unit(seconds)
    count = f"{seconds / size:.1f}".removesuffix(".0") if seconds >= 1.0 else f"{seconds:.2g}"
    return f"{count} {unit}{'' if count == '1' else 's'}" if words else f"{count} {unit[0]}"


def largest_unit(seconds: float, least: float = 1.0) -> tuple[float, str]:
    """Return the largest unit that fits a duration, as its size in seconds and its name.

    The duration must be at least ``least`` units long; the smallest unit is the second.

    >>> largest_unit(5_400), largest_unit(5_400, least=2.0)
    ((3600.0, 'hour'), (60.0, 'minute'))
    """
    for size, name in ((86_400.0, "day"), (3_600.0, "hour"), (60.0, "minute")):
        if seconds >= least * size:
            return size, name
    return 1.0, "second"
