"""Leases on bandits, which one learner at a time holds and which are renewed in the background."""

from __future__ import annotations

import math
import os
import secrets
import socket
import threading
from contextlib import suppress
from dataclasses import dataclass

from belated.exceptions import JournalError
from belated.journals.cells import Cells
from belated.journals.coordination import CoordinationStore, Held, renew_leases
from belated.service.runtime import Runtime, Worker

#: Default duration of a lease, after which a dead leader is replaced, in seconds.
SECONDS = 10.0
#: Seconds without a call after which a learner is considered stuck and its lease is released.
PATIENCE = 600.0
#: Tolerated clock drift relative to the store, as a fraction of the lease. It ensures that a holder
#: stops before another holder can start.
DRIFT = 0.01


def new_holder() -> str:
    """Return a unique name under which a process holds its leases."""
    return f"{socket.gethostname()}/{os.getpid()}/{secrets.token_hex(4)}"


class Lease:
    """A learner's lease on a bandit.

    Args:
        coordination: Store of the bandit's lease.
        bandit: Name of the bandit.
        holder: Name under which the learner holds the lease.
        renewal: Renews the lease.

    Attributes:
        seconds: Duration of the lease in seconds.
    """

    def __init__(
        self, coordination: CoordinationStore, bandit: str, holder: str, renewal: LeaseRenewal
    ) -> None:
        self._coordination = coordination
        self.bandit, self.holder = bandit, holder
        self._renewal = renewal
        self.seconds = renewal.seconds
        self._clock = renewal.clock
        self._lock = threading.Lock()
        self._epoch: int | None = None
        self._ends = self._called_at = -math.inf

    def renew_or_acquire(self) -> int | None:
        """Return the epoch in which this learner leads; None while another learner leads.

        Raises:
            JournalUnavailable: the store cannot be reached, and the lease has expired.
        """
        self._called_at = self._clock()
        with self._lock:
            if self._epoch is None or self._called_at >= self._ends:
                self._epoch = None  # also if the next call raises
                requested_at = self._clock()
                self._epoch = self._coordination.acquire_lease(self.holder, self.seconds)
                self._ends = self._end_of(requested_at)
            epoch = self._epoch
        if epoch is not None:
            self._renewal.add(self)
        return epoch

    def doubt(self) -> None:
        """Require confirmation by the store, because another learner may hold the lease by now."""
        with self._lock:
            self._epoch = None

    def is_due(self) -> bool:
        """Return whether the lease is held and due for renewal, and its learner is not stuck."""
        now = self._clock()
        due = self._ends - self.seconds * 5 / 6
        return self._epoch is not None and due <= now < self._called_at + PATIENCE

    @property
    def held(self) -> Held:
        """The holder and epoch of the lease, for its renewal."""
        return Held(self.holder, self._epoch or 0)

    def renewed(self, requested_at: float, epoch: int, is_held: bool) -> None:
        """Record the result of a renewal."""
        with self._lock:
            if self._epoch == epoch:  # not acquired again in the meantime
                self._epoch = epoch if is_held else None
                self._ends = max(self._ends, self._end_of(requested_at))

    def is_stuck(self) -> bool:
        """Return whether the learner has not renewed or acquired the lease for too long."""
        return self._epoch is not None and self._clock() >= self._called_at + PATIENCE

    def close(self) -> None:
        """Stop renewing the lease and release it."""
        self.release(is_last=self._renewal.remove(self))

    def release(self, *, is_last: bool = False) -> None:
        """Release the lease. If it is the last lease of its holder, also delete the heartbeat."""
        if self._epoch is not None:
            with suppress(JournalError):  # if this fails, the lease expires
                self._coordination.release_lease(self.holder, is_last=is_last)
            self._epoch = None

    def _end_of(self, requested_at: float) -> float:
        return requested_at + self.seconds * (1.0 - DRIFT)


@dataclass(eq=False)
class LeaseRenewal:
    """Renews all leases of a process together, before they expire.

    A learner may be busy for longer than the duration of its lease, for example while it loads a
    snapshot or folds a backlog. Therefore, a worker thread renews the lease, unless the learner is
    stuck.

    Args:
        cells: Cells that contain the leases.
        seconds: Duration of the leases in seconds.
        runtime: Clocks and threads.
    """

    cells: Cells
    seconds: float
    runtime: Runtime

    def __post_init__(self) -> None:
        self.clock = self.runtime.monotonic
        #: Held during a renewal, so that leases are not renewed after their removal.
        self._lock = threading.Lock()
        self._leases: dict[Lease, None] = {}
        self._worker: Worker | None = None

    def add(self, lease: Lease) -> None:
        """Start renewing a lease. Does nothing if the lease is already being renewed."""
        if lease in self._leases:
            return
        with self._lock:
            self._leases[lease] = None
        if self._worker is None:
            self._worker = self.runtime.start_worker("belated lease", self._keep)

    def remove(self, lease: Lease) -> bool:
        """Stop renewing a lease; return whether it was the last lease of its holder."""
        with self._lock:
            self._leases.pop(lease, None)
            is_last = all(lease.holder != other.holder for other in self._leases)
        if not self._leases:
            self.stop()
        return is_last

    def stop(self) -> None:
        """Stop the worker."""
        if self._worker is not None:
            self._worker.stop()
            self._worker = None

    def _keep(self) -> float:
        """Renew all leases; return the seconds until the next renewal."""
        with self._lock:
            for lease in self._leases:
                if lease.is_stuck():  # keep the heartbeat, which other leases may share
                    lease.release()
            due = {lease.bandit: (lease, lease.held) for lease in self._leases if lease.is_due()}
            if due:
                requested_at = self.clock()
                with suppress(JournalError):  # the leases remain valid until they expire
                    entries = {bandit: entry for bandit, (_, entry) in due.items()}
                    renewed = renew_leases(self.cells, entries, self.seconds)
                    for bandit, (lease, entry) in due.items():
                        lease.renewed(requested_at, entry.epoch, bandit in renewed)
        return self.seconds / 3
