"""Wait for other threads and processes."""

from __future__ import annotations

import time
from collections.abc import Callable


def eventually(
    is_so: Callable[[], bool],
    otherwise: str = "the condition was not met in time",
    seconds: float = 30,
    pause: float = 0.005,
) -> None:
    """Wait until a condition is true, and check it after each pause."""
    deadline = time.monotonic() + seconds
    while not is_so():
        assert time.monotonic() < deadline, otherwise
        time.sleep(pause)
