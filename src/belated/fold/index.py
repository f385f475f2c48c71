"""Where a key is: 16 bytes to the number of a line of the table.

Open addressing with linear probing over one flat array of numbers, each with some bits of its key's
hash, so that a key is looked at only where it is likely to be the one. The keys themselves are in
the table; a dictionary would keep an object for each.
"""

from __future__ import annotations

import secrets

import numpy as np
from numpy.typing import NDArray

from belated.fold.table import EntryTable, halves_of
from belated.model.kernels.memory import column

_FREE = -1
_GONE = -2
# A random hash function of this process: whoever chooses ids cannot make them meet on purpose.
_HIGH, _LOW = secrets.randbits(64) | 1, secrets.randbits(64) | 1
_ALL = (1 << 64) - 1
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
        self._keys = table
        self._fill(np.arange(0))

    def find(self, key: bytes) -> int:
        """The number of a key, -1 if it has none."""
        places, bits, keys = self._places, self._bits, self._keys
        high, low = halves_of(key)
        hashed: int = (high * _HIGH + low * _LOW) & _ALL
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
        hashed: int = (high * _HIGH + low * _LOW) & _ALL
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
        high, low = (one - (1 << 64) if one >> 63 else one for one in (_HIGH, _LOW))
        return self._shift, self._mask, self._bits, self._number, self._tag, high, low

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
        hashed = (self._keys.high[i] * _HIGH + self._keys.low[i] * _LOW) & _ALL
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
        hashed = self._keys.column("high")[lines] * np.uint64(_HIGH)
        hashed += self._keys.column("low")[lines] * np.uint64(_LOW)
        at = (hashed >> np.uint64(self._shift)).astype(np.int64)
        tags = (hashed & np.uint64(self._tag)).astype(np.int64)
        places = np.asarray(self._places)
        new = (tags << self._bits | numbers & self._number).astype(places.dtype)
        while len(new):  # all at once: whoever finds its place taken looks at the next
            free = places[at] < 0
            places[at[free]] = new[free]  # of several that want one place the last gets it
            left = places[at] != new
            new, at = new[left], (at[left] + 1) & self._mask
