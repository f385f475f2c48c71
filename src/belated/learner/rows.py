"""Rows of decisions whose reward is out: float32, in blocks, so that there is no slack."""

from __future__ import annotations

from array import array

import numpy as np
from numpy.typing import NDArray

from belated.inputs import Row
from belated.kernels.memory import rows_at

#: Rows in a block, as a power of two.
BITS = 10


class Rows:
    """Rows by the place they were put in; a place is used again once it is free.

    >>> rows = Rows(2)
    >>> place = rows.put(np.array([0.5, 1.0], dtype=np.float32))
    >>> rows.get(place)
    array([0.5, 1. ], dtype=float32)
    >>> rows.free(place)
    >>> rows.put(np.zeros(2, dtype=np.float32)) == place
    True
    """

    def __init__(self, dim: int) -> None:
        self.dim = dim
        self._blocks: list[Row] = []
        self._used = 0
        self._free = array("q")

    def put(self, x: Row) -> int:
        """Keep a copy of a row."""
        if self._free:
            place = self._free.pop()
        else:
            place = self._used
            if place >> BITS == len(self._blocks):
                self._blocks.append(np.empty((1 << BITS, self.dim), dtype=np.float32))
            self._used = place + 1
        self._blocks[place >> BITS][place & (1 << BITS) - 1] = x
        return place

    def get(self, place: int) -> Row:
        """The row at a place: valid until the place is free."""
        row: Row = self._blocks[place >> BITS][place & (1 << BITS) - 1]
        return row

    def get_all(self, places: NDArray[np.int64]) -> Row:
        """Copies of the rows at these places."""
        return rows_at(self._blocks, places, BITS, self.dim)

    def free(self, place: int) -> None:
        """The row is needed no longer."""
        self._free.append(place)
