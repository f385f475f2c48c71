"""Helpers for text output: times, amounts, tables and a progress line."""

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
    """Format a time in UTC.

    >>> moment(1_700_000_000_123_456)
    '2023-11-14T22:13:20.123Z'
    """
    when = as_datetime(microseconds)
    return when.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def size(count: int) -> str:
    """Format a number of bytes in the largest suitable unit.

    >>> size(1_234_567)
    '1.2 MB'
    """
    for unit, name in _SIZES:
        if count >= unit:
            return f"{count / unit:.1f} {name}"
    return f"{count} bytes"


def table(head: Sequence[str], rows: Sequence[Sequence[object]], indent: str = "") -> str:
    """Format a table. Columns whose name starts with ">" are right-aligned.

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
    """Format names and values, one pair per line.

    >>> print(pairs([("family", "Bernoulli()"), ("rows of", "2 numbers")]))
    family   Bernoulli()
    rows of  2 numbers
    """
    width = max(len(name) for name, _ in items)
    return "\n".join(f"{indent}{name.ljust(width)}  {value}" for name, value in items)


def several(count: int, noun: str) -> str:
    """Format a number with a noun, in the plural if necessary.

    >>> several(1, "record"), several(2000, "record")
    ('1 record', '2,000 records')
    """
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {noun}s"


def amount(bound: float) -> str:
    """Format a bound, rounded down to a whole number.

    >>> amount(1125.5), amount(7.0 - 1e-12), amount(3e15)
    ('1,125', '7', '3.0e+15')
    """
    if math.isinf(bound):
        return "∞"
    return f"{math.floor(bound + 1e-9):,}" if bound < 1e12 else f"{bound:.1e}"


def percent(share: float) -> str:
    """Format a share as a percentage.

    >>> percent(0.05), percent(0.123456)
    ('5%', '12.3%')
    """
    return f"{100 * share:.3g}%"


def wrapped(text: str, indent: str = "") -> str:
    """Wrap a sentence at 80 columns, and indent all lines except the first.

    >>> len(wrapped("word " * 40, indent="  ").splitlines()[1])
    76
    """
    return textwrap.fill(
        text, 80, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False
    )


# --- progress of long-running commands -----------------------------------------------------------


class Progress(AbstractContextManager["Progress"]):
    """A progress line with the number of records or rounds processed, and the remaining time.

    Nothing is printed unless stderr is a terminal.

    Args:
        verb: what is done to the records or rounds, such as "read".
        total: the total number of records or rounds; None if unknown.
    """

    def __init__(self, verb: str, total: int | None = None) -> None:
        self._verb = verb
        self._total = total
        self._done = 0
        self._shows = sys.stderr.isatty()
        self._start = time.monotonic()
        self._next = self._start + 1.0  # short commands show no progress
        self._shown = False

    def step(self, count: int) -> None:
        """Report that ``count`` more records or rounds have been processed."""
        self._done += count
        if self._shows and (now := time.monotonic()) >= self._next:
            self._next = now + 0.2
            self._shown = True
            share = ""
            if self._total:
                share = f" of {self._total:,} ({self._done / self._total:.0%})"
                remaining = (now - self._start) * (self._total - self._done) / max(self._done, 1)
                share += f", {lasting(remaining)} left"
            line = f"\r{self._verb} {self._done:,}{share}\x1b[K"  # clear the rest of the line
            print(line, end="", file=sys.stderr, flush=True)

    def __exit__(self, *raised: object) -> None:
        if self._shown:
            print("\r\x1b[K", end="", file=sys.stderr, flush=True)
