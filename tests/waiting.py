"""Waiting for what other threads and processes do."""

from __future__ import annotations

import time
from collections.abc import Callable


def eventually(
    is_so: Callable[[], bool],
    otherwise: str = "it did not come to be",
    seconds: float = 30,
    pause: float = 0.005,
) -> None:
    """Wait until it is so; look again after each pause."""
    deadline = time.monotonic() + seconds
    while not is_so():
        assert time.monotonic() < deadline, otherwise
        time.sleep(pause)
