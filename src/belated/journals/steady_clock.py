"""The system clock, protected against forward jumps.

Timestamps of records never decrease, so a single timestamp that is a month ahead would stop journal
time for a month: no window would end, and nothing would be settled. A process does not know the
true time, but the monotonic clock shows how much time has passed.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable
from datetime import timedelta
from functools import partial

from belated.exceptions import ClockWarning

#: Maximum accepted jump relative to the monotonic clock: 15 minutes, in nanoseconds. Clock
#: corrections take seconds, and a paused machine lags by minutes; a wrong time zone is off by at
#: least half an hour. Smaller jumps do not matter for windows, which are longer.
MAX_JUMP = 15 * 60 * 10**9
#: How long after an accepted time the time of day is accepted without a check, in nanoseconds.
SOON = 10**9


class SteadyClock:
    """Returns the time of day, or the extrapolated time if the time of day has jumped ahead.

    A :class:`ClockWarning` reports a jump, and the time is extrapolated until the time of day is
    right again. Backward jumps are allowed, because journals never decrease timestamps.

    Args:
        time_of_day: Returns the time of day, in nanoseconds since 1970.
        passed: Returns monotonic time in nanoseconds, including the time while the machine sleeps.

    >>> day, passed = [1_700_000_000 * 10**9], [0]
    >>> clock = SteadyClock(lambda: day[0], lambda: passed[0])
    >>> clock()
    1700000000000000
    >>> day[0], passed[0] = day[0] + 60 * 10**9, 60 * 10**9
    >>> clock()
    1700000060000000
    """

    def __init__(self, time_of_day: Callable[[], int], passed: Callable[[], int]) -> None:
        self._time_of_day = time_of_day
        self._passed = passed
        # The greatest accepted difference between the two clocks, in nanoseconds.
        self._ahead = time_of_day() - passed()
        self._held = False
        self._checked = -SOON  # the last time of day that was checked and accepted

    def __call__(self) -> int:
        """Return the time in microseconds since 1970."""
        now = self._time_of_day()
        if 0 <= now - self._checked < SOON:
            return now // 1000
        passed = self._passed()
        jump = now - passed - self._ahead
        if jump > MAX_JUMP:
            self._checked = -SOON
            if not self._held:
                self._held = True
                warnings.warn(_message(jump), ClockWarning, stacklevel=2)
            return (passed + self._ahead) // 1000
        if jump > 0:
            self._ahead += jump
        self._held = False
        self._checked = now
        return now // 1000


def _message(jump: int) -> str:
    return (
        f"the system clock has jumped {timedelta(seconds=round(jump / 1e9))} ahead: events are "
        "stamped with the extrapolated time, because stamps cannot decrease. Correct the clock, or "
        "restart this process if the clock was wrong before and is correct now"
    )


# On Linux, CLOCK_MONOTONIC stops while the machine sleeps; on other systems it does not.
_COUNTS_SLEEP: int = getattr(time, "CLOCK_BOOTTIME", getattr(time, "CLOCK_MONOTONIC", 0))

#: The clock of this machine, shared by all journals of the process.
system_clock = SteadyClock(
    time.time_ns,
    partial(time.clock_gettime_ns, _COUNTS_SLEEP)
    if hasattr(time, "clock_gettime_ns")
    else time.monotonic_ns,
)
