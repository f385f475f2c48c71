"""The lead of a bandit: held by one learner at a time, and renewed while that one is busy too."""

from __future__ import annotations

import math
import threading
from contextlib import suppress

from belated.exceptions import JournalError
from belated.journals import CoordinationStore
from belated.service.runtime import Runtime, Worker

#: Seconds for which the lead is held without being renewed: how long a dead leader is missed.
SECONDS = 10.0
#: Seconds after which a learner that has not said a word is taken for stuck: its lead then ends.
PATIENCE = 600.0
#: The share of the lease by which this machine's clock may be slower than the store's: a holder
#: stops before another can begin.
DRIFT = 0.01


class Lease:
    """Acquires the lease, and keeps it.

    A learner may be busy for longer than the lease lasts: it loads a snapshot, or folds what has
    gathered during an outage. So a worker renews the lease, as long as the learner asks for it now
    and then.

    Args:
        coordination: of the bandit.
        holder: the name of this learner.
        seconds: for which the lease is held without being renewed.
        runtime: time and threads.
    """

    def __init__(
        self, coordination: CoordinationStore, holder: str, seconds: float, runtime: Runtime
    ) -> None:
        self._coordination = coordination
        self._holder = holder
        self._seconds = seconds
        self._runtime = runtime
        self._clock = runtime.monotonic
        self._lock = threading.Lock()
        self._epoch: int | None = None
        self._ends = self._heard = -math.inf
        self._worker: Worker | None = None

    def renew_or_acquire(self) -> int | None:
        """The epoch in which this learner leads; None while another one does.

        Raises:
            JournalUnavailable: the database cannot be reached, and the lease has ended.
        """
        self._heard = self._clock()
        with self._lock:
            if self._epoch is None or self._heard >= self._ends:
                self._renew()
            epoch = self._epoch
        if epoch is not None and self._worker is None:
            self._worker = self._runtime.start_worker("belated lease", self._keep)
        return epoch

    def close(self) -> None:
        """Leave the lead to others."""
        if self._worker is not None:
            self._worker.stop()
        if self._epoch is not None:
            with suppress(JournalError):  # then it ends by itself
                self._coordination.release_lease(self._holder)
            self._epoch = None

    def _renew(self) -> None:
        asked = self._clock()
        self._epoch = None  # unless the answer says otherwise
        self._epoch = self._coordination.acquire_lease(self._holder, self._seconds)
        self._ends = asked + self._seconds * (1.0 - DRIFT)

    def _keep(self) -> float:
        """Renew in good time; returns when to do so next."""
        with self._lock:
            now = self._clock()
            due = self._ends - self._seconds * 2 / 3
            if self._epoch is not None and due <= now < self._heard + PATIENCE:
                before = self._epoch
                try:
                    self._renew()
                except JournalError:  # it is still held until it ends
                    if self._clock() < self._ends:
                        self._epoch = before
        return self._seconds / 3
