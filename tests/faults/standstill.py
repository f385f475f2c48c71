"""Pauses of the machine itself: seconds in which no process under test can respond.

A virtual machine that shares its disk and cores is sometimes paused for a second, with all its
processes. A bound on the latency of a service is meaningful only for the remaining
time.
"""

from __future__ import annotations

import os
import tempfile
import threading
import time
from typing import Self

#: Seconds between two looks, and what a look may take before it counts: a spool syncs as it does.
EVERY, USUAL = 0.02, 0.2


class Standstill:
    """Repeatedly writes a few bytes to the disk, and records when that took far too long.

    Attributes:
        spells: start and end of each pause, by the monotonic clock.
    """

    def __init__(self) -> None:
        self.spells: list[tuple[float, float]] = []
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._look, name="standstill", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopped.set()
        self._thread.join()

    def within(self, start: float, end: float) -> float:
        """Return the seconds of a period in which the machine was paused."""
        return sum(max(0.0, min(end, until) - max(start, since)) for since, until in self.spells)

    def _look(self) -> None:
        with tempfile.TemporaryFile() as file:
            due = time.monotonic()
            while not self._stopped.wait(max(0.0, due - time.monotonic())):
                file.write(b"still there")
                file.flush()
                os.fdatasync(file.fileno())
                end = time.monotonic()
                if end - due > USUAL:
                    self.spells.append((due, end))
                due = max(due + EVERY, end)
