"""A clock that tests control."""

from __future__ import annotations


class ManualClock:
    """A clock for ``clock=`` that returns ``now``, which tests may set to any value.

    >>> clock = ManualClock(1_700_000_000_000_000)
    >>> clock.now += 5
    >>> clock()
    1700000000000005
    """

    def __init__(self, now: int = 1_700_000_000_000_000) -> None:
        self.now = now

    def __call__(self) -> int:
        """Return the time in microseconds since 1970."""
        return self.now
