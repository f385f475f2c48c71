"""The pending decisions of a fold."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager

from belated.learner.fold import Fold


class Pending:
    """The decisions whose rewards are out: their count, the oldest, and each of them.

    >>> from threading import RLock
    >>> Pending(Fold.__new__(Fold), 0, RLock()).count
    0
    """

    def __init__(self, fold: Fold, count: int, lock: AbstractContextManager[object]) -> None:
        self._fold = fold
        self._lock = lock
        #: G_t.
        self.count = count

    def __len__(self) -> int:
        return self.count

    @property
    def oldest(self) -> int | None:
        """When the journal took the oldest, in microseconds since 1970."""
        return min((recorded for _, recorded in self._all()), default=None)

    def __iter__(self) -> Iterator[tuple[str, int]]:
        """The key of each, as 32 hex digits (an id made by the bandit is its own key), and when."""
        for key, recorded in self._all():
            yield key.hex(), recorded

    def _all(self) -> list[tuple[bytes, int]]:
        with self._lock:
            return [one for ledger in self._fold.ledgers for one in ledger.pending()]
