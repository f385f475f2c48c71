"""Copies of blocks of lines as they were at one moment, made while the lines go on to change.

A snapshot is of one moment. To copy a large table at once would hold up whoever changes it; so a
block is copied when its turn comes, in another thread, or right before its first change.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from typing import Generic, TypeVar

T = TypeVar("T")


class Copies(Generic[T]):
    """Copies of some blocks.

    Args:
        blocks: the lines of each block, by its number.
        copy: makes a copy of lines.

    Attributes:
        blocks: the numbers of all of them.
        made: the copies, by the numbers of the blocks.

    >>> lines = [1, 2, 3, 4]
    >>> copies = Copies({0: slice(0, 2), 1: slice(2, 4)}, lambda some: lines[some])
    >>> copies.take(1)
    >>> lines[:] = [0, 0, 0, 0]
    >>> copies.take_all()
    >>> copies.made
    {1: [3, 4], 0: [0, 0]}
    """

    def __init__(self, blocks: Mapping[int, slice], copy: Callable[[slice], T]) -> None:
        self.blocks = frozenset(blocks)
        self._left = dict(blocks)
        self._copy = copy
        self._lock = threading.Lock()
        self.made: dict[int, T] = {}

    def take(self, block: int) -> None:
        """Copy a block that is about to change, if it is one of these and was not copied yet."""
        with self._lock:
            lines = self._left.get(block)
            if lines is not None:
                self.made[block] = self._copy(lines)
                del self._left[block]

    def take_all(self) -> None:
        """Copy whatever is left, block by block."""
        for block in list(self._left):
            self.take(block)
