"""The rows of decisions that may still be learned, in one array with places that are used again."""

from __future__ import annotations

from array import array

import numpy as np
from numpy.typing import NDArray

from belated.inputs import Row
from belated.kernels.memory import zeros

# Rows that there is room for, at least.
_FEW = 64


class Rows:
    """Rows of one width, each at a place of its own.

    >>> rows = Rows(2)
    >>> place = rows.put(np.array([1.0, 2.0], dtype=np.float32))
    >>> rows.get(place)
    array([1., 2.], dtype=float32)
    >>> rows.free(place)
    >>> rows.put(np.zeros(2, dtype=np.float32)) == place
    True
    """

    def __init__(self, dim: int) -> None:
        self.dim = dim
        #: Places that were ever used.
        self.used = 0
        self._rows: Row = zeros((_FEW, dim), np.float32)
        self._free = array("q")

    def put(self, x: Row) -> int:
        """Keep a copy of a row; returns its place."""
        place = self._free.pop() if self._free else self._grow(1)
        self._rows[place] = x
        return place

    def put_all(self, rows: Row) -> NDArray[np.int64]:
        """Keep copies of rows; returns their places."""
        first = self._grow(len(rows))
        self._rows[first : self.used] = rows
        return np.arange(first, self.used)

    def get(self, place: int) -> Row:
        """The row at a place; it is another one once the place was freed."""
        row: Row = self._rows[place]
        return row

    def get_all(self, places: NDArray[np.int64]) -> Row:
        """Copies of the rows at these places."""
        rows: Row = self._rows[places]
        return rows

    def free(self, place: int) -> None:
        """The row is needed no longer."""
        self._free.append(place)

    def _grow(self, count: int) -> int:
        first = self.used
        self.used += count
        if self.used > len(self._rows):
            larger: Row = zeros((max(self.used, 2 * len(self._rows)), self.dim), np.float32)
            larger[:first] = self._rows[:first]
            self._rows = larger
        return first
