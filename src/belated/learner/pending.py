"""The pending decisions of a fold."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager
from datetime import datetime

from belated.learner.follower import Follower
from belated.times import as_datetime


class Pending:
    """The decisions whose rewards are out: their count, the oldest, and each of them.

    >>> from threading import RLock
    >>> Pending(Follower.__new__(Follower), 0, RLock()).count
    0
    """

    def __init__(
        self, follower: Follower, count: int, lock: AbstractContextManager[object]
    ) -> None:
        self._follower = follower
        self._lock = lock
        #: G_t.
        self.count = count

    def __len__(self) -> int:
        return self.count

    @property
    def oldest(self) -> datetime | None:
        """When the journal took the oldest; None if nothing is pending."""
        oldest = min((recorded for _, recorded in self._all()), default=None)
        return None if oldest is None else as_datetime(oldest)

    def __iter__(self) -> Iterator[tuple[str, datetime]]:
        """The key of each, as 32 hex digits (an id made by the bandit is its own key), and when."""
        for key, recorded in self._all():
            yield key.hex(), as_datetime(recorded)

    def _all(self) -> list[tuple[bytes, int]]:
        with self._lock, self._follower:
            ledgers = self._follower.fold.ledgers.values()
            return [one for ledger in ledgers for one in ledger.pending()]
