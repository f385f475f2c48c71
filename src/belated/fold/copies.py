"""Copy-on-write copies of blocks of entries, for snapshots.

A snapshot must be consistent: it must contain the state at a single point in time. Copying a large
table at once would block changes to the table. Instead, another thread copies one block at a time,
and a block that is about to change is copied first.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from typing import Generic, TypeVar

T = TypeVar("T")


class Copies(Generic[T]):
    """Copies of blocks, with the content that they had when this object was created.

    Args:
        blocks: the entries of each block, by block number.
        copy: function that returns a copy of the given entries.

    Attributes:
        blocks: the numbers of all blocks to copy.
        made: the copies made so far, by block number.

    >>> lines = [1, 2, 3, 4]
    >>> copies = Copies({0: slice(0, 2), 1: slice(2, 4)}, lambda block: lines[block])
    >>> copies.take(1)
    >>> lines[:] = [0, 0, 0, 0]
    >>> copies.take_all()
    >>> copies.made
    {1: [3, 4], 0: [0, 0]}
    """

    def __init__(self, blocks: Mapping[int, slice], copy: Callable[[slice], T]) -> None:
        self.blocks = frozenset(blocks)
        self._remaining = dict(blocks)
        self._copy = copy
        self._lock = threading.Lock()
        self.made: dict[int, T] = {}

    def take(self, block: int) -> None:
        """Copy a block that is about to change, if a copy is needed and does not exist yet."""
        with self._lock:
            lines = self._remaining.get(block)
            if lines is not None:
                self.made[block] = self._copy(lines)
                del self._remaining[block]

    def take_all(self) -> None:
        """Copy all remaining blocks, one at a time."""
        for block in list(self._remaining):
            self.take(block)
