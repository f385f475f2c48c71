"""Virtual time: what happens when, and in which order."""

from __future__ import annotations

import math
from collections.abc import Callable
from heapq import heappop, heappush
from random import Random

SECOND = 1_000_000
MINUTE = 60 * SECOND
HOUR = 60 * MINUTE
DAY = 24 * HOUR
#: Actions of a run; they are a few hundred.
LIMIT = 50_000


def stream(seed: int, name: str) -> Random:
    """The random numbers of one subsystem: what it draws does not shift those of the others.

    >>> stream(7, "network").random() == stream(7, "network").random()
    True
    >>> stream(7, "network").random() == stream(7, "clocks").random()
    False
    """
    return Random(f"{seed} {name}")  # text is hashed in the same way in every process


class Schedule:
    """Actions in the order of their times; those of the same time in an order of chance.

    >>> schedule = Schedule(seed=7)
    >>> schedule.after(20, lambda: print("second"))
    >>> schedule.after(10, lambda: print("first"))
    >>> schedule.run()
    first
    second
    """

    def __init__(self, seed: int, now: int = 1_700_000_000_000_000) -> None:
        self.now = now
        self._rng = stream(seed, "schedule")
        self._done = 0
        self._heap: list[tuple[int, float, Callable[[], object]]] = []

    def after(self, delay: float, action: Callable[[], object]) -> None:
        """Do something later."""
        heappush(self._heap, (self.now + int(delay), self._rng.random(), action))

    def run(self, until: float = math.inf) -> None:
        """Do all that is to be done by then, and what comes of it."""
        while self._heap and self._heap[0][0] <= until:
            self.now, _, action = heappop(self._heap)
            action()
            self._done += 1
            assert self._done < LIMIT, "L: it does not come to an end"
        if until < math.inf:
            self.now = max(self.now, int(until))


class Clock:
    """The clock of one process: as the true time goes, and wrong by some offset."""

    def __init__(self, schedule: Schedule, offset: int = 0) -> None:
        self._schedule = schedule
        self.offset = offset

    def __call__(self) -> int:
        """The time it shows, in microseconds since 1970."""
        return self._schedule.now + self.offset
