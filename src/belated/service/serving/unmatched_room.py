"""How many events for unknown decisions are accepted."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from belated.exceptions import RateLimited

#: Events for unknown decisions that may wait at the learner: in all, and of one reporter.
MAX_UNMATCHED, MAX_OF_REPORTER = 100_000, 25_000
#: Seconds after which a refused event may be sent again.
RETRY_SECONDS = 60.0


class UnmatchedRoom:
    """Counts what waits at the learner, and what was accepted here since the learner said so.

    An event that comes before its decision waits at the learner, in memory. To look up the decision
    of every event would be expensive, so each may be for an unknown one as long as there is ample
    room; only then are they looked up.

    >>> room = UnmatchedRoom()
    >>> room.is_ample("shop", 1), room.is_ample("shop", MAX_OF_REPORTER)
    (True, False)
    """

    def __init__(self) -> None:
        self._waiting: Mapping[str, int] = {}
        # Of the last model, and of the one before it, which may not have read them all.
        self._recent: Counter[str] = Counter()
        self._earlier: Counter[str] = Counter()

    def update(self, waiting: Mapping[str, int]) -> None:
        """Take over what a new model says: the number of unknown ids by reporter."""
        self._waiting = waiting
        self._earlier, self._recent = self._recent, Counter()

    def add(self, reporter: str, count: int) -> None:
        """Count events that were accepted and may be for unknown decisions."""
        self._recent[reporter] += count

    def is_ample(self, reporter: str, count: int) -> bool:
        """Whether so many more events can be accepted without being looked up."""
        whole, own = self._used(reporter)
        return 2 * (whole + count) <= MAX_UNMATCHED and 2 * (own + count) <= MAX_OF_REPORTER

    def check(self, reporter: str, unknown: list[str]) -> None:
        """Refuse events for unknown decisions if there is no room for them.

        Raises:
            RateLimited: too many wait already.
        """
        whole, own = self._used(reporter)
        if own + len(unknown) > MAX_OF_REPORTER:
            waiting = f"{own:,} events of this key for unknown decisions wait already"
            limit = MAX_OF_REPORTER
        elif whole + len(unknown) > MAX_UNMATCHED:
            waiting = f"{whole:,} events for unknown decisions wait already"
            limit = MAX_UNMATCHED
        else:
            return
        message = f"no decision has the id {unknown[0]!r}, and {waiting} (limit {limit:,})"
        remedy = "send the ids of decisions, after their decisions"
        raise RateLimited(f"{message}: {remedy}", RETRY_SECONDS)

    def _used(self, reporter: str) -> tuple[int, int]:
        counts = (self._waiting, self._recent, self._earlier)
        whole = sum(sum(one.values()) for one in counts)
        return whole, sum(one.get(reporter, 0) for one in counts)
