"""Memory that was let go: back to the system, and not only to the process's allocator."""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Callable
from functools import cache


def give_back() -> None:
    """Have the allocator return what is free; does nothing where it cannot be asked to.

    glibc keeps it for what may come: after a flood that is as much as the flood held at once. It
    takes some milliseconds.
    """
    trim = _malloc_trim()
    if trim is not None:
        trim(0)


@cache
def _malloc_trim() -> Callable[[int], int] | None:
    if sys.platform != "linux":
        return None
    # Of the C library that this process has; musl's has no such function.
    return getattr(ctypes.CDLL(None), "malloc_trim", None)
