"""Text for people: times, amounts, tables that fit into 80 columns, and a progress line."""

from __future__ import annotations

import math
import sys
import textwrap
import time
from collections.abc import Sequence
from contextlib import AbstractContextManager

from belated.core.times import as_datetime, lasting

_SIZES = ((1_000_000_000_000, "TB"), (1_000_000_000, "GB"), (1_000_000, "MB"), (1_000, "kB"))


def moment(microseconds: int) -> str:
    """A time in UTC.

    >>> moment(1_700_000_000_123_456)
    '2023-11-14T22:13:20.123Z'
    """
    when = as_datetime(microseconds)
    return when.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def size(count: int) -> str:
    """Bytes in their greatest unit.

    >>> size(1_234_567)
    '1.2 MB'
    """
    for unit, name in _SIZES:
        if count >= unit:
            return f"{count / unit:.1f} {name}"
    return f"{count} bytes"


def table(head: Sequence[str], rows: Sequence[Sequence[object]], indent: str = "") -> str:
    """Columns under their names; a name that starts with ">" is set to the right.

    >>> print(table(["kind", ">count"], [["decision", 1_200], ["reward", 3]]))
    kind      count
    decision  1,200
    reward        3
    """
    names = [name.lstrip(">") for name in head]
    texts = [[f"{cell:,}" if isinstance(cell, int) else str(cell) for cell in row] for row in rows]
    widths = [max(map(len, column)) for column in zip(names, *texts, strict=True)]
    lines = []
    for row in (names, *texts):
        cells = [
            cell.rjust(width) if name.startswith(">") else cell.ljust(width)
            for name, cell, width in zip(head, row, widths, strict=True)
        ]
        lines.append((indent + "  ".join(cells)).rstrip())
    return "\n".join(lines)


def pairs(items: Sequence[tuple[str, str]], indent: str = "") -> str:
    """Names with what they stand for, one in a line.

    >>> print(pairs([("family", "Bernoulli()"), ("rows of", "2 numbers")]))
    family   Bernoulli()
    rows of  2 numbers
    """
    width = max(len(name) for name, _ in items)
    return "\n".join(f"{indent}{name.ljust(width)}  {value}" for name, value in items)


def several(count: int, noun: str) -> str:
    """A number with its noun.

    >>> several(1, "record"), several(2000, "record")
    ('1 record', '2,000 records')
    """
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {noun}s"


def amount(bound: float) -> str:
    """As many whole things as a bound allows.

    >>> amount(1125.5), amount(7.0 - 1e-12), amount(3e15)
    ('1,125', '7', '3.0e+15')
    """
    if math.isinf(bound):
        return "∞"
    return f"{math.floor(bound + 1e-9):,}" if bound < 1e12 else f"{bound:.1e}"


def percent(share: float) -> str:
    """A share of all.

    >>> percent(0.05), percent(0.123456)
    ('5%', '12.3%')
    """
    return f"{100 * share:.3g}%"


def wrapped(text: str, indent: str = "") -> str:
    """A sentence in lines of 80 columns; the first is not indented.

    >>> len(wrapped("word " * 40, indent="  ").splitlines()[1])
    76
    """
    return textwrap.fill(
        text, 80, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False
    )


# --- progress of a long command ------------------------------------------------------------------


class Progress(AbstractContextManager["Progress"]):
    """Shows how many records or rounds are done, and how long the rest will take.

    Nothing is printed unless stderr is a terminal.

    Args:
        verb: what is done to them.
        total: how many there are, None if nobody knows.
    """

    def __init__(self, verb: str, total: int | None = None) -> None:
        self._verb = verb
        self._total = total
        self._done = 0
        self._shows = sys.stderr.isatty()
        self._start = time.monotonic()
        self._next = self._start + 1.0  # what takes less needs no word
        self._shown = False

    def step(self, count: int) -> None:
        """So many more are done."""
        self._done += count
        if self._shows and (now := time.monotonic()) >= self._next:
            self._next = now + 0.2
            self._shown = True
            share = ""
            if self._total:
                share = f" of {self._total:,} ({self._done / self._total:.0%})"
                left = (now - self._start) * (self._total - self._done) / max(self._done, 1)
                share += f", {lasting(left)} left"
            line = f"\r{self._verb} {self._done:,}{share}\x1b[K"  # nothing of a longer one is left
            print(line, end="", file=sys.stderr, flush=True)

    def __exit__(self, *raised: object) -> None:
        if self._shown:
            print("\r\x1b[K", end="", file=sys.stderr, flush=True)
