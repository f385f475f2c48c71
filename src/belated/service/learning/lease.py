"""The lease of a bandit: one learner at a time holds it, and it is renewed in the background."""

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

#: Seconds for which the lead is held without being renewed; then a dead leader is replaced.
SECONDS = 10.0
#: Seconds without a call after which a learner counts as stuck, and its lease is released.
PATIENCE = 600.0
#: The share of the lease by which this machine's clock may be slower than the store's: a holder
#: stops before another can begin.
DRIFT = 0.01


def new_holder() -> str:
    """Return a unique name under which a process holds leases."""
    return f"{socket.gethostname()}/{os.getpid()}/{secrets.token_hex(4)}"


class Lease:
    """The lease of one learner.

    Args:
        coordination: of the bandit.
        bandit: its name.
        holder: the name of this learner.
        renewal: renews the lease.

    Attributes:
        seconds: for which the lease is held without being renewed.
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
        self._ends = self._heard = -math.inf

    def renew_or_acquire(self) -> int | None:
        """Return the epoch in which this learner leads; None while another one does.

        Raises:
            JournalUnavailable: the database cannot be reached, and the lease has ended.
        """
        self._heard = self._clock()
        with self._lock:
            if self._epoch is None or self._heard >= self._ends:
                self._epoch = None  # unless the answer says otherwise
                asked = self._clock()
                self._epoch = self._coordination.acquire_lease(self.holder, self.seconds)
                self._ends = self._end_of(asked)
            epoch = self._epoch
        if epoch is not None:
            self._renewal.add(self)
        return epoch

    def is_due(self) -> bool:
        """Whether to renew it: it is held, not quite new, and its learner is not stuck."""
        now = self._clock()
        due = self._ends - self.seconds * 5 / 6
        return self._epoch is not None and due <= now < self._heard + PATIENCE

    @property
    def held(self) -> Held:
        """What is renewed."""
        return Held(self.holder, self._epoch or 0)

    def renewed(self, asked: float, epoch: int, is_held: bool) -> None:
        """Record the answer to a renewal that was asked for at this time."""
        with self._lock:
            if self._epoch == epoch:  # not if it was acquired since
                self._epoch = epoch if is_held else None
                self._ends = max(self._ends, self._end_of(asked))

    def is_stuck(self) -> bool:
        """Whether its learner has not called for too long."""
        return self._epoch is not None and self._clock() >= self._heard + PATIENCE

    def close(self) -> None:
        """Give up the lead."""
        self.release(is_last=self._renewal.remove(self))

    def release(self, *, is_last: bool = False) -> None:
        """End the lease; with the last one of its holder the heartbeat ends, too."""
        if self._epoch is not None:
            with suppress(JournalError):  # then it ends by itself
                self._coordination.release_lease(self.holder, is_last=is_last)
            self._epoch = None

    def _end_of(self, asked: float) -> float:
        return asked + self.seconds * (1.0 - DRIFT)


@dataclass(eq=False)
class LeaseRenewal:
    """Renews all leases of a process at once, before they end.

    A learner may be busy for longer than its lease lasts: it loads a snapshot, or folds the backlog
    of an outage. So a worker thread renews the lease, as long as the learner calls now and then.

    Args:
        cells: of the store.
        seconds: for which a lease is held without being renewed.
        runtime: time and threads.
    """

    cells: Cells
    seconds: float
    runtime: Runtime

    def __post_init__(self) -> None:
        self.clock = self.runtime.monotonic
        #: Held while the store is asked: what was removed is not renewed afterwards.
        self._lock = threading.Lock()
        self._leases: dict[Lease, None] = {}
        self._worker: Worker | None = None

    def add(self, lease: Lease) -> None:
        """Renew this lease from now on; may be called repeatedly."""
        if lease in self._leases:
            return
        with self._lock:
            self._leases[lease] = None
        if self._worker is None:
            self._worker = self.runtime.start_worker("belated lease", self._keep)

    def remove(self, lease: Lease) -> bool:
        """Stop renewing it; returns whether it was the last one of its holder."""
        with self._lock:
            self._leases.pop(lease, None)
            is_last = all(lease.holder != other.holder for other in self._leases)
        if not self._leases:
            self.stop()
        return is_last

    def stop(self) -> None:
        """Stop renewing."""
        if self._worker is not None:
            self._worker.stop()
            self._worker = None

    def _keep(self) -> float:
        """Renew; returns when to do so next."""
        with self._lock:
            for lease in self._leases:
                if lease.is_stuck():  # the heartbeat is that of others, too
                    lease.release()
            due = {one.bandit: (one, one.held) for one in self._leases if one.is_due()}
            if due:
                asked = self.clock()
                with suppress(JournalError):  # they are still held until they end
                    held = {bandit: one for bandit, (_, one) in due.items()}
                    kept = renew_leases(self.cells, held, self.seconds)
                    for bandit, (lease, (_, epoch)) in due.items():
                        lease.renewed(asked, epoch, bandit in kept)
        return self.seconds / 3
