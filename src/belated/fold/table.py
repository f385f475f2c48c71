"""The table of decisions, which stores everything about a decision except its row in 88 bytes.

An entry of the table holds what the journal contains about a decision, the state of the decision,
and where the learner stores its row or its reward. An entry is contiguous in memory, and compiled
code uses the same table as Python.

Decisions are numbered in order of arrival, and numbers are never reused. Entries at the front are
dropped together once all of their decisions are forgotten.
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

#: Value of ``reward_recorded`` if there is no reward yet.
NONE = -1
#: Value of ``where`` if neither a row nor a reward is stored. A value of at least 0 is the slot of
#: a row; a value below -1 is a handle (see :func:`handle_at`).
NOWHERE = -1

#: A value of ``where``, or an array of them.
Where = TypeVar("Where", int, NDArray[np.int64])

# Minimum capacity of a table, and number of entries to search at a time.
_FEW, _PIECE = 16, 1 << 14
_CELLS = 11
_line = Struct("=QQqqqBB2xIdqqdq")
_key = Struct(">QQ")
#: Functions to split a key into two integers, and to join them again.
halves_of, key_from = _key.unpack, _key.pack
#: The type of each column, and the offset of the column in an entry, in bytes.
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
    """A table with one entry per decision; each column is an attribute.

    A column is a view that extends beyond the last entry. The view becomes invalid when entries are
    added or dropped, so do not keep references to it.

    Attributes:
        base: the number of the decision in the first entry.
        used: number of entries.
        cells: the entries, in cells of eight bytes.
        changed: the blocks that have changed since the last snapshot.
        copies: the copies of blocks in progress; a block is copied before it changes.

    >>> table = EntryTable()
    >>> key = b"sixteen bytes .."
    >>> table.append(key, recorded=100, position=1, at=99, state=1, flags=0, crc=7)
    0
    >>> len(table), table.recorded[0], table.reward_recorded[0]
    (1, 100, -1)
    """

    cells: NDArray[np.int64]
    high: memoryview[int]  # first half of the key
    low: memoryview[int]  # second half of the key
    recorded: memoryview[int]  # when the journal recorded the decision
    position: memoryview[int]  # the decision's position in the journal
    at: memoryview[int]  # when the decision was made; with ``crc``, detects reuse of the same id
    state: memoryview[int]
    flags: memoryview[int]
    crc: memoryview[int]
    value: memoryview[float]  # the value that the model learns from
    reward_recorded: memoryview[int]  # when the reward was recorded, if the entry can hold it
    reward_at: memoryview[int]
    weight: memoryview[float]  # weight of the pending decision, fixed when it was added
    where: memoryview[int]  # slot of the row or, once the learner has the reward, its handle

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
        """The number of the next decision."""
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
        """Add a decision; return its number."""
        i = self.used
        if i == self._capacity:
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
        """Mark an entry as changed; must be called before modifying the entry."""
        block = self.base + i >> BLOCK
        if block not in self.changed:
            if self.copies is not None:
                self.copies.take(block)
            self.changed.add(block)

    def reserve(self, count: int) -> None:
        """Ensure capacity for ``count`` more entries."""
        if self.used + count > self._capacity:
            self._resize(max(self.used + count, 2 * self._capacity))

    def grew_by(self, count: int) -> None:
        """Add ``count`` entries that were written after the last entry; copies must be complete."""
        self.changed.update(range(self.next >> BLOCK, (self.next + count - 1 >> BLOCK) + 1))
        self.used += count

    def column(self, name: str) -> NDArray[Any]:
        """Return a column as an array, with one item per entry."""
        return np.asarray(getattr(self, name))[: self.used]

    def first(self, state: int) -> int:
        """Return the index of the first entry with this state; -1 if there is none."""
        states = self.column("state")
        for start in range(0, len(states), _PIECE):
            matches = states[start : start + _PIECE] == state
            if matches.any():
                return start + int(matches.argmax())
        return -1

    def drop(self, count: int) -> None:
        """Drop the first ``count`` entries."""
        if self.copies is not None:
            self.copies.take_all()
        remaining = self.used - count
        self.cells[:remaining] = self.cells[count : self.used]
        self.used = remaining
        self.base += count
        first = self.base >> BLOCK  # this block may have lost some of its entries
        self.changed = {first, *(block for block in self.changed if block > first)}
        if self._capacity > max(_FEW, 4 * remaining):
            self._resize(max(_FEW, 2 * remaining))

    def blocks(self) -> dict[int, slice]:
        """Return the entries in each block; a decision never moves to another block."""
        blocks = {}
        for block in range(self.base >> BLOCK, (self.next - 1 >> BLOCK) + 1):
            start, stop = (block << BLOCK) - self.base, (block + 1 << BLOCK) - self.base
            blocks[block] = slice(max(0, start), min(stop, self.used))
        return blocks

    def restore(self, packed: Iterable[bytes], base: int) -> None:
        """Restore all blocks, in order, from the results of :func:`packed`.

        Raises:
            ValueError: the bytes do not contain a whole number of entries.
        """
        blocks = [np.frombuffer(data, dtype=np.int64).reshape(-1, _CELLS) for data in packed]
        count = sum(map(len, blocks))
        self.base, self.used = base, 0
        self._resize(max(_FEW, count))
        for lines in blocks:
            self.cells[self.used : self.used + len(lines)] = lines
            self.used += len(lines)
        self.changed = set()

    def _resize(self, capacity: int) -> None:
        cells = zeros((capacity, _CELLS), np.int64)
        if self.used:
            cells[: self.used] = self.cells[: self.used]
        self.cells, self._capacity = cells, capacity
        self._bytes = cells.data.cast("B")
        for name, (kind, start) in _COLUMNS.items():
            column = cells.view(kind)[:, start // np.dtype(kind).itemsize]
            setattr(self, name, column.data)


def packed(cells: NDArray[np.int64]) -> bytes:
    """Return entries as bytes, with 0 in place of the slots of rows."""
    where = cells[:, -1]
    if (where > 0).any():
        cells = cells.copy()
        where = cells[:, -1]
        where[where > NOWHERE] = 0
    return cells.tobytes()


def handle_at(where: Where) -> Where:
    """Convert a reward's handle to a value of ``where``, or vice versa.

    >>> handle_at(handle_at(5))
    5
    """
    return -2 - where


_FREE = -1
_REMOVED = -2
# The secret key of this process's hash function, so that callers cannot choose colliding ids.
_SIP = pages.sip_state(secrets.randbits(64), secrets.randbits(64))
# Each array entry packs some hash bits and the low-order bits of the number: 31 bits in total, or
# 63 if the numbers need that many.
_MANY = 30


class Index:
    """A hash table that maps keys to decision numbers.

    Args:
        table: the table that holds the keys.

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
        """Return the number of a key; -1 if the key is unknown."""
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
        """Return the number of a key; if it is unknown, map it to the next number and return -1."""
        keys = self._keys
        if self._capacity == 0 or keys.used >= self._number:
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
            elif entry == _REMOVED and free < 0:
                free = at
            at = (at + 1) & mask
        if free < 0:
            self._capacity -= 1
            free = at
        places[free] = tag << bits | (keys.base + keys.used) & self._number
        return -1

    def reserve(self, count: int) -> None:
        """Ensure capacity for ``count`` more numbers."""
        if self._capacity < count or len(self._keys) + count > self._number:
            self._rebuild(count)

    def took(self, count: int) -> None:
        """Reduce the capacity after the caller has filled ``count`` free slots."""
        self._capacity -= count

    @property
    def is_narrow(self) -> bool:
        """Whether each slot has four bytes."""
        return self._places.itemsize == 4

    @property
    def places(self) -> NDArray[np.int32]:
        """The array of entries; an entry is in the slot given by its key's hash, or after it."""
        return np.asarray(self._places)

    @property
    def constants(self) -> tuple[int, ...]:
        """The parameters of the hash table, for :mod:`belated.model.kernels.pages`."""
        sip = map(pages.wrapped, _SIP)
        return self._shift, self._mask, self._bits, self._number, self._tag, *sip

    def remove(self, number: int) -> None:
        """Remove a number; the key remains in the table until the entry is dropped."""
        at, entry = self._entry_of(number)
        places, mask = self._places, self._mask
        while places[at] != entry:
            if places[at] == _FREE:
                return
            at = (at + 1) & mask
        places[at] = _REMOVED

    def restore(self, remembered: NDArray[np.bool_]) -> None:
        """Add entries of a restored table.

        Args:
            remembered: whether to add each entry.
        """
        self._fill(self._keys.base + np.flatnonzero(remembered))

    def _entry_of(self, number: int) -> tuple[int, int]:
        """Return the first slot in which a number may be, and the number's entry."""
        i = number - self._keys.base
        hashed = self._kernels.sip_hash(self._keys.high[i], self._keys.low[i], *_SIP)
        return hashed >> self._shift, (hashed & self._tag) << self._bits | number & self._number

    def _rebuild(self, extra: int = 0) -> None:
        """Rebuild the array with capacity for ``extra`` more numbers."""
        entries = np.asarray(self._places)
        lines = (entries[entries >= 0].astype(np.int64) - self._keys.base) & self._number
        self._fill(self._keys.base + np.sort(lines), extra)

    def _fill(self, numbers: NDArray[np.int64], extra: int = 0) -> None:
        """Build an array of at least 2.5 slots per number, with a maximum load of 2/3."""
        size = 64
        while 2 * size < 5 * (len(numbers) + extra):
            size *= 2
        bits = max(size, 2 * (len(self._keys) + extra)).bit_length()
        width, format = (31, "i") if bits < _MANY else (63, "q")
        self._places = column(size, format)
        np.asarray(self._places).fill(_FREE)
        self._bits, self._number = bits, (1 << bits) - 1
        self._tag = (1 << width - bits) - 1
        self._mask = size - 1
        self._shift = 65 - size.bit_length()
        self._capacity = size // 3 * 2 - len(numbers)  # slots to fill before the array grows
        self._put(numbers)

    def _put(self, numbers: NDArray[np.int64]) -> None:
        """Enter numbers into the array; the capacity already accounts for them."""
        lines = numbers - self._keys.base
        table = self._keys
        hashed = pages.sip_hash(table.column("high")[lines], table.column("low")[lines], *_SIP)
        at = (hashed >> np.uint64(self._shift)).astype(np.int64)
        tags = (hashed & np.uint64(self._tag)).astype(np.int64)
        places = np.asarray(self._places)
        new = (tags << self._bits | numbers & self._number).astype(places.dtype)
        while len(new):  # all entries at once; entries that collide try the next slot
            free = places[at] < 0
            places[at[free]] = new[free]  # if several entries have the same slot, the last wins
            collided = places[at] != new
            new, at = new[collided], (at[collided] + 1) & self._mask
