"""Brokers that assign partitions to workers within one process, like those of Kafka."""

from __future__ import annotations

import math
import secrets
import threading
import time
from collections.abc import Callable, Collection, Sequence
from contextlib import suppress

from belated.exceptions import JournalError
from belated.journals import Cells, Store
from belated.journals.coordination import Claim, CoordinationStore
from belated.service.learning.lease import DRIFT, PATIENCE
from belated.service.runtime import Runtime, ThreadRuntime, Worker


def claimed(mine: Collection[int], others: Sequence[Collection[int]], partitions: int) -> Claim:
    """Return the partitions of a worker: those it owns, and free ones up to its share.

    Partitions are never taken from a live worker; a worker with more than its share returns the
    surplus.

    Args:
        mine: the partitions that the worker owns.
        others: the partitions of each of the other workers.
        partitions: the number of partitions.

    >>> claimed((), [], 4)
    Claim(partitions=(0, 1, 2, 3), surplus=())
    >>> claimed((), [(0, 1, 2, 3)], 4)
    Claim(partitions=(), surplus=())
    >>> claimed((0, 1, 2, 3), [()], 4)
    Claim(partitions=(0, 1, 2, 3), surplus=(2, 3))
    >>> claimed((), [(0, 1)], 4)
    Claim(partitions=(2, 3), surplus=())
    """
    claimed_elsewhere = {partition for session in others for partition in session}
    share = -(-partitions // (len(others) + 1))
    owned = sorted(set(mine) - claimed_elsewhere)
    free = [
        number
        for number in range(partitions)
        if number not in claimed_elsewhere and number not in owned
    ]
    gained = free[: max(0, share - len(owned))]
    return Claim(tuple(sorted([*owned, *gained])), tuple(owned[share:]))


class Brokers:
    """Assign the partitions of one topic.

    Args:
        partitions: the number of partitions.
        clock: returns the brokers' time in microseconds since 1970.

    Attributes:
        workers: the end of the session and the partitions of each worker, by name.
    """

    def __init__(self, partitions: int, clock: Callable[[], int]) -> None:
        self._partitions = partitions
        self._clock = clock
        self.workers: dict[str, tuple[int, tuple[int, ...]]] = {}

    def claim(self, worker: str, seconds: float) -> Claim:
        """Join or renew the session for some seconds, and return the partitions of the worker."""
        now = self._clock()
        _, assigned = self.workers.pop(worker, (0, ()))
        self.workers = {name: state for name, state in self.workers.items() if state[0] > now}
        claim = claimed(
            assigned, [partitions for _, partitions in self.workers.values()], self._partitions
        )
        self.workers[worker] = now + round(seconds * 1e6), claim.partitions
        return claim

    def give_back(self, worker: str, partitions: Collection[int]) -> None:
        """Leave partitions to other workers."""
        if worker in self.workers:
            expiry, assigned = self.workers[worker]
            self.workers[worker] = expiry, tuple(n for n in assigned if n not in partitions)

    def leave(self, worker: str) -> None:
        """End the session of this worker now."""
        self.workers.pop(worker, None)


class Membership:
    """The membership of one worker: claims partitions, and renews the session in a thread.

    Args:
        brokers: assign the partitions.
        worker: the name of the worker.
        seconds: the session timeout.
        runtime: time and threads.
    """

    def __init__(self, brokers: Brokers, worker: str, seconds: float, runtime: Runtime) -> None:
        self._brokers = brokers
        self._name = worker
        self._seconds = seconds
        self._runtime = runtime
        self._clock = runtime.monotonic
        self._lock = threading.Lock()
        self._claim = Claim(())
        self._ends = self._heard = -math.inf
        self._worker: Worker | None = None

    def claim(self) -> Claim:
        """Return the partitions that the worker owns.

        Raises:
            JournalUnavailable: the brokers cannot be reached, and the session has ended.
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
        """Leave partitions to other workers, and query the claim again."""
        self._brokers.give_back(self._name, partitions)
        self.doubt(partitions)

    def doubt(self, partitions: Collection[int]) -> None:
        """Drop the cached claim: another worker owns the partition."""
        with self._lock:
            self._ends = -math.inf

    def close(self) -> None:
        """Leave all partitions to other workers."""
        if self._worker is not None:
            self._worker.stop()
        with suppress(JournalError):  # the session expires anyway
            self._brokers.leave(self._name)
        self.doubt(self._claim.partitions)

    def _renew(self) -> None:
        start = self._clock()
        self._claim = self._brokers.claim(self._name, self._seconds)
        self._ends = start + self._seconds * (1.0 - DRIFT)

    def _keep(self) -> float:
        """Renew the session in time; return the seconds until the next call."""
        with self._lock:
            now = self._clock()
            due = self._ends - self._seconds * 2 / 3
            if due <= now < self._heard + PATIENCE and self._ends > -math.inf:
                with suppress(JournalError):  # the claim is valid until the session ends
                    self._renew()
        return self._seconds / 3


class BrokeredStore(CoordinationStore):
    """A coordination store whose partitions these brokers assign.

    Args:
        store: stores leases, models and sums.
        brokers: assign the partitions.
        worker: the name of the worker.
        runtime: time and threads.
    """

    def __init__(
        self, store: CoordinationStore, brokers: Brokers, worker: str, runtime: Runtime
    ) -> None:
        super().__init__(store.cells, store._bandit)
        self._brokers, self._worker, self._runtime = brokers, worker, runtime

    def join_group(self, seconds: float) -> Membership:
        """Join as one of the workers."""
        return Membership(self._brokers, self._worker, seconds, self._runtime)


def assign_partitions(store: Store, mine: Collection[int], partitions: int) -> None:
    """Let brokers assign the partitions of a store, for several learners without Kafka.

    Args:
        store: the store of the learners.
        mine: the partitions of this process's learners; another worker owns the others.
        partitions: the number of partitions.
    """
    brokers = Brokers(partitions, lambda: time.monotonic_ns() // 1000)
    if unowned := [number for number in range(partitions) if number not in mine]:
        brokers.workers["another"] = 1 << 62, tuple(unowned)
    coordination_in = store.coordination_in

    def brokered(cells: Cells, bandit: str) -> BrokeredStore:
        inner = coordination_in(cells, bandit)
        return BrokeredStore(inner, brokers, secrets.token_hex(4), ThreadRuntime())

    store.coordination_in = brokered  # type: ignore[method-assign]
