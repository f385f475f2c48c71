"""All that is kept of each decision but its row: one table, 88 bytes each.

A decision has one line of it: what the journal said, what it has come to, and where the learner has
its row or its reward. So whoever looks at a decision touches one place in memory, and compiled code
reads the same table as Python does.

Numbers are given in the order of arrival and never again. Those at the front leave together once
all of them are forgotten.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterable
from struct import Struct
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from belated.fold.copies import Copies
from belated.model.kernels import best, pages
from belated.model.kernels.memory import column, zeros
from belated.model.kernels.pages import BLOCK

#: In ``reward_recorded``: no reward yet.
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
    "reward_recorded": (np.int64, 8 * pages.TOLD_RECORDED),
    "reward_at": (np.int64, 8 * pages.TOLD_AT),
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
    >>> len(table), table.recorded[0], table.reward_recorded[0]
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
    reward_recorded: memoryview[int]  # the one reward most decisions have
    reward_at: memoryview[int]
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


_FREE = -1
_GONE = -2
# The hash function of this process: whoever chooses ids cannot make them meet on purpose.
_SIP = pages.sip_state(secrets.randbits(64), secrets.randbits(64))
# An entry of the array is a number's last bits behind some of the hash: 31 bits in all, or 63 where
# a number needs as many as this.
_MANY = 30


class Index:
    """The numbers of keys.

    Args:
        table: with the keys.

    >>> table = EntryTable()
    >>> index, key = Index(table), b"sixteen bytes .."
    >>> index.find_or_enter(key)
    -1
    >>> table.append(key, recorded=1, position=1, at=1, state=1, flags=0, crc=0)
    0
    >>> index.find_or_enter(key), index.find(b"another 16 bytes")
    (0, -1)
    """

    def __init__(self, table: EntryTable) -> None:
        self._keys, self._kernels = table, best()
        self._fill(np.arange(0))

    def find(self, key: bytes) -> int:
        """The number of a key, -1 if it has none."""
        places, bits, keys = self._places, self._bits, self._keys
        high, low = halves_of(key)
        hashed = self._kernels.sip_hash(high, low, *_SIP)
        at, tag = hashed >> self._shift, hashed & self._tag
        while (entry := places[at]) != _FREE:
            if entry >> bits == tag:
                i = (entry - keys.base) & self._number
                if keys.low[i] == low and keys.high[i] == high:
                    return keys.base + i
            at = (at + 1) & self._mask
        return -1

    def find_or_enter(self, key: bytes) -> int:
        """The number of a key; -1 if it has none: then the next line is found by it from now on."""
        keys = self._keys
        if self._room == 0 or keys.used >= self._number:
            self._rebuild(1)
        places, bits, mask = self._places, self._bits, self._mask
        high, low = halves_of(key)
        hashed = self._kernels.sip_hash(high, low, *_SIP)
        at, tag, free = hashed >> self._shift, hashed & self._tag, -1
        while (entry := places[at]) != _FREE:
            if entry >> bits == tag:
                i = (entry - keys.base) & self._number
                if keys.low[i] == low and keys.high[i] == high:
                    return keys.base + i
            elif entry == _GONE and free < 0:
                free = at
            at = (at + 1) & mask
        if free < 0:
            self._room -= 1
            free = at
        places[free] = tag << bits | (keys.base + keys.used) & self._number
        return -1

    def reserve(self, count: int) -> None:
        """Have room for so many more numbers."""
        if self._room < count or len(self._keys) + count > self._number:
            self._rebuild(count)

    def took(self, count: int) -> None:
        """So many free places were taken."""
        self._room -= count

    @property
    def is_narrow(self) -> bool:
        """Whether places have four bytes each."""
        return self._places.itemsize == 4

    @property
    def places(self) -> NDArray[np.int32]:
        """The numbers, each at the place where its key's hash says, or behind it."""
        return np.asarray(self._places)

    @property
    def constants(self) -> tuple[int, ...]:
        """What finds a key's place: as :mod:`belated.model.kernels.pages` is told it."""
        sip = map(pages.wrapped, _SIP)
        return self._shift, self._mask, self._bits, self._number, self._tag, *sip

    def remove(self, number: int) -> None:
        """A number is found no longer; its key stays until its line is dropped."""
        at, entry = self._wanted(number)
        places, mask = self._places, self._mask
        while places[at] != entry:
            if places[at] == _FREE:
                return
            at = (at + 1) & mask
        places[at] = _GONE

    def restore(self, found: NDArray[np.bool_]) -> None:
        """Find those lines of a table that was restored."""
        self._fill(self._keys.base + np.flatnonzero(found))

    def _wanted(self, number: int) -> tuple[int, int]:
        """The first place where a number may be, and its entry."""
        i = number - self._keys.base
        hashed = self._kernels.sip_hash(self._keys.high[i], self._keys.low[i], *_SIP)
        return hashed >> self._shift, (hashed & self._tag) << self._bits | number & self._number

    def _rebuild(self, more: int = 0) -> None:
        """Places for the numbers that are found, and for more."""
        entries = np.asarray(self._places)
        lines = (entries[entries >= 0].astype(np.int64) - self._keys.base) & self._number
        self._fill(self._keys.base + np.sort(lines), more)

    def _fill(self, numbers: NDArray[np.int64], more: int = 0) -> None:
        """Five places for two numbers, or more; they may be filled to two thirds."""
        size = 64
        while 2 * size < 5 * (len(numbers) + more):
            size *= 2
        bits = max(size, 2 * (len(self._keys) + more)).bit_length()
        width, format = (31, "i") if bits < _MANY else (63, "q")
        self._places = column(size, format)
        np.asarray(self._places).fill(_FREE)
        self._bits, self._number = bits, (1 << bits) - 1
        self._tag = (1 << width - bits) - 1
        self._mask = size - 1
        self._shift = 65 - size.bit_length()
        self._room = size // 3 * 2 - len(numbers)  # places that may be taken before it grows
        self._put(numbers)

    def _put(self, numbers: NDArray[np.int64]) -> None:
        """Find places for numbers; their room was counted."""
        lines = numbers - self._keys.base
        table = self._keys
        hashed = pages.sip_hash(table.column("high")[lines], table.column("low")[lines], *_SIP)
        at = (hashed >> np.uint64(self._shift)).astype(np.int64)
        tags = (hashed & np.uint64(self._tag)).astype(np.int64)
        places = np.asarray(self._places)
        new = (tags << self._bits | numbers & self._number).astype(places.dtype)
        while len(new):  # all at once: whoever finds its place taken looks at the next
            free = places[at] < 0
            places[at[free]] = new[free]  # of several that want one place the last gets it
            left = places[at] != new
            new, at = new[left], (at[left] + 1) & self._mask
