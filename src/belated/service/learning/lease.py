"""The lead of a bandit: held by one learner at a time, and renewed while that one is busy too."""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import partial

from belated.exceptions import JournalError
from belated.journals import CoordinationStore
from belated.journals.sessions import renew_each
from belated.service.runtime import Runtime, Worker

#: Seconds for which the lead is held without being renewed: how long a dead leader is missed.
SECONDS = 10.0
#: Seconds after which a learner that has not said a word is taken for stuck: its lead then ends.
PATIENCE = 600.0
#: The share of the lease by which this machine's clock may be slower than the store's: a holder
#: stops before another can begin.
DRIFT = 0.01

#: Renews leases by the names of their bandits, each with its holder, for so many seconds; returns
#: the epochs of those that are still held: :meth:`StoreSession.renew_leases`.
Renew = Callable[[Mapping[str, str], float], Mapping[str, int]]


class Lease:
    """Acquires the lease, and keeps it.

    Args:
        coordination: of the bandit.
        bandit: its name.
        holder: the name of this learner.
        renewal: keeps it.
    """

    def __init__(
        self, coordination: CoordinationStore, bandit: str, holder: str, renewal: LeaseRenewal
    ) -> None:
        self._coordination = coordination
        self.bandit, self.holder = bandit, holder
        self._renewal = renewal
        self._seconds = renewal.seconds
        self._clock = renewal.clock
        self._lock = threading.Lock()
        self._epoch: int | None = None
        self._ends = self._heard = -math.inf

    def renew_or_acquire(self) -> int | None:
        """The epoch in which this learner leads; None while another one does.

        Raises:
            JournalUnavailable: the database cannot be reached, and the lease has ended.
        """
        self._heard = self._clock()
        with self._lock:
            if self._epoch is None or self._heard >= self._ends:
                self._epoch = None  # unless the answer says otherwise
                asked = self._clock()
                epoch = self._coordination.acquire_lease(self.holder, self._seconds)
                self._take(asked, epoch)
            epoch = self._epoch
        if epoch is not None:
            self._renewal.add(self)
        return epoch

    def is_due(self) -> bool:
        """Whether to renew it: it is held, not quite new, and its learner is not stuck."""
        now = self._clock()
        due = self._ends - self._seconds * 5 / 6
        return self._epoch is not None and due <= now < self._heard + PATIENCE

    def renewed(self, asked: float, epoch: int | None) -> None:
        """It was renewed, as asked for at this time; None: another learner leads."""
        with self._lock:
            # Not if it was acquired since: an answer that comes late is of another epoch.
            if self._epoch is not None and self._end_of(asked) > self._ends:
                self._take(asked, epoch)

    def close(self) -> None:
        """Leave the lead to others."""
        self._renewal.remove(self)
        if self._epoch is not None:
            with suppress(JournalError):  # then it ends by itself
                self._coordination.release_lease(self.holder)
            self._epoch = None

    def _take(self, asked: float, epoch: int | None) -> None:
        self._epoch, self._ends = epoch, self._end_of(asked)

    def _end_of(self, asked: float) -> float:
        return asked + self._seconds * (1.0 - DRIFT)


class LeaseRenewal:
    """Renews all leases of a process at once, in good time.

    A learner may be busy for longer than its lease lasts: it loads a snapshot, or folds what has
    gathered during an outage. So a worker renews the lease, as long as the learner asks for it now
    and then.

    Args:
        renew: asks the store.
        seconds: for which a lease is held without being renewed.
        runtime: time and threads.
    """

    def __init__(self, renew: Renew, seconds: float, runtime: Runtime) -> None:
        self._renew = renew
        self.seconds = seconds
        self._runtime = runtime
        self.clock = runtime.monotonic
        #: Held while the store is asked: what was removed is not renewed afterwards.
        self._lock = threading.Lock()
        self._leases: dict[Lease, None] = {}
        self._worker: Worker | None = None

    def add(self, lease: Lease) -> None:
        """Keep a lease; any number of times."""
        if lease in self._leases:
            return
        with self._lock:
            self._leases[lease] = None
        if self._worker is None:
            self._worker = self._runtime.start_worker("belated lease", self._keep)

    def remove(self, lease: Lease) -> None:
        """Keep it no longer."""
        with self._lock:
            self._leases.pop(lease, None)
        if not self._leases:
            self.stop()

    def stop(self) -> None:
        """Keep none."""
        if self._worker is not None:
            self._worker.stop()
            self._worker = None

    def _keep(self) -> float:
        """Renew; returns when to do so next."""
        with self._lock:
            due = [lease for lease in self._leases if lease.is_due()]
            if due:
                asked = self.clock()
                with suppress(JournalError):  # they are still held until they end
                    epochs = self._renew({one.bandit: one.holder for one in due}, self.seconds)
                    for lease in due:
                        lease.renewed(asked, epochs.get(lease.bandit))
        return self.seconds / 3


def alone(coordination: CoordinationStore) -> Renew:
    """Return what renews the lease of one bandit, whose learner has a connection of its own."""
    return partial(renew_each, lambda bandit: coordination)
