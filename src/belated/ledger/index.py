"""Where a key is: 16 bytes to a number, in about 30 bytes each.

Open addressing with linear probing over one flat table of numbers. The keys themselves are kept
once, side by side, by whoever owns the numbers; a dictionary would keep an object for each.
"""

from __future__ import annotations

from array import array

import numpy as np

_FREE = -1
_GONE = -2


class Index:
    """The numbers of keys. A number names a place in ``keys``: 16 bytes each, from ``base`` on.

    >>> index = Index()
    >>> index.add(b"sixteen bytes ..")
    0
    >>> index.find(b"sixteen bytes .."), index.find(b"another 16 bytes")
    (0, -1)
    """

    def __init__(self) -> None:
        self.keys = bytearray()
        self.base = 0
        self._table = array("q", [_FREE]) * 64
        self._mask = 63
        self._room = 32  # places that may still be taken before the table grows

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
        at = hash_of(key) & mask
        while (number := table[at]) != _FREE:
            if number >= 0:
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
        at = hash_of(key) & mask
        while table[at] >= 0:
            at = (at + 1) & mask
        if table[at] == _FREE:
            self._room -= 1
        table[at] = number
        return number

    def remove(self, number: int) -> None:
        """A number is found no longer; its key stays until it is dropped."""
        start = (number - self.base) << 4
        table, mask = self._table, self._mask
        at = hash_of(self.keys[start : start + 16]) & mask
        while table[at] != number:
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
        self._rebuild(removed)

    def _rebuild(self, removed: set[int] | None = None) -> None:
        """A table of twice as many places as numbers in use, or more."""
        if removed is None:
            numbers = np.frombuffer(self._table, dtype=np.int64)
            numbers = np.sort(numbers[numbers >= 0])
        else:
            numbers = np.arange(self.base, self.next)
            numbers = numbers[~np.isin(numbers, list(removed))]
        size = 64
        while size < 3 * len(numbers):
            size *= 2
        low = np.frombuffer(self.keys, dtype="<u8").reshape(-1, 2)[:, 1]
        at = (low[numbers - self.base] & np.uint64(size - 1)).astype(np.int64)
        table = np.full(size, _FREE, dtype=np.int64)
        while len(numbers):  # all at once: whoever finds its place taken looks at the next
            free = table[at] == _FREE
            table[at[free]] = numbers[free]  # of several that want one place the last gets it
            left = table[at] != numbers
            numbers, at = numbers[left], (at[left] + 1) & (size - 1)
        self._table = array("q", table.tobytes())
        self._mask = size - 1
        self._room = size // 3 * 2 - int((table >= 0).sum())


def hash_of(key: bytes | bytearray) -> int:
    """The last eight bytes: random in every id made here, and in the hash of any other."""
    return int.from_bytes(key[8:], "little")
