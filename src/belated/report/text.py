"""Format numbers and times for a report, as plain text."""

from __future__ import annotations

import math
import re
from datetime import UTC, datetime
from typing import Any

from belated.core.times import lasting

Data = dict[str, Any]

#: Currency symbols by ISO 4217 code.
SYMBOLS = {"EUR": "€", "USD": "$", "GBP": "£", "JPY": "¥", "INR": "₹", "KRW": "₩"}


def percent(share: float, digits: int | None = None) -> str:
    """Format a share, by default with one decimal place, or two significant digits if it is small.

    >>> percent(0.0978), percent(0.00123), percent(-0.2, 0), percent(-1e-9)
    ('9.8%', '0.12%', '−20%', '0.000%')
    """
    if digits is None:
        small = 0.0 < abs(share) < 0.01
        digits = min(-1 - math.floor(math.log10(abs(share))), 3) if small else 1
    return f"{_minus(f'{100 * share:.{digits}f}')}%"


def signed(share: float) -> str:
    """Format a relative change.

    >>> signed(0.59), signed(-0.1), signed(-0.001)
    ('+59%', '−10%', '0%')
    """
    text = _minus(f"{100 * share:.0f}")
    return f"{text}%" if text[0] in "−0" else f"+{text}%"


def amount(data: Data, value: float) -> str:
    """Format a reward: as a percentage if rewards are shares, otherwise as money or a number.

    >>> amount({"rewards": {"shares": False}, "currency": "EUR"}, -0.04239)
    '−€0.0424'
    >>> [amount({"rewards": {"shares": False}, "currency": "EUR"}, x) for x in (0.1, 1.7, 6657.4)]
    ['€0.10', '€1.70', '€6,657']
    """
    if data["rewards"]["shares"]:
        return percent(value)
    if not (currency := data["currency"]):
        return _minus(f"{value:.4g}" if abs(value) < 1e4 else f"{value:,.0f}")
    size = abs(value)
    digits = f"{size:,.0f}" if size >= 1e3 else f"{size:.2f}"
    if 0.0 < size < 0.995:  # three significant digits, and at least two decimal places
        digits = f"{size:.{2 - math.floor(math.log10(size))}f}"
        digits = re.sub(r"(?<=\.\d\d)(\d*?)0+$", r"\1", digits)
    return _minus(f"{'-' if value < 0 else ''}{symbol(currency)}{digits}")


def symbol(currency: str) -> str:
    """Return the prefix of an amount in a currency.

    >>> symbol("EUR"), symbol("CHF"), symbol("")
    ('€', 'CHF ', '')
    """
    return SYMBOLS.get(currency, f"{currency} " if currency else "")


def gain(data: Data, value: float, than: str) -> str:
    """Format a gain or loss without a sign, followed by "more", "less" or "fewer".

    >>> data = {"rewards": {"shares": True}, "unit": "purchase", "currency": ""}
    >>> gain(data, 107.2, "more"), gain(data, -1.0, "less")
    ('107 more purchases', '1 fewer purchase')
    """
    if data["rewards"]["shares"]:
        count = round(abs(value))
        noun = data["unit"] if count == 1 else plural(data["unit"])
        return f"{count:,} {'fewer' if than == 'less' else than} {noun}"
    return f"{amount(data, abs(value))} {than}{'' if data['currency'] else ' in reward'}"


def _minus(text: str) -> str:
    """Replace a hyphen with a minus sign, and drop the sign of zero."""
    if text.startswith("-") and not re.search("[1-9]", text):
        text = text[1:]
    return text.replace("-", "−")


def whole(number: float) -> str:
    """Format a number rounded to an integer.

    >>> whole(1267.8), whole(-3.2), whole(-0.2)
    ('1,268', '−3', '0')
    """
    return _minus(f"{number:,.0f}")


def several(number: float, noun: str) -> str:
    """Format a count with its noun.

    >>> several(1, "reward"), several(20, "reward")
    ('1 reward', '20 rewards')
    """
    return f"{whole(number)} {noun if round(number) == 1 else plural(noun)}"


def plural(noun: str) -> str:
    """Return the plural of a regular noun.

    >>> plural("purchase"), plural("entry"), plural("match")
    ('purchases', 'entries', 'matches')
    """
    if re.search("[^aeiou]y$", noun):
        return f"{noun[:-1]}ies"
    return f"{noun}es" if re.search("(s|x|z|ch|sh)$", noun) else f"{noun}s"


def span(days: float) -> str:
    """Format a duration in its largest unit.

    >>> span(4.7), span(0.1), span(0.002), span(1.0), span(0.0)
    ('4.7 days', '2.4 hours', '2.9 minutes', '1 day', '0 seconds')
    """
    return lasting(86_400 * days, words=True)


def day(ms: int) -> str:
    """Format a time as a date."""
    return _at(ms).strftime("%-d %B")


def moment(ms: int) -> str:
    """Format a time as a date with hours and minutes."""
    return _at(ms).strftime("%-d %b %Y, %H:%M UTC")


def _at(ms: int) -> datetime:
    return datetime.fromtimestamp(ms / 1000, UTC)


def periods(data: Data, count: int) -> str:
    """Format the total length of several periods of a report.

    >>> periods({"period": "day", "period_ms": 86_400_000}, 7)
    '7 days'
    """
    return span(count * data["period_ms"] / 86_400_000)


def listed(names: list[str]) -> str:
    """Join names with commas and "and".

    >>> listed(["a"]), listed(["a", "b", "c"])
    ('a', 'a, b and c')
    """
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"
