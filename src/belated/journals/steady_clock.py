"""The clock of the system, held where it jumps ahead.

Stamps of records never decrease. So one stamp of next month stops journal time for a month: no
window ends, nothing is settled. A process cannot know the true time, but it knows how much time has
passed since it last looked: the system counts that apart from the time of day.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable
from datetime import timedelta
from functools import partial

from belated.exceptions import ClockWarning

#: How far ahead the time of day may go of the time that has passed, in nanoseconds: 15 minutes.
#: Whoever sets a clock right steps by seconds, and a machine that was paused lags by minutes;
#: a wrong time zone is half an hour at least. And no window is so short that less does harm.
MAX_JUMP = 15 * 60 * 10**9
#: So soon behind a time that was believed, in nanoseconds, the next one is: a second is no jump.
SOON = 10**9


class SteadyClock:
    """Gives the time of day, unless that has jumped ahead: then the time it should be.

    It is held there, with a :class:`ClockWarning`, until the time of day has come back. A new
    process believes what it finds. Backwards the time of day may go as it likes: a journal holds
    its stamps itself.

    Args:
        time_of_day: in nanoseconds since 1970.
        passed: nanoseconds that only grow, and also while the machine sleeps.

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
        # The greatest difference of the two that was believed.
        self._ahead = time_of_day() - passed()  # nanoseconds
        self._held = False
        self._checked = -SOON  # the last time of day that was compared, and believed

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
        f"the system's clock has jumped {timedelta(seconds=round(jump / 1e9))} ahead: events are "
        "stamped with the time that it should be, for stamps cannot go back. Set the clock right; "
        "if it is right now, and was wrong before, restart this process"
    )


# On Linux CLOCK_MONOTONIC stops while the machine sleeps, elsewhere it does not.
_COUNTS_SLEEP: int = getattr(time, "CLOCK_BOOTTIME", getattr(time, "CLOCK_MONOTONIC", 0))

#: The clock of this machine: one for the whole process, whatever is opened meanwhile.
system_clock = SteadyClock(
    time.time_ns,
    partial(time.clock_gettime_ns, _COUNTS_SLEEP)
    if hasattr(time, "clock_gettime_ns")
    else time.monotonic_ns,
)
