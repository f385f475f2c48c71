"""Memory for large, growing arrays.

When a list grows, it is moved, and the C library retains the old memory. With a million decisions,
this unused memory would be a third of the total. Large arrays are therefore allocated on separate
pages, which are returned to the operating system as soon as they are unused. Pages that were never
written take no memory, so arrays can be allocated with spare room.
"""

from __future__ import annotations

from math import prod
from mmap import ACCESS_COPY, mmap
from struct import calcsize
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

#: Arrays of at least this many bytes are allocated on separate pages.
PAGES = 1 << 16


def zeros(shape: tuple[int, ...], dtype: DTypeLike) -> NDArray[Any]:
    """Return an array of zeros.

    >>> zeros((2, 1), np.float32)
    array([[0.],
           [0.]], dtype=float32)
    """
    kind = np.dtype(dtype)
    return np.frombuffer(_zeros(prod(shape) * kind.itemsize), dtype=kind).reshape(shape)


def column(count: int, format: str) -> memoryview:
    """Return zeros in a :mod:`struct` format, as a memoryview for fast item access.

    >>> column(2, "q").tolist()
    [0, 0]
    """
    view: memoryview = memoryview(_zeros(count * calcsize(format))).cast(format)  # type: ignore[call-overload]
    return view


def _zeros(size: int) -> bytearray | mmap:
    # Private anonymous memory, so that processes do not share it after a fork.
    return mmap(-1, size, access=ACCESS_COPY) if size >= PAGES else bytearray(size)
