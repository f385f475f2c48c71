"""Staying in step with the journal, saving and closing; and what a fork changes."""

from __future__ import annotations

import os
import threading
import weakref
from types import TracebackType
from typing import Self

import numpy as np

from belated.exceptions import JournalError, ReadOnly
from belated.learner import FoldView
from belated.learner.follower import warn_unsaved


class Lifecycle(FoldView):
    """What a :class:`~belated.Bandit` does with its journal as a whole."""

    _rng: np.random.Generator

    def settle(self) -> int:
        """Settle all that is due by now; returns how many decisions that were."""
        with self._lock, self._follower:
            return self._settle()

    def _settle(self) -> int:
        self._check_open()
        self._follower.catch_up()
        before = self._fold.counts
        due = [self._follower.due(p) for p in range(self.journal.partitions)]
        if any(due):
            self._follower.append([event for events in due for event in events])
        after = self._fold.counts
        return sum(before[state] - after[state] for state in ("dormant", "pending"))

    def sync(self) -> int:
        """Fold what others wrote, and settle what is due; returns how many records that were."""
        with self._lock, self._follower:
            before = self._fold.version
            self._settle()
            return self._fold.version - before

    def save(self) -> None:
        """Store a snapshot, so that the next opening is quick."""
        with self._lock, self._follower:
            self._check_open()
            self._follower.save()

    def close(self) -> None:
        """Save a snapshot and close the journal."""
        with self._lock:
            if not self._read_only:
                try:
                    with self._follower:
                        self._follower.save()
                except JournalError as error:
                    warn_unsaved(error)
                self._read_only = True
            if self._fold.until is None:  # a view of the past shares the journal
                self.journal.close()  # again, if it was interrupted

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def _check_open(self) -> None:
        if self._read_only:
            raise ReadOnly("this bandit is closed, or a view of the past: it takes no events")

    def _survive_forks(self) -> None:
        """From now on a child of this process draws its own numbers."""
        _open_bandits.add(self)


_open_bandits: weakref.WeakSet[Lifecycle] = weakref.WeakSet()


def _after_fork() -> None:
    """In the child: draw other numbers than the parent, and wait for none of its threads."""
    for bandit in _open_bandits:
        bandit._rng = np.random.default_rng()
        bandit._lock = threading.RLock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
