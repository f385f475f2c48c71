"""Where a key is: 16 bytes to a number, in 22 to 28 bytes each.

Open addressing with linear probing over one flat table of numbers, each with some bits of its key's
hash, so that a key is looked at only where it is likely to be the one. The keys themselves are kept
once, side by side; a dictionary would keep an object for each.
"""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from struct import Struct
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from belated.kernels.memory import Table, column

_FREE = -1
_GONE = -2
_key = Struct(">QQ")
_halves, _joined = _key.unpack, _key.pack
# A random hash function of this process: whoever chooses ids cannot make them meet on purpose.
_HIGH, _LOW = secrets.randbits(64) | 1, secrets.randbits(64) | 1
_ALL = (1 << 64) - 1
# An entry of the table is a number's last bits behind some of the hash: 31 bits in all, or 63 where
# a number needs as many as this.
_MANY = 30
# So few keys are sooner added one by one.
_FEW = 24


class _Keys(Table):
    """The keys, side by side."""

    columns: ClassVar = {"high": "Q", "low": "Q"}
    high: memoryview[int]
    low: memoryview[int]


class Index:
    """The numbers of keys. A number names a place in ``keys``: 16 bytes each, from ``base`` on.

    >>> index = Index()
    >>> index.find(b"sixteen bytes ..")
    -1
    >>> index.add(b"sixteen bytes ..")
    0
    >>> index.find(b"sixteen bytes .."), index.find(b"another 16 bytes")
    (0, -1)
    """

    def __init__(self) -> None:
        self.base = 0
        self._keys = _Keys()
        self._fill(np.arange(0))

    def __len__(self) -> int:
        """How many numbers were given out and not dropped."""
        return len(self._keys)

    @property
    def next(self) -> int:
        """The number that the next key will get."""
        return self.base + len(self._keys)

    @property
    def keys(self) -> bytes:
        """All keys, in the order of their numbers."""
        count = len(self._keys)
        halves = np.empty((count, 2), dtype=">u8")
        halves[:, 0], halves[:, 1] = self._keys.high[:count], self._keys.low[:count]
        return halves.tobytes()

    def key(self, number: int) -> bytes:
        """The key that has a number, removed or not."""
        i = number - self.base
        return _joined(self._keys.high[i], self._keys.low[i])

    def find(self, key: bytes) -> int:
        """The number of a key, -1 if it has none."""
        table, bits = self._table, self._bits
        high, low = _halves(key)
        hashed: int = (high * _HIGH + low * _LOW) & _ALL
        at, tag = hashed >> self._shift, hashed & self._tag
        while (entry := table[at]) != _FREE:
            if entry >> bits == tag:
                i = (entry - self.base) & self._number
                if self._keys.low[i] == low and self._keys.high[i] == high:
                    return self.base + i
            at = (at + 1) & self._mask
        return -1

    def add(self, key: bytes) -> int:
        """Give the next number to a key that has none."""
        if self._room == 0 or len(self._keys) > self._number:
            self._rebuild()
        high, low = _halves(key)
        i = self._keys.add()
        self._keys.high[i], self._keys.low[i] = high, low
        number = self.base + i
        at, entry = self._wanted(number)
        table, mask = self._table, self._mask
        while table[at] >= 0:
            at = (at + 1) & mask
        if table[at] == _FREE:
            self._room -= 1
        table[at] = entry
        return number

    def add_all(self, keys: Sequence[bytes]) -> None:
        """Give the next numbers to keys that have none, in their order."""
        if len(keys) < _FEW:
            for key in keys:
                self.add(key)
            return
        first = self.next
        self._take(b"".join(keys))
        if self._room < len(keys) or len(self._keys) > self._number:
            self._rebuild(range(first, self.next))
        else:
            self._room -= len(keys)
            self._enter(np.arange(first, self.next))

    def remove(self, number: int) -> None:
        """A number is found no longer; its key stays until it is dropped."""
        at, entry = self._wanted(number)
        table, mask = self._table, self._mask
        while table[at] != entry:
            if table[at] == _FREE:
                return
            at = (at + 1) & mask
        table[at] = _GONE

    def drop(self, count: int) -> None:
        """Let the keys of the first ``count`` numbers go; they were removed before."""
        self._keys.drop(count)
        self.base += count

    def restore(self, keys: bytes, base: int, removed: set[int]) -> None:
        """Take these keys, with numbers from ``base`` on; in an empty index."""
        self._take(keys)
        self.base = base
        numbers = np.arange(base, self.next)
        self._fill(numbers[~np.isin(numbers, list(removed))])

    def _take(self, keys: bytes) -> None:
        """Put keys behind the others."""
        halves = np.frombuffer(keys, dtype=">u8").reshape(-1, 2)
        first = self._keys.add(len(halves))
        new = slice(first, first + len(halves))
        np.asarray(self._keys.high)[new] = halves[:, 0]
        np.asarray(self._keys.low)[new] = halves[:, 1]

    def _wanted(self, number: int) -> tuple[int, int]:
        """The first place where a number may be, and its entry."""
        i = number - self.base
        hashed = (self._keys.high[i] * _HIGH + self._keys.low[i] * _LOW) & _ALL
        return hashed >> self._shift, (hashed & self._tag) << self._bits | number & self._number

    def _rebuild(self, more: Sequence[int] = ()) -> None:
        """A table for the numbers that are in it, and more."""
        entries = np.asarray(self._table)
        places = (entries[entries >= 0].astype(np.int64) - self.base) & self._number
        numbers = self.base + np.sort(places)
        self._fill(np.concatenate([numbers, np.array(more, dtype=np.int64)]))

    def _fill(self, numbers: NDArray[np.int64]) -> None:
        """A table of five places for two numbers, or more; it may be filled to two thirds."""
        size = 64
        while 2 * size < 5 * len(numbers):
            size *= 2
        bits = max(size, 2 * len(self._keys)).bit_length()
        width, format = (31, "i") if bits < _MANY else (63, "q")
        self._table = column(size, format)
        np.asarray(self._table).fill(_FREE)
        self._bits, self._number = bits, (1 << bits) - 1
        self._tag = (1 << width - bits) - 1
        self._mask = size - 1
        self._shift = 65 - size.bit_length()
        self._room = size // 3 * 2 - len(numbers)  # places that may be taken before it grows
        self._enter(numbers)

    def _enter(self, numbers: NDArray[np.int64]) -> None:
        """Find places for numbers whose keys are known; their room was counted."""
        places = numbers - self.base
        hashed = np.asarray(self._keys.high)[places] * np.uint64(_HIGH)
        hashed += np.asarray(self._keys.low)[places] * np.uint64(_LOW)
        at = (hashed >> np.uint64(self._shift)).astype(np.int64)
        tags = (hashed & np.uint64(self._tag)).astype(np.int64)
        table = np.asarray(self._table)
        new = (tags << self._bits | numbers & self._number).astype(table.dtype)
        while len(new):  # all at once: whoever finds its place taken looks at the next
            free = table[at] < 0
            table[at[free]] = new[free]  # of several that want one place the last gets it
            left = table[at] != new
            new, at = new[left], (at[left] + 1) & self._mask
