"""The rows of decisions that may still be learned, in one array with places that are used again."""

from __future__ import annotations

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
        #: Places that were ever used, and how many of them are free.
        self.used = self.n_free = 0
        #: The rows, and the places that are free: each with some room.
        self.data: Row = zeros((_FEW, dim), np.float32)
        self.places: NDArray[np.int64] = zeros((_FEW,), np.int64)

    def put(self, x: Row) -> int:
        """Keep a copy of a row; returns its place."""
        if self.n_free:
            self.n_free -= 1
            place = int(self.places[self.n_free])
        else:
            self.reserve(1)
            place = self.used
            self.used = place + 1
        self.data[place] = x
        return place

    def put_all(self, rows: Row) -> NDArray[np.int64]:
        """Keep copies of rows; returns their places."""
        self.reserve(len(rows))
        first, self.used = self.used, self.used + len(rows)
        self.data[first : self.used] = rows
        return np.arange(first, self.used)

    def get(self, place: int) -> Row:
        """The row at a place; it is another one once the place was freed."""
        row: Row = self.data[place]
        return row

    def get_all(self, places: NDArray[np.int64]) -> Row:
        """Copies of the rows at these places."""
        rows: Row = self.data[places]
        return rows

    def free(self, place: int) -> None:
        """The row is needed no longer."""
        self.places[self.n_free] = place
        self.n_free += 1

    def reserve(self, count: int) -> None:
        """Have room for so many rows behind the last place."""
        if self.used + count <= len(self.data):
            return
        room = max(self.used + count, 2 * len(self.data))
        data, places = zeros((room, self.dim), np.float32), zeros((room,), np.int64)
        data[: self.used] = self.data[: self.used]
        places[: self.n_free] = self.places[: self.n_free]
        self.data, self.places = data, places
