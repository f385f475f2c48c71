"""The lease and the published model of a bandit, in the memory of this process."""

from __future__ import annotations

import threading

from belated.exceptions import JournalClosed, OwnerFenced
from belated.journals.arrivals import Clock
from belated.journals.leases import granted_epoch
from belated.journals.shelf import Leader


class Lead:
    """Who leads a bandit, and its model: what the objects opened on it share."""

    def __init__(self) -> None:
        self.holder, self.epoch, self.until = "", 0, 0
        self.number, self.data = 0, b""
        self.lock = threading.Lock()


class MemoryCoordinationStore:
    """Where learners agree on who leads, and deciders find the model.

    Opened by :meth:`MemoryStore.coordination`.

    Args:
        lead: of the bandit.
        clock: gives the time in microseconds since 1970.
    """

    def __init__(self, lead: Lead, clock: Clock) -> None:
        self._shared: Lead | None = lead
        self._clock = clock

    def acquire_lease(self, holder: str, seconds: float) -> int | None:
        """Become the leader, or stay it; see :meth:`CoordinationStore.acquire_lease`."""
        lead = self._lead
        with lead.lock:
            now = self._clock()
            epoch = granted_epoch(holder, lead.holder, lead.epoch, lead.until, now)
            if epoch is not None:
                lead.holder, lead.epoch, lead.until = holder, epoch, now + round(seconds * 1e6)
            return epoch

    def release_lease(self, holder: str) -> None:
        """End the lease of this holder now, so that another need not wait."""
        lead = self._lead
        with lead.lock:
            if lead.holder == holder:
                lead.until = 0

    def leader(self) -> Leader | None:
        """Return who leads now, None if no one does."""
        lead = self._lead
        with lead.lock:
            left = lead.until - self._clock()
            return Leader(lead.holder, lead.epoch, left / 1e6) if left > 0 else None

    def publish(self, data: bytes, epoch: int) -> int:
        """Store a model in place of the last; see :meth:`CoordinationStore.publish`."""
        lead = self._lead
        with lead.lock:
            if epoch != lead.epoch or not lead.epoch:
                raise OwnerFenced(None)
            lead.number, lead.data = lead.number + 1, bytes(data)
            return lead.number

    def published(self, after: int = 0) -> tuple[int, bytes] | None:
        """Return the last model and its number, None if that number is ``after``."""
        lead = self._lead
        with lead.lock:
            return (lead.number, lead.data) if lead.number not in (0, after) else None

    def close(self) -> None:
        """Let go of it; any later call raises :class:`JournalClosed`."""
        self._shared = None

    @property
    def _lead(self) -> Lead:
        if self._shared is None:
            raise JournalClosed("this coordination store was closed: open it again")
        return self._shared
