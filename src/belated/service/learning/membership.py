"""The partitions of a worker: claimed, and held while it is busy too."""

from __future__ import annotations

import math
import threading
from collections.abc import Collection
from contextlib import suppress

from belated.exceptions import JournalError
from belated.journals import Assignment, Claim, CoordinationStore, GroupStore
from belated.service.learning.lease import DRIFT, PATIENCE
from belated.service.runtime import Runtime, Worker


def join(
    coordination: CoordinationStore, worker: str, seconds: float, runtime: Runtime
) -> Assignment:
    """Make a worker one of those of a bandit: by the store's own groups, or by a session in it.

    Args:
        coordination: of the bandit.
        worker: its name.
        seconds: for which it holds partitions without a sign of life.
        runtime: time and threads.
    """
    if isinstance(coordination, GroupStore):
        return coordination.join_group(seconds)
    return Membership(coordination, worker, seconds, runtime)


class Membership:
    """Claims partitions by a session in the store, and renews it beside all else.

    Args:
        coordination: of the bandit.
        worker: its name.
        seconds: for which the session lasts without being renewed.
        runtime: time and threads.
    """

    def __init__(
        self, coordination: CoordinationStore, worker: str, seconds: float, runtime: Runtime
    ) -> None:
        self._coordination = coordination
        self._name = worker
        self._seconds = seconds
        self._runtime = runtime
        self._clock = runtime.monotonic
        self._lock = threading.Lock()
        self._claim = Claim(())
        self._ends = self._heard = -math.inf
        self._worker: Worker | None = None

    def claim(self) -> Claim:
        """Return what the worker holds now.

        Raises:
            JournalUnavailable: the store cannot be reached, and the session has ended.
        """
        with self._lock:
            self._heard = self._clock()
            if self._heard >= self._ends:
                self._renew()
            claim = self._claim
        if self._worker is None:
            self._worker = self._runtime.start_worker("belated session", self._keep)
        return claim

    def give_back(self, partitions: Collection[int]) -> None:
        """Leave partitions to others; what is held is asked for anew."""
        self._coordination.give_back(self._name, partitions)
        self.doubt(partitions)

    def doubt(self, partitions: Collection[int]) -> None:
        """Another seems to hold what this worker believed to hold: ask before anything else."""
        with self._lock:
            self._ends = -math.inf

    def close(self) -> None:
        """Leave all partitions to others."""
        if self._worker is not None:
            self._worker.stop()
        with suppress(JournalError):  # then the session ends by itself
            self._coordination.leave(self._name)
        self.doubt(self._claim.partitions)

    def _renew(self) -> None:
        asked = self._clock()
        self._claim = self._coordination.claim(self._name, self._seconds)
        self._ends = asked + self._seconds * (1.0 - DRIFT)

    def _keep(self) -> float:
        """Renew in good time; returns when to do so next."""
        with self._lock:
            now = self._clock()
            due = self._ends - self._seconds * 2 / 3
            if due <= now < self._heard + PATIENCE and self._ends > -math.inf:
                with suppress(JournalError):  # it is still held until it ends
                    self._renew()
        return self._seconds / 3
