"""The lead of a bandit: held by one learner at a time, and renewed while that one is busy too."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from contextlib import suppress

from belated.exceptions import JournalError
from belated.journals import CoordinationStore

#: Seconds for which the lead is held without being renewed: how long a dead leader is missed.
SECONDS = 10.0
#: Seconds after which a learner that has not said a word is taken for stuck: its lead then ends.
PATIENCE = 600.0


class Lease:
    """Asks for the lead, and keeps it.

    A learner may be busy for longer than the lease lasts: it loads a snapshot, or folds what has
    gathered during an outage. So a thread renews the lease, for as long as :meth:`ask` is heard of
    now and then.

    Args:
        leaders: of the bandit.
        holder: the name of this learner.
        seconds: for which the lead is held without being renewed.
        clock: gives seconds that only grow.
    """

    def __init__(
        self,
        leaders: CoordinationStore,
        holder: str,
        seconds: float = SECONDS,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._leaders = leaders
        self._holder = holder
        self._seconds = seconds
        self._clock = clock
        self._lock = threading.Lock()
        self._epoch: int | None = None
        self._ends = self._heard = -1e9
        self._stopped = threading.Event()
        self._thread: threading.Thread | None = None

    def ask(self) -> int | None:
        """The epoch in which this learner leads; None while another one does.

        Raises:
            JournalUnavailable: the database cannot be reached, and the lease has ended.
        """
        self._heard = self._clock()
        with self._lock:
            if self._epoch is None or self._heard >= self._ends:
                self._renew()
            epoch = self._epoch
        if epoch is not None and self._thread is None:
            self._thread = threading.Thread(target=self._keep, name="belated lease", daemon=True)
            self._thread.start()
        return epoch

    def close(self) -> None:
        """Leave the lead to others."""
        self._stopped.set()
        if self._thread is not None:
            self._thread.join()
        if self._epoch is not None:
            with suppress(JournalError):  # then it ends by itself
                self._leaders.release_lease(self._holder)
            self._epoch = None

    def _renew(self) -> None:
        asked = self._clock()
        self._epoch = None  # unless the answer says otherwise
        self._epoch = self._leaders.acquire_lease(self._holder, self._seconds)
        self._ends = asked + self._seconds

    def _keep(self) -> None:
        while not self._stopped.wait(self._seconds / 3):
            with self._lock:
                if self._epoch is not None and self._clock() < self._heard + PATIENCE:
                    before = self._epoch
                    try:
                        self._renew()
                    except JournalError:  # it is still held until it ends
                        if self._clock() < self._ends:
                            self._epoch = before
