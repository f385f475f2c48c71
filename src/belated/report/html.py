"""Pieces of HTML: tiles, small lines, tables. Text is escaped here, and nowhere else."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from typing import Any

#: Rows of a table in the page; the data has all.
ROWS = 400
_WIDTH, _HEIGHT = 120, 30


def element(tag: str, text: str, **attributes: str) -> str:
    """An element with text in it.

    >>> element("p", "a < b", cls="note")
    '<p class="note">a &lt; b</p>'
    """
    return f"<{tag}{_attributes(attributes)}>{escape(text)}</{tag}>"


def around(tag: str, inner: str, **attributes: str) -> str:
    """An element with HTML in it."""
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


def bars(values: Sequence[float]) -> str:
    """A small picture of counts."""
    most = max(values, default=0) or 1
    width = _WIDTH / max(len(values), 1)
    return _svg(
        "".join(
            f'<rect x="{n * width + 0.4:.1f}" y="{_HEIGHT - _HEIGHT * one / most:.1f}"'
            f' width="{max(width - 0.8, 0.4):.1f}" height="{_HEIGHT * one / most:.1f}"/>'
            for n, one in enumerate(values)
        )
    )


def line(values: Sequence[float | None]) -> str:
    """A small picture of a course."""
    known = [one for one in values if one is not None]
    if len(known) < 2:
        return _svg("")
    low, high = min(known), max(known)
    step = _WIDTH / (len(known) - 1)
    points = " ".join(
        f"{n * step:.1f},{_HEIGHT - 2 - (_HEIGHT - 4) * (one - low) / ((high - low) or 1):.1f}"
        for n, one in enumerate(known)
    )
    area = f'<polygon points="0,{_HEIGHT} {points} {_WIDTH},{_HEIGHT}"/>'
    return _svg(f'{area}<polyline points="{points}" vector-effect="non-scaling-stroke"/>')


def whisker(low: float, value: float, high: float) -> str:
    """A small picture of an interval around a value, and where nothing is."""
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
    """One of the numbers on top."""
    said = "<br>".join(escape(note) for note in notes)
    inner = element("div", label, cls="lab") + element("div", value, cls="val")
    return around(
        "div", f'{inner}<div class="note">{said}</div>{picture}', cls=f"tile {kind}".strip()
    )


def numbers(rows: list[dict[str, Any]], names: dict[str, str]) -> str:
    """A table that opens.

    Args:
        rows: of the data.
        names: of the columns, by field.
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
