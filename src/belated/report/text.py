"""Numbers and times in the words of a report. All of it is plain text, not HTML."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from belated.core.times import lasting

Data = dict[str, Any]


def percent(share: float, digits: int = 1) -> str:
    """A share of all.

    >>> percent(0.0978), percent(-0.2, 0)
    ('9.8 %', '−20 %')
    """
    return f"{100 * share:.{digits}f} %".replace("-", "−")


def signed(share: float) -> str:
    """A relative change.

    >>> signed(0.59), signed(-0.1)
    ('+59 %', '−10 %')
    """
    return f"{100 * share:+.0f} %".replace("-", "−")


def amount(data: Data, value: float) -> str:
    """A reward: a share of all if it is from 0 to 1, else a number."""
    return percent(value) if data["rewards"]["shares"] else f"{value:.4g}".replace("-", "−")


def whole(number: float) -> str:
    """A number without digits after the point.

    >>> whole(1267.8), whole(-3.2)
    ('1,268', '−3')
    """
    return f"{number:,.0f}".replace("-", "−")


def several(number: float, noun: str) -> str:
    """A number with its noun.

    >>> several(1, "reward"), several(20, "reward")
    ('1 reward', '20 rewards')
    """
    return f"{whole(number)} {noun}{'' if round(number) == 1 else 's'}"


def span(days: float) -> str:
    """A time span in the unit in which it is read.

    >>> span(4.7), span(0.1), span(0.002), span(1.0), span(0.0)
    ('4.7 days', '2.4 hours', '2.9 minutes', '1 day', '0 seconds')
    """
    return lasting(86_400 * days, words=True)


def day(ms: int) -> str:
    """The day of a time."""
    return _at(ms).strftime("%-d %B")


def moment(ms: int) -> str:
    """A time."""
    return _at(ms).strftime("%-d %b %Y, %H:%M UTC")


def _at(ms: int) -> datetime:
    return datetime.fromtimestamp(ms / 1000, UTC)


def periods(data: Data, count: int) -> str:
    """So many periods of a report.

    >>> periods({"period": "day", "period_ms": 86_400_000}, 7)
    '7 days'
    """
    return span(count * data["period_ms"] / 86_400_000)


def listed(names: list[str]) -> str:
    """Names one after the other.

    >>> listed(["a"]), listed(["a", "b", "c"])
    ('a', 'a, b and c')
    """
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"
