"""HTML elements: tiles, sparklines and tables. Text is escaped."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from typing import Any

#: Maximum number of table rows on the page; the report's data contains all rows.
ROWS = 400
_WIDTH, _HEIGHT = 120, 30
_PALE = ' class="partial"'


def element(tag: str, text: str, **attributes: str) -> str:
    """Return an element that contains text.

    >>> element("p", "a < b", cls="note")
    '<p class="note">a &lt; b</p>'
    """
    return f"<{tag}{_attributes(attributes)}>{escape(text)}</{tag}>"


def around(tag: str, inner: str, **attributes: str) -> str:
    """Return an element that contains HTML."""
    return f"<{tag}{_attributes(attributes)}>{inner}</{tag}>"


def _attributes(given: dict[str, str]) -> str:
    names = {"cls": "class"}
    return "".join(
        f' {names.get(name, name).replace("_", "-")}="{escape(value)}"'
        for name, value in given.items()
        if value
    )


def _svg(inner: str) -> str:
    box = f'viewBox="0 0 {_WIDTH} {_HEIGHT}" preserveAspectRatio="none"'
    return f'<svg class="spark" {box} aria-hidden="true">{inner}</svg>'


def bars(values: Sequence[float], partial: bool = False) -> str:
    """Return a small bar chart of counts; the last bar is pale if its period is partial."""
    most = max(values, default=0) or 1
    width = _WIDTH / max(len(values), 1)
    last = len(values) - 1 if partial else None
    return _svg(
        "".join(
            f'<rect{_PALE if n == last else ""} x="{n * width + 0.4:.1f}"'
            f' y="{_HEIGHT - _HEIGHT * value / most:.1f}"'
            f' width="{max(width - 0.8, 0.4):.1f}" height="{_HEIGHT * value / most:.1f}"/>'
            for n, value in enumerate(values)
        )
    )


def line(values: Sequence[float | None]) -> str:
    """Return a small line chart."""
    heights = [value for value in values if value is not None]
    if len(heights) < 2:
        return _svg("")
    low, high = min(heights), max(heights)
    step = _WIDTH / (len(heights) - 1)
    points = " ".join(
        f"{n * step:.1f},{_HEIGHT - 2 - (_HEIGHT - 4) * (value - low) / ((high - low) or 1):.1f}"
        for n, value in enumerate(heights)
    )
    area = f'<polygon points="0,{_HEIGHT} {points} {_WIDTH},{_HEIGHT}"/>'
    return _svg(f'{area}<polyline points="{points}" vector-effect="non-scaling-stroke"/>')


def whisker(low: float, value: float, high: float) -> str:
    """Return a small chart of a value with its interval, relative to zero."""
    least, most = min(low, 0.0), max(high, 0.0)
    room = 0.08 * ((most - least) or 1.0)
    least, most = least - room, most + room

    def x(number: float) -> float:
        return _WIDTH * (number - least) / (most - least)

    return _svg(
        f'<rect class="track" x="0" y="11" width="{_WIDTH}" height="8"/>'
        f'<rect class="range" x="{x(low):.1f}" y="11" width="{x(high) - x(low):.1f}" height="8"/>'
        f'<rect class="zero" x="{x(0.0):.1f}" y="5" width="0.7" height="20"/>'
        f'<rect class="here" x="{x(value) - 0.9:.1f}" y="9" width="1.8" height="12"/>'
    )


def tile(label: str, value: str, notes: Sequence[str], picture: str, kind: str = "") -> str:
    """Return a tile, which shows one of the numbers at the top of a report."""
    lines = "<br>".join(escape(note) for note in notes)
    inner = element("div", label, cls="lab") + element("div", value, cls="val")
    return around(
        "div", f'{inner}<div class="note">{lines}</div>{picture}', cls=f"tile {kind}".strip()
    )


def numbers(rows: list[dict[str, Any]], names: dict[str, str]) -> str:
    """Return a collapsed table.

    Args:
        rows: rows of data.
        names: column headings by field.
    """
    head = "".join(element("th", name, scope="col") for name in names.values())
    lines = []
    for row in rows[-ROWS:]:
        cells = "".join(element("td", _written(row.get(field))) for field in names)
        lines.append(f"<tr>{cells}</tr>")
    table = f"<table><thead><tr>{head}</tr></thead><tbody>{''.join(lines)}</tbody></table>"
    scrolled = f'<div class="scroll" tabindex="0">{table}</div>'
    return f"<details><summary>Numbers</summary>{scrolled}</details>"


def _written(value: Any) -> str:
    if value is None:
        return "–"
    if isinstance(value, float):
        return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.4g}"
    return f"{value:,}" if isinstance(value, int) and not isinstance(value, bool) else str(value)
