"""Periods of equal length: a report of an hour has minutes, one of a year has weeks."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from belated.core.inputs import Vector
from belated.evaluation.table import DecisionTable, Times

SECOND, MINUTE, HOUR, DAY = 1_000_000, 60_000_000, 3_600_000_000, 86_400_000_000
#: How long a period may be, and what it is called.
LENGTHS = (
    (SECOND, "second"),
    (10 * SECOND, "10 seconds"),
    (MINUTE, "minute"),
    (10 * MINUTE, "10 minutes"),
    (HOUR, "hour"),
    (6 * HOUR, "6 hours"),
    (DAY, "day"),
    (7 * DAY, "week"),
    (28 * DAY, "4 weeks"),
)
#: Periods of a report, at most; and how many of them are recent.
PERIODS, RECENT = 62, 7


@dataclass(frozen=True)
class Calendar:
    """The periods of a report.

    Attributes:
        start: of the first, in microseconds since 1970.
        step: how long each is.
        count: how many there are.
        name: what one is called.
    """

    start: int
    step: int
    count: int
    name: str

    @classmethod
    def of(cls, table: DecisionTable) -> Calendar:
        """The periods of all decisions: as short as can be shown.

        >>> none, made = [None] * 2, ["2026-01-01", "2026-01-30"]
        >>> table = DecisionTable.of(made=made, rewarded=none, value=none)
        >>> Calendar.of(table).count, Calendar.of(table).name
        (30, 'day')
        """
        first = int(table.made.min(initial=table.as_of))
        for step, name in LENGTHS:
            start = first // step * step
            count = (table.as_of - start) // step + 1
            if count <= PERIODS or step == LENGTHS[-1][0]:
                return cls(start, step, count, name)
        raise AssertionError

    def place(self, times: Times) -> NDArray[np.int64]:
        """The number of the period of each time."""
        found: NDArray[np.int64] = np.clip((times - self.start) // self.step, 0, self.count - 1)
        return found

    def counts(self, times: Times, weights: Vector | None = None) -> Vector:
        """How many times, or how much, are in each period."""
        place = self.place(times)
        return np.bincount(place, weights=weights, minlength=self.count).astype(np.float64)

    def ms(self, period: int) -> int:
        """When a period starts, in milliseconds since 1970."""
        return (self.start + period * self.step) // 1000

    @property
    def recent(self) -> int:
        """The first of the recent periods."""
        return max(self.count - RECENT, 0)
