"""Memory for what grows and stays.

A list that grows moves, and the C library keeps the place it leaves: a third of what a million
decisions take would be such holes. Here what is large has pages of its own. They go back to the
system when nobody uses them, and those that were never written take no memory: there may be room
for twice as much.
"""

from __future__ import annotations

from math import prod
from mmap import ACCESS_COPY, mmap
from struct import calcsize
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

#: So many bytes have pages of their own.
PAGES = 1 << 16


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
