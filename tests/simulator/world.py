"""The simulated world: virtual time, the network, local disks, and what all processes share."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import timedelta
from hashlib import blake2b
from heapq import heappop, heappush
from random import Random
from typing import Protocol

import numpy as np

from belated.core.events import Activation, Decision, Record, Reward, SubjectReward, Void
from belated.core.inputs import Row
from belated.features import PerArm
from belated.model import kernels
from belated.policies import Policy
from tests.simulator.faults import Faults, Killed
from tests.simulator.settings import DAY, SECOND, Settings, stream
from tests.simulator.store import Store

#: Runs are too short to compile anything.
PLAIN = kernels.plain()
#: Limit on the actions of a run; typical are a few hundred.
LIMIT = 50_000

# --- time ----------------------------------------------------------------------------------------


class Schedule:
    """Runs actions in the order of their times; actions of the same time run in random order.

    >>> schedule = Schedule(seed=7)
    >>> schedule.after(20, lambda: print("second"))
    >>> schedule.after(10, lambda: print("first"))
    >>> schedule.run()
    first
    second
    """

    def __init__(self, seed: int, now: int = 1_700_000_000_000_000) -> None:
        self.now = now
        self._rng = stream(seed, "schedule")
        self._done = 0
        self._heap: list[tuple[int, float, Callable[[], object]]] = []

    def after(self, delay: float, action: Callable[[], object]) -> None:
        """Run an action after a delay in microseconds."""
        heappush(self._heap, (self.now + int(delay), self._rng.random(), action))

    def run(self, until: float = math.inf) -> None:
        """Run everything that is due by then, including what those actions schedule."""
        while self._heap and self._heap[0][0] <= until:
            self.now, _, action = heappop(self._heap)
            action()
            self._done += 1
            assert self._done < LIMIT, "L: it does not come to an end"
        if until < math.inf:
            self.now = max(self.now, int(until))


class Clock:
    """The clock of one process: the true time plus an offset."""

    def __init__(self, schedule: Schedule, offset: int = 0) -> None:
        self._schedule = schedule
        self.offset = offset

    def __call__(self) -> int:
        """Return the time it shows, in microseconds since 1970."""
        return self._schedule.now + self.offset


# --- messages ------------------------------------------------------------------------------------


@dataclass(frozen=True)
class DecisionRequest:
    """A request for one decision under an id, or for several under ids that the bandit makes.

    One with a subject is for one decision.
    """

    name: str | None
    count: int = 1
    activated: bool = True
    subject: str | None = None
    sticky: timedelta | None = None

    @property
    def key(self) -> str | None:
        """What the offer depends on; None if on who answers."""
        return self.subject or self.name

    def rows(self, who: str, dim: int) -> Row:
        """Return the rows that are offered: the same for a subject or a name, whoever answers."""
        return rows_of(self.key or who, dim)


DecisionEvent = Activation | Reward | SubjectReward | Void
Request = DecisionRequest | DecisionEvent
#: Decisions, or the status of an event.
Answer = list[Decision] | str
Reply = Callable[[Answer], None]

#: The answer to a value that is not accepted: a retry would be of no use.
REFUSED = "refused"


class Receiver(Protocol):
    """A process that answers clients."""

    def receive(self, what: Request, reply: Reply) -> None:
        """Answer, or not."""


def rows_of(name: str, dim: int) -> Row:
    """Return the rows that are offered under an id: a retry offers the same.

    >>> rows_of("order-17", 2).shape
    (3, 2)
    """
    rng = stream(0, name)
    return np.array([[rng.gauss(0, 1) for _ in range(dim)] for _ in range(3)], dtype=np.float32)


class Network:
    """Delivers messages; it may lose, repeat, delay and reorder them.

    >>> schedule, faults = Schedule(seed=7), Faults(seed=7)
    >>> faults.stop()
    >>> Network(7, schedule, faults).send(lambda: print("hello"))
    >>> schedule.run()
    hello
    """

    def __init__(self, seed: int, schedule: Schedule, faults: Faults) -> None:
        self._rng = stream(seed, "network")
        self._schedule = schedule
        self._faults = faults
        self._sent = 0
        self._latest = 0  # the youngest message that has arrived

    def send(self, deliver: Callable[[], object]) -> None:
        """Call ``deliver`` on the other side: later, twice, or never."""
        self._sent += 1
        number = self._sent

        def arrive() -> None:
            if number < self._latest:
                self._faults.see("message out of order")
            self._latest = max(self._latest, number)
            deliver()

        if self._faults.strike("message lost"):
            return
        for _ in range(2 if self._faults.strike("message twice") else 1):
            extra_delay = 30 * DAY if self._faults.strike("message 30 days late") else 0
            self._schedule.after(extra_delay + self._rng.expovariate(1 / SECOND), arrive)


# --- disks ---------------------------------------------------------------------------------------


class Disk:
    """The file of a spool, a :class:`belated.journals.spool.file.SpoolStorage`: synced bytes stay.

    >>> faults = Faults(seed=0)
    >>> faults.stop()
    >>> disk = Disk(faults, Random(7))
    >>> disk.append(b"kept")
    >>> disk.sync()
    >>> disk.append(b", lost")
    >>> disk.lose_power()
    >>> disk.read(0, 4)
    b'kept'
    """

    def __init__(self, faults: Faults, rng: Random) -> None:
        self._faults = faults
        self._rng = rng
        self._written = b""
        self._synced = b""

    def __repr__(self) -> str:
        return "on a simulated disk"  # the same in every process

    def append(self, data: bytes) -> None:
        """Append bytes; on a full disk only some of them."""
        if self._faults.strike("spool disk full"):
            self._written += data[: self._rng.randrange(len(data))]
            raise OSError("no space is left")
        self._written += data

    def sync(self) -> None:
        """Make everything written durable."""
        if self._faults.strike("killed before the spool was synced"):
            raise Killed
        self._synced = self._written

    def read(self, offset: int, size: int) -> bytes:
        """Return bytes from an offset."""
        return self._written[offset : offset + size]

    def truncate(self, size: int) -> None:
        """Keep the first bytes only."""
        self._written = self._written[:size]

    def close(self) -> None:
        """Do nothing: the file stays."""

    def lose_power(self) -> None:
        """Lose what is not synced, or a part of it."""
        content = self._written
        if content == self._synced:
            return
        self._faults.see("spool torn")
        self._written = self._synced
        if content.startswith(self._synced):  # the disk had begun to write the rest
            size = self._rng.randint(len(self._synced), len(content))
            self._written = self._synced = content[:size]


# --- the world -----------------------------------------------------------------------------------


class World:
    """Time, the store, the network, the faults, and a trace of what happened.

    Args:
        seed: everything is drawn from it.
        listen: receives each line of the trace.
        shared: whether several learners share the partitions of a service.

    Attributes:
        sent: everything that was ever sent to a server.
        acknowledged: requests that were acknowledged, with their answers.
        answered: the bytes of the decision that was returned under each name.
        store_clock_moved: whether the store's clock has jumped, so that leases end early or late.
        features: of the current release; None if callers pass rows.
    """

    def __init__(
        self, seed: int, listen: Callable[[str], object] | None = None, *, shared: bool = False
    ) -> None:
        self.seed = seed
        self.settings = Settings.draw(seed, shared=shared)
        self.faults = Faults(seed, shared=shared)
        self.schedule = Schedule(seed)
        self.start = self.schedule.now
        self.clocks: list[Clock] = []
        self.network = Network(seed, self.schedule, self.faults)
        self.store = Store(self.settings.partitions, self.clock("store"), self.faults)
        self.sent: list[Request | Decision] = []
        self.acknowledged: list[tuple[Request, Answer]] = []
        self.answered: dict[str, bytes] = {}
        self.store_clock_moved = False
        self.features: PerArm | None = None
        self._listen = listen
        self._trace = blake2b(digest_size=16)

    def stream(self, name: str) -> Random:
        """Return the random numbers of one actor."""
        return stream(self.seed, name)

    def clock(self, name: str) -> Clock:
        """Return the clock of one machine, wrong by up to a minute."""
        skew = self.stream(f"{name}'s clock").randint(-60, 60) * SECOND if self.active else 0
        self.clocks.append(Clock(self.schedule, skew))
        return self.clocks[-1]

    @property
    def policy(self) -> Policy:
        """The policy of the current release."""
        policy = self.settings.policy
        if self.features is None:
            return policy
        return replace(policy, dim=0).bound_to(self.features)

    @property
    def active(self) -> bool:
        """Whether faults may still occur."""
        return self.schedule.now < self.start + self.settings.span

    @property
    def partitions(self) -> range:
        """The numbers of the partitions."""
        return range(self.settings.partitions)

    @property
    def records(self) -> list[list[Record]]:
        """All that was ever recorded, by partition."""
        return [self.store.records(partition) for partition in self.partitions]

    @property
    def ends(self) -> list[int]:
        """The position of the last record that readers see, by partition."""
        return [self.store.end(partition) for partition in self.partitions]

    def pass_windows(self) -> None:
        """Advance time until all windows have ended, including those stamped by a fast clock."""
        stamps = [records[-1].recorded for records in self.records if records]
        window = self.settings.rewards.window_us or 0
        self.schedule.now = max(self.schedule.now, *stamps, 0) + window + 3 * DAY

    def trace_event(self, who: str, what: object) -> None:
        """Write a line of the trace."""
        line = f"{(self.schedule.now - self.start) / DAY:.9f} {who} {what}"
        self._trace.update(line.encode())
        if self._listen is not None:
            self._listen(line)

    @property
    def trace(self) -> str:
        """The digest of everything that has happened: equal for equal runs."""
        return self._trace.hexdigest()
