"""Delays that were seen, read from a file: one in a line, or a column of a CSV file."""

from __future__ import annotations

import csv
import math
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NoReturn

import numpy as np
from numpy.typing import NDArray

from belated.delays import NEVER
from belated.exceptions import InvalidInput
from belated.expressions.reader import shortened

#: What divides the columns: the first of them that makes the column that is asked for.
DIVIDERS = (",", ";", "\t")


def read_delays(path: str, column: str | None = None) -> NDArray[np.int64]:
    """The delays in their order, rounded up; what is empty or ``never`` is NEVER.

    Args:
        path: of the file; ``-`` is the standard input.
        column: of a CSV file with a line of names; None where each line is a delay.
    """
    name = "the standard input" if path == "-" else path
    try:
        with _opened(path) as lines:
            plain = enumerate((line.strip() for line in lines), start=1)
            cells = plain if column is None else _column(name, lines, column)
            delays = [_delay(name, number, cell) for number, cell in cells]
    except UnicodeDecodeError:
        raise InvalidInput(f"{name} is no text in UTF-8", path) from None
    if not delays:
        raise InvalidInput(f"{name} holds no delay", path)
    return np.array(delays, dtype=np.int64)


@contextmanager
def _opened(path: str) -> Iterator[Iterable[str]]:
    if path == "-":
        yield _without_mark(sys.stdin)
    else:
        with Path(path).open(encoding="utf-8", newline="") as file:
            yield _without_mark(file)


def _without_mark(lines: Iterable[str]) -> Iterator[str]:
    """Spreadsheets begin a text with a mark of its encoding."""
    for number, line in enumerate(lines):
        yield line.removeprefix("\ufeff") if number == 0 else line


def _column(name: str, lines: Iterable[str], column: str) -> Iterator[tuple[int, str]]:
    rest, number = iter(lines), 1
    first = next(rest, "")
    try:
        for divider in DIVIDERS:
            head = next(csv.reader([first], delimiter=divider), [])
            if column in head:
                break
        else:
            message = f"{name} has no column {column!r}; its first line: {shortened(first.strip())}"
            raise InvalidInput(message, column)
        reader = csv.reader(rest, delimiter=divider)
        for row in reader:
            number = 1 + reader.line_num
            if not row and len(head) > 1:  # an empty line among several columns is no row
                continue
            if row and len(row) != len(head):
                _refuse(name, number, f"{len(row)} columns, but {len(head)} names")
            yield number, row[head.index(column)].strip() if row else ""
    except csv.Error as error:
        _refuse(name, number, str(error))


def _delay(name: str, number: int, cell: str) -> int:
    if cell.lower() in ("", "never"):
        return NEVER
    try:
        delay = float(cell)
    except ValueError:
        delay = math.nan
    if math.isnan(delay):
        many = any(divider in cell for divider in DIVIDERS)
        hint = ", and --column NAME takes one of several" if many else ""
        wanted = f"a number of rounds or NEVER was expected{hint}"
        _refuse(name, number, f"{shortened(cell)!r} is no delay: {wanted}")
    if delay < 0.0:
        _refuse(name, number, f"{cell} is below 0: a delay is not negative")
    return math.ceil(delay) if delay < NEVER else NEVER


def _refuse(name: str, number: int, why: str) -> NoReturn:
    raise InvalidInput(f"{name}, line {number}: {why}", number)
