"""The lease, the published model and the workers of a bandit, in the memory of this process."""

from __future__ import annotations

import threading
from collections.abc import Collection, Sequence

from belated.exceptions import JournalClosed, OwnerFenced
from belated.journals.arrivals import Clock
from belated.journals.leases import granted_epoch
from belated.journals.shelf import Leader
from belated.journals.workers import Claim, Known, SentSums, claimed


class Lead:
    """Who leads a bandit, its model and its workers: what the objects opened on it share.

    Args:
        epochs: by partition, that of its owner; the journal changes it.
    """

    def __init__(self, epochs: list[int]) -> None:
        self.epochs = epochs
        #: By name, when the session of a worker ends, and its partitions.
        self.workers: dict[str, tuple[int, tuple[int, ...]]] = {}
        self.sums: dict[int, SentSums] = {}
        self.holder, self.epoch, self.until = "", 0, 0
        self.number, self.data = 0, b""
        self.lock = threading.Lock()

    def keep_sums(self, sums: SentSums) -> None:
        """In place of the last ones, unless these are of a later epoch or position."""
        last = self.sums.get(sums.partition)
        if last is None or sums.order >= last.order:
            self.sums[sums.partition] = sums


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

    def claim(self, worker: str, seconds: float) -> Claim:
        """Be one of the workers; see :meth:`CoordinationStore.claim`."""
        lead = self._lead
        with lead.lock:
            now = self._clock()
            _, mine = lead.workers.pop(worker, (0, ()))
            lead.workers = {name: one for name, one in lead.workers.items() if one[0] > now}
            others = [held for _, held in lead.workers.values()]
            claim = claimed(mine, others, len(lead.epochs))
            lead.workers[worker] = now + round(seconds * 1e6), claim.partitions
            return claim

    def give_back(self, worker: str, partitions: Collection[int]) -> None:
        """Leave partitions to other workers."""
        lead = self._lead
        with lead.lock:
            if worker in lead.workers:
                until, mine = lead.workers[worker]
                lead.workers[worker] = until, tuple(one for one in mine if one not in partitions)

    def leave(self, worker: str) -> None:
        """End the session of this worker now."""
        lead = self._lead
        with lead.lock:
            lead.workers.pop(worker, None)

    def send(self, sums: Sequence[SentSums]) -> list[int]:
        """Store sums; see :meth:`CoordinationStore.send`."""
        lead = self._lead
        with lead.lock:
            held = [one for one in sums if one.epoch == lead.epochs[one.partition]]
            for one in held:
                lead.keep_sums(one)
        return [one.partition for one in sums if one not in held]

    def sent(self, known: Known) -> list[SentSums]:
        """Return the last sums of each partition, but for those that are known."""
        lead = self._lead
        with lead.lock:
            return [one for p, one in sorted(lead.sums.items()) if known.get(p) != one.order]

    def close(self) -> None:
        """Let go of it; any later call raises :class:`JournalClosed`."""
        self._shared = None

    @property
    def _lead(self) -> Lead:
        if self._shared is None:
            raise JournalClosed("this coordination store was closed: open it again")
        return self._shared
