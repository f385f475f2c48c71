"""The clock that stamps records, looked at now and then: that of this machine may be wrong."""

from __future__ import annotations

import math

from belated.journals import Journal
from belated.service.runtime import Runtime

#: Seconds between two looks.
LOOK = 1.0


class JournalClock:
    """Tells the journal's time, and whether it has jumped.

    Args:
        journal: that stamps records.
        runtime: time of this machine.

    Attributes:
        offset: by how many seconds the journal's clock is ahead of this machine's.
        last_stamp: the greatest that was seen.
    """

    def __init__(self, journal: Journal, runtime: Runtime) -> None:
        self._journal = journal
        self._clock, self._monotonic = runtime.clock, runtime.monotonic
        self._said, self._said_at = 0, -math.inf
        self.offset = 0.0
        self.last_stamp = 0

    def look(self) -> None:
        """Ask the journal, if the last answer is old."""
        if self._monotonic() >= self._said_at + LOOK:
            self._said = self._journal.now()
            self._said_at = self._monotonic()  # afterwards: rather late than early
            self.offset = (self._said - self._clock()) / 1e6

    def now(self) -> int:
        """Return the journal's time in microseconds since 1970; this machine's before a look."""
        if not self._said:
            return self._clock()
        return self._said + int(1e6 * (self._monotonic() - self._said_at))

    def ahead(self) -> float:
        """Return by how many seconds the last stamp is ahead of the clock: it has jumped back.

        Until the clock has come as far, journal time stands still, and no window ends.
        """
        return max(0.0, (self.last_stamp - self.now()) / 1e6)
