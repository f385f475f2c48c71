"""All that is kept of each decision but its row: one table, 88 bytes each.

A decision has one line of it: what the journal said, what it has come to, and where the learner has
its row or its reward. So whoever looks at a decision touches one place in memory, and compiled code
reads the same table as Python does.

Numbers are given in the order of arrival and never again. Those at the front leave together once
all of them are forgotten.
"""

from __future__ import annotations

from collections.abc import Iterable
from struct import Struct
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from belated.fold.copies import Copies
from belated.model.kernels import pages
from belated.model.kernels.memory import zeros
from belated.model.kernels.pages import BLOCK

#: In ``told_recorded``: no reward yet.
NONE = -1
#: In ``where``: neither a row nor a reward is kept. A place of a row is at least 0; what is below
#: is a handle, see :func:`handle_at`.
NOWHERE = -1

#: A number, or many.
Where = TypeVar("Where", int, NDArray[np.int64])

# Lines that a table has room for, at least; and those that are searched at a time.
_FEW, _PIECE = 16, 1 << 14
_CELLS = 11
_line = Struct("=QQqqqBB2xIdqqdq")
_key = Struct(">QQ")
#: The two halves of a key, and the key again.
halves_of, key_from = _key.unpack, _key.pack
#: Of each column: its type, and where it begins in a line, in bytes.
_COLUMNS = {
    "high": (np.uint64, 8 * pages.HIGH),
    "low": (np.uint64, 8 * pages.LOW),
    "recorded": (np.int64, 8 * pages.RECORDED),
    "position": (np.int64, 8 * pages.POSITION),
    "at": (np.int64, 8 * pages.AT),
    "state": (np.uint8, 8 * pages.MARK),
    "flags": (np.uint8, 8 * pages.MARK + 1),
    "crc": (np.uint32, 8 * pages.MARK + 4),
    "value": (np.float64, 8 * pages.VALUE),
    "told_recorded": (np.int64, 8 * pages.TOLD_RECORDED),
    "told_at": (np.int64, 8 * pages.TOLD_AT),
    "weight": (np.float64, 8 * pages.WEIGHT),
    "where": (np.int64, 8 * pages.WHERE),
}


class EntryTable:
    """One line for each number, from ``base`` on; a column is an attribute.

    A column is a view with some room behind the last line. It is another one whenever lines were
    added or dropped, so nobody keeps it.

    Attributes:
        base: the number of the first line.
        used: how many lines there are.
        cells: the lines, eight bytes a cell.
        changed: the blocks with a line that has changed since they were last saved.
        copies: those that are being made of blocks; a block is copied before it changes.

    >>> table = EntryTable()
    >>> key = b"sixteen bytes .."
    >>> table.append(key, recorded=100, position=1, at=99, state=1, flags=0, crc=7)
    0
    >>> len(table), table.recorded[0], table.told_recorded[0]
    (1, 100, -1)
    """

    cells: NDArray[np.int64]
    high: memoryview[int]  # of its key
    low: memoryview[int]
    recorded: memoryview[int]  # when the journal first took the decision
    position: memoryview[int]  # where the decision that counts is
    at: memoryview[int]  # with ``crc`` it tells which of two decisions under one id counts
    state: memoryview[int]
    flags: memoryview[int]
    crc: memoryview[int]
    value: memoryview[float]  # what it is learned with
    told_recorded: memoryview[int]  # the one reward most decisions have
    told_at: memoryview[int]
    weight: memoryview[float]  # with which it is pending, frozen at the choice
    where: memoryview[int]  # its row, while it may be learned; then its reward

    def __init__(self) -> None:
        self.base = 0
        self.changed: set[int] = set()
        self.copies: Copies[Any] | None = None
        self.used = 0
        self._resize(_FEW)

    def __len__(self) -> int:
        return self.used

    @property
    def next(self) -> int:
        """The number that the next decision will get."""
        return self.base + self.used

    def append(
        self,
        key: bytes,
        recorded: int,
        position: int,
        at: int,
        state: int,
        flags: int,
        crc: int,
        weight: float = 0.0,
        where: int = NOWHERE,
    ) -> int:
        """Add a decision; returns its number."""
        i = self.used
        if i == self._room:
            self._resize(2 * i)
        if self.base + i >> BLOCK not in self.changed:
            self.touch(i)
        self.used = i + 1
        high, low = halves_of(key)
        _line.pack_into(
            self._bytes, i * _line.size,
            high, low, recorded, position, at, state, flags, crc, 0.0, NONE, 0, weight, where,
        )  # fmt: skip
        return self.base + i

    def touch(self, i: int) -> None:
        """A line is about to change."""
        block = self.base + i >> BLOCK
        if block not in self.changed:
            if self.copies is not None:
                self.copies.take(block)
            self.changed.add(block)

    def reserve(self, count: int) -> None:
        """Have room for so many more lines."""
        if self.used + count > self._room:
            self._resize(max(self.used + count, 2 * self._room))

    def grew_by(self, count: int) -> None:
        """So many lines were written behind the last one; no copies are being made."""
        self.changed.update(range(self.next >> BLOCK, (self.next + count - 1 >> BLOCK) + 1))
        self.used += count

    def column(self, name: str) -> NDArray[Any]:
        """A column of all lines in use, as an array."""
        return np.asarray(getattr(self, name))[: self.used]

    def first(self, state: int) -> int:
        """Where the first in a state is; -1 if there is none."""
        states = self.column("state")
        for start in range(0, len(states), _PIECE):
            found = states[start : start + _PIECE] == state
            if found.any():
                return start + int(found.argmax())
        return -1

    def drop(self, count: int) -> None:
        """The first ``count`` are gone."""
        if self.copies is not None:
            self.copies.take_all()
        left = self.used - count
        self.cells[:left] = self.cells[count : self.used]
        self.used = left
        self.base += count
        first = self.base >> BLOCK  # which may have lost some of its lines
        self.changed = {first, *(block for block in self.changed if block > first)}
        if self._room > max(_FEW, 4 * left):
            self._resize(max(_FEW, 2 * left))

    def blocks(self) -> dict[int, slice]:
        """The lines of each block: a number is always in the same block."""
        found = {}
        for block in range(self.base >> BLOCK, (self.next - 1 >> BLOCK) + 1):
            start, stop = (block << BLOCK) - self.base, (block + 1 << BLOCK) - self.base
            found[block] = slice(max(0, start), min(stop, self.used))
        return found

    def restore(self, packed: Iterable[bytes], base: int) -> None:
        """Take all blocks, in their order, as :func:`packed` gave them.

        Raises:
            ValueError: these are no whole lines.
        """
        found = [np.frombuffer(one, dtype=np.int64).reshape(-1, _CELLS) for one in packed]
        count = sum(map(len, found))
        self.base, self.used = base, 0
        self._resize(max(_FEW, count))
        for lines in found:
            self.cells[self.used : self.used + len(lines)] = lines
            self.used += len(lines)
        self.changed = set()

    def _resize(self, room: int) -> None:
        cells = zeros((room, _CELLS), np.int64)
        if self.used:
            cells[: self.used] = self.cells[: self.used]
        self.cells, self._room = cells, room
        self._bytes = cells.data.cast("B")
        for name, (kind, start) in _COLUMNS.items():
            column = cells.view(kind)[:, start // np.dtype(kind).itemsize]
            setattr(self, name, column.data)


def packed(cells: NDArray[np.int64]) -> bytes:
    """Lines as bytes. Where a row is kept is not among them, only that it is."""
    where = cells[:, -1]
    if (where > 0).any():
        cells = cells.copy()
        where = cells[:, -1]
        where[where > NOWHERE] = 0
    return cells.tobytes()


def handle_at(where: Where) -> Where:
    """The handle of a reward, as ``where`` has it; and ``where`` of a handle.

    >>> handle_at(handle_at(5))
    5
    """
    return -2 - where
