"""Histograms with fixed buckets. Adding a value takes a fraction of a microsecond."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence

#: Bounds for durations, in seconds.
SECONDS = (
    0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0,
)  # fmt: skip
#: Bounds for batch sizes.
SIZES = (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000)
#: Bounds for reward delays in seconds, from one second to 90 days.
DELAYS = (
    1, 10, 60, 600, 3600, 6 * 3600, 86_400, 3 * 86_400, 7 * 86_400, 30 * 86_400, 90 * 86_400,
)  # fmt: skip


class Histogram:
    """Counts values in buckets. One thread may add values while other threads read.

    Args:
        bounds: Inclusive upper bounds of the buckets, in increasing order.

    >>> histogram = Histogram((1, 10))
    >>> for value in (0.5, 1, 7, 70):
    ...     histogram.add(value)
    >>> histogram.cumulative, histogram.total
    ([2, 3, 4], 78.5)
    """

    def __init__(self, bounds: Sequence[float]) -> None:
        self.bounds = tuple(bounds)
        self.total = 0.0
        self._counts = [0] * (len(self.bounds) + 1)

    def add(self, value: float) -> None:
        """Add a value."""
        self._counts[bisect_left(self.bounds, value)] += 1
        self.total += value

    @property
    def cumulative(self) -> list[int]:
        """The number of values up to each bound, followed by the total number of values."""
        so_far, counts = 0, []
        for count in tuple(self._counts):
            so_far += count
            counts.append(so_far)
        return counts
