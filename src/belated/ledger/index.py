"""Where a key is: 16 bytes to a number, in about 30 bytes each.

Open addressing with linear probing over one flat table of numbers, each with 16 bits of its key's
hash, so that a key is looked at only where it is likely to be the one. The keys themselves are kept
once, side by side; a dictionary would keep an object for each.
"""

from __future__ import annotations

import secrets
from array import array
from collections.abc import Sequence
from struct import Struct

import numpy as np
from numpy.typing import NDArray

_FREE = -1
_GONE = -2
_halves = Struct(">QQ").unpack
# A random hash function of this process: whoever chooses ids cannot make them meet on purpose.
_HIGH, _LOW = secrets.randbits(64) | 1, secrets.randbits(64) | 1
_ALL = (1 << 64) - 1
# An entry of the table: 16 bits of the hash, then the number.
_BITS = 47
_NUMBER = (1 << _BITS) - 1
_TAG = 0xFFFF
# So few keys are sooner added one by one.
_FEW = 24


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
        self.keys = bytearray()
        self.base = 0
        self._resize(64)
        self._room = 42  # places that may still be taken before the table grows

    def __len__(self) -> int:
        """How many numbers were given out and not dropped."""
        return len(self.keys) // 16

    @property
    def next(self) -> int:
        """The number that the next key will get."""
        return self.base + len(self.keys) // 16

    def find(self, key: bytes) -> int:
        """The number of a key, -1 if it has none."""
        table, mask, keys, base = self._table, self._mask, self.keys, self.base
        high, low = _halves(key)
        hashed: int = (high * _HIGH + low * _LOW) & _ALL
        at, tag = hashed >> self._shift, hashed & _TAG
        while (entry := table[at]) != _FREE:
            if entry >> _BITS == tag:
                number = entry & _NUMBER
                start = (number - base) << 4
                if keys[start : start + 16] == key:
                    return number
            at = (at + 1) & mask
        return -1

    def add(self, key: bytes) -> int:
        """Give the next number to a key that has none."""
        if self._room == 0:
            self._rebuild()
        number = self.base + (len(self.keys) >> 4)
        self.keys += key
        table, mask = self._table, self._mask
        high, low = _halves(key)
        hashed = (high * _HIGH + low * _LOW) & _ALL
        at = hashed >> self._shift
        while table[at] >= 0:
            at = (at + 1) & mask
        if table[at] == _FREE:
            self._room -= 1
        table[at] = (hashed & _TAG) << _BITS | number
        return number

    def add_all(self, keys: Sequence[bytes]) -> None:
        """Give the next numbers to keys that have none, in their order."""
        if len(keys) < _FEW:
            for key in keys:
                self.add(key)
            return
        first = self.next
        self.keys += b"".join(keys)
        if self._room < len(keys):
            self._rebuild(range(first, self.next))
        else:
            self._room -= len(keys)
            self._enter(np.arange(first, self.next))

    def remove(self, number: int) -> None:
        """A number is found no longer; its key stays until it is dropped."""
        start = (number - self.base) << 4
        table, mask = self._table, self._mask
        high, low = _halves(self.keys[start : start + 16])
        hashed = (high * _HIGH + low * _LOW) & _ALL
        at, entry = hashed >> self._shift, (hashed & _TAG) << _BITS | number
        while table[at] != entry:
            if table[at] == _FREE:
                return
            at = (at + 1) & mask
        table[at] = _GONE

    def drop(self, count: int) -> None:
        """Let the keys of the first ``count`` numbers go; they were removed before."""
        del self.keys[: count << 4]
        self.base += count

    def restore(self, keys: bytes, base: int, removed: set[int]) -> None:
        """Take these keys, with numbers from ``base`` on."""
        self.keys = bytearray(keys)
        self.base = base
        numbers = np.arange(base, self.next)
        self._fill(numbers[~np.isin(numbers, list(removed))])

    def _resize(self, size: int) -> None:
        self._table = array("q", [_FREE]) * size
        self._mask = size - 1
        self._shift = 65 - size.bit_length()

    def _rebuild(self, more: Sequence[int] = ()) -> None:
        """A table for the numbers that are in it, and more."""
        entries = np.frombuffer(self._table, dtype=np.int64)
        numbers = np.sort(entries[entries >= 0] & _NUMBER)
        self._fill(np.concatenate([numbers, np.array(more, dtype=np.int64)]))

    def _fill(self, numbers: NDArray[np.int64]) -> None:
        """A table of three times as many places as numbers, or more."""
        size = 64
        while size < 3 * len(numbers):
            size *= 2
        self._resize(size)
        self._room = size // 3 * 2 - len(numbers)
        self._enter(numbers)

    def _enter(self, numbers: NDArray[np.int64]) -> None:
        """Find places for numbers whose keys are known; their room was counted."""
        halves = np.frombuffer(self.keys, dtype=">u8").reshape(-1, 2)[numbers - self.base]
        products = halves.astype(np.uint64) * np.array([_HIGH, _LOW], dtype=np.uint64)
        hashed = products.sum(axis=1, dtype=np.uint64)
        at = (hashed >> np.uint64(self._shift)).astype(np.int64)
        new = (hashed & np.uint64(_TAG)).astype(np.int64) << _BITS | numbers
        table = np.frombuffer(self._table, dtype=np.int64)
        while len(new):  # all at once: whoever finds its place taken looks at the next
            free = table[at] < 0
            table[at[free]] = new[free]  # of several that want one place the last gets it
            left = table[at] != new
            new, at = new[left], (at[left] + 1) & self._mask
