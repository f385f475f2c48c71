"""Memory for what grows and stays.

A list that grows moves, and the C library keeps the place it leaves: a third of what a million
decisions take would be such holes. Here what is large has pages of its own. They go back to the
system when nobody uses them, and those that were never written take no memory: there may be room
for twice as much.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from mmap import ACCESS_COPY, mmap
from struct import calcsize
from typing import Any, ClassVar

import numpy as np
from numpy.typing import DTypeLike, NDArray

#: So many bytes have pages of their own.
PAGES = 1 << 16
#: Rows that a table has room for, at least.
FEW = 16


def rows_at(
    blocks: Sequence[NDArray[np.float32]], places: NDArray[np.int64], bits: int, dim: int
) -> NDArray[np.float32]:
    """Copies of the rows at these places of blocks that have 2**bits rows each."""
    found = np.empty((len(places), dim), dtype=np.float32)
    for index in set((places >> bits).tolist()):  # numpy's own loads a module at its first call
        here = places >> bits == index
        found[here] = blocks[index][places[here] & (1 << bits) - 1]
    return found


def zeros(shape: tuple[int, ...], dtype: DTypeLike) -> NDArray[Any]:
    """An array of zeros.

    >>> zeros((2, 1), np.float32)
    array([[0.],
           [0.]], dtype=float32)
    """
    kind = np.dtype(dtype)
    return np.frombuffer(_zeros(prod(shape) * kind.itemsize), dtype=kind).reshape(shape)


def column(count: int, format: str) -> memoryview:
    """So many zeros, of a format of :mod:`struct`; one by one they are sooner read than an array's.

    >>> column(2, "q").tolist()
    [0, 0]
    """
    view: memoryview = memoryview(_zeros(count * calcsize(format))).cast(format)  # type: ignore[call-overload]
    return view


def _zeros(size: int) -> bytearray | mmap:
    # A private copy of nothing: after a fork each process has its own.
    return mmap(-1, size, access=ACCESS_COPY) if size >= PAGES else bytearray(size)


class Table:
    """Columns of one length, that of the table; a subclass names them.

    A column is an attribute: a view with some room behind the last row. It is another one whenever
    rows were added or dropped, so nobody keeps it.

    >>> class Prices(Table):
    ...     columns = {"cents": "q", "sold": "B"}
    ...     cents: memoryview
    ...     sold: memoryview
    >>> prices = Prices()
    >>> prices.cents[prices.add()] = 250
    >>> len(prices), prices.cents[0]
    (1, 250)
    """

    #: The format of each column by its name, as in :mod:`struct`.
    columns: ClassVar[dict[str, str]]

    def __init__(self) -> None:
        self._used = 0
        self._resize(FEW)

    def __len__(self) -> int:
        return self._used

    def add(self, count: int = 1) -> int:
        """Make room for more rows, which are to be written next; returns the first of them."""
        first = self._used
        if first + count > self._room:
            self._resize(max(first + count, 2 * self._room))
        self._used = first + count
        return first

    def drop(self, count: int) -> None:
        """The first ``count`` rows are gone, and those behind move up."""
        left = self._used - count
        for name in self.columns:
            all = getattr(self, name)
            all[:left] = all[count : self._used]
        self._used = left
        if self._room > max(FEW, 4 * left):
            self._resize(max(FEW, 2 * left))

    def pack(self) -> dict[str, bytes]:
        """The columns as bytes, by name."""
        return {name: bytes(getattr(self, name)[: self._used]) for name in self.columns}

    def restore(self, packed: dict[str, bytes]) -> None:
        """Take the columns that :meth:`pack` gave.

        Raises:
            ValueError: they are not of one length.
        """
        found = {
            name: np.frombuffer(packed[name], dtype=self.columns[name]) for name in self.columns
        }
        length = {len(new) for new in found.values()}
        if len(length) > 1:
            raise ValueError(f"columns of {sorted(length)} rows are no table")
        self._used = 0
        self.add(length.pop())
        for name, new in found.items():
            np.asarray(getattr(self, name))[: self._used] = new

    def _resize(self, room: int) -> None:
        for name, format in self.columns.items():
            larger = column(room, format)
            if self._used:
                larger[: self._used] = getattr(self, name)[: self._used]
            setattr(self, name, larger)
        self._room = room
