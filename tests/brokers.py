"""Brokers that share partitions among workers, as those of Kafka do, in this process."""

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
    """Return what a worker holds from now on: what it has, and what is free, up to its share.

    Nothing is taken from a worker that lives: one that has more than its share gives it back.

    Args:
        mine: the partitions that the worker has.
        others: those that each of the other workers has.
        partitions: how many there are.

    >>> claimed((), [], 4)
    Claim(partitions=(0, 1, 2, 3), surplus=())
    >>> claimed((), [(0, 1, 2, 3)], 4)
    Claim(partitions=(), surplus=())
    >>> claimed((0, 1, 2, 3), [()], 4)
    Claim(partitions=(0, 1, 2, 3), surplus=(2, 3))
    >>> claimed((), [(0, 1)], 4)
    Claim(partitions=(2, 3), surplus=())
    """
    taken = {partition for other in others for partition in other}
    share = -(-partitions // (len(others) + 1))
    held = sorted(set(mine) - taken)
    free = [one for one in range(partitions) if one not in taken and one not in held]
    more = free[: max(0, share - len(held))]
    return Claim(tuple(sorted([*held, *more])), tuple(held[share:]))


class Brokers:
    """Assign the partitions of one topic.

    Args:
        partitions: of the topic.
        clock: of the brokers, in microseconds since 1970.

    Attributes:
        workers: by name, when the session of a worker ends, and its partitions.
    """

    def __init__(self, partitions: int, clock: Callable[[], int]) -> None:
        self._partitions = partitions
        self._clock = clock
        self.workers: dict[str, tuple[int, tuple[int, ...]]] = {}

    def claim(self, worker: str, seconds: float) -> Claim:
        """Be one of the workers, for so many seconds."""
        now = self._clock()
        _, mine = self.workers.pop(worker, (0, ()))
        self.workers = {name: one for name, one in self.workers.items() if one[0] > now}
        claim = claimed(mine, [held for _, held in self.workers.values()], self._partitions)
        self.workers[worker] = now + round(seconds * 1e6), claim.partitions
        return claim

    def give_back(self, worker: str, partitions: Collection[int]) -> None:
        """Leave partitions to other workers."""
        if worker in self.workers:
            until, mine = self.workers[worker]
            self.workers[worker] = until, tuple(one for one in mine if one not in partitions)

    def leave(self, worker: str) -> None:
        """End the session of this worker now."""
        self.workers.pop(worker, None)


class Membership:
    """The place of one worker: it claims partitions, and renews its session beside all else.

    Args:
        brokers: that assign partitions.
        worker: its name.
        seconds: for which the session lasts without being renewed.
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
        """Return what the worker holds now.

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
        """Leave partitions to others; what is held is asked for anew."""
        self._brokers.give_back(self._name, partitions)
        self.doubt(partitions)

    def doubt(self, partitions: Collection[int]) -> None:
        """Drop what is known: another seems to hold what this worker believed to hold."""
        with self._lock:
            self._ends = -math.inf

    def close(self) -> None:
        """Leave all partitions to others."""
        if self._worker is not None:
            self._worker.stop()
        with suppress(JournalError):  # then the session ends by itself
            self._brokers.leave(self._name)
        self.doubt(self._claim.partitions)

    def _renew(self) -> None:
        asked = self._clock()
        self._claim = self._brokers.claim(self._name, self._seconds)
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


class BrokeredStore(CoordinationStore):
    """A coordination store whose partitions such brokers assign.

    Args:
        store: of leases, models and sums.
        brokers: that assign partitions.
        worker: the name of who uses it.
        runtime: time and threads.
    """

    def __init__(
        self, store: CoordinationStore, brokers: Brokers, worker: str, runtime: Runtime
    ) -> None:
        super().__init__(store.cells, store._bandit)
        self._brokers, self._worker, self._runtime = brokers, worker, runtime

    def join_group(self, seconds: float) -> Membership:
        """Be one of the workers."""
        return Membership(self._brokers, self._worker, seconds, self._runtime)


def assign_partitions(store: Store, mine: Collection[int], partitions: int) -> None:
    """Have brokers assign the partitions of a store: several learners without Kafka.

    Args:
        store: whose learners share partitions.
        mine: the partitions that learners of this process may have; another has the rest.
        partitions: how many there are.
    """
    brokers = Brokers(partitions, lambda: time.monotonic_ns() // 1000)
    if others := [one for one in range(partitions) if one not in mine]:
        brokers.workers["another"] = 1 << 62, tuple(others)
    coordination_in = store.coordination_in

    def brokered(cells: Cells, bandit: str) -> BrokeredStore:
        found = coordination_in(cells, bandit)
        return BrokeredStore(found, brokers, secrets.token_hex(4), ThreadRuntime())

    store.coordination_in = brokered  # type: ignore[method-assign]
