"""How often decisions are made and how late rewards come: by the stamps of the journal alone."""

from __future__ import annotations

from heapq import heappush, heappushpop

import msgspec

#: Decisions, or rewards, by which it is measured.
RECENT = 2048
#: Bits of a partition, and of a delay in microseconds, within a number that holds more than one of
#: these: numbers are sooner compared than tuples, and the garbage collector need not see them.
_PARTITION, _DELAY = 12, 52
_PARTITIONS, _LONGEST = (1 << _PARTITION) - 1, (1 << _DELAY) - 1


class Latest:
    """The greatest so many of all numbers: the same whatever the order in which they come.

    >>> latest = Latest(2)
    >>> [latest.add(item) for item in (5, 9, 7)]
    [None, None, 5]
    >>> sorted(latest.items)
    [7, 9]
    """

    def __init__(self, most: int) -> None:
        self.items: list[int] = []
        self._most = most

    def add(self, item: int) -> int | None:
        """Take a number; returns the one that is among them no longer, if any."""
        if len(self.items) < self._most:
            heappush(self.items, item)
            return None
        return heappushpop(self.items, item)


class Packed(msgspec.Struct, array_like=True):
    """What a snapshot of a partition has of it."""

    count: int
    stamps: list[int]
    delays: list[tuple[int, int]]


class Pace:
    """The mean time between two decisions, and the mean delay of a reward.

    The time between decisions is measured anew at the 2nd, 4th, 8th … decision, and from the
    2,048th on with every 2,048 more: over all of them at first, later over the last 2,048. So it
    is a function of the stamps, and changes seldom. The delay is that of the last 2,048 rewards.

    Attributes:
        interval: microseconds between two decisions; None before the second, or if they all came
            at once.
        moved: whether it has changed since somebody last looked.

    >>> pace = Pace()
    >>> for second in range(4):
    ...     pace.decided(second * 1_000_000)
    >>> pace.interval
    1000000.0
    """

    def __init__(self) -> None:
        self.interval: float | None = None
        self.moved = False
        self.count = 0
        self._next = 2
        self._stamps = Latest(2 * RECENT)  # with the partition of each
        self._delays = Latest(RECENT)
        self._sum = 0

    def decided(self, stamp: int, partition: int = 0) -> None:
        """A decision was recorded."""
        self.count += 1
        self._stamps.add(stamp << _PARTITION | partition)
        if self.count >= self._next:
            self.measure()

    def rewarded(self, stamp: int, delay: int, partition: int = 0) -> None:
        """A reward was learned, so long after its decision."""
        delay = min(delay, _LONGEST)
        self._sum += delay
        gone = self._delays.add((stamp << _DELAY | delay) << _PARTITION | partition)
        if gone is not None:
            self._sum -= gone >> _PARTITION & _LONGEST

    @property
    def delay(self) -> float:
        """The mean delay in microseconds; 0 before the first reward."""
        return self._sum / len(self._delays.items) if self._sum else 0.0

    def measure(self) -> None:
        """Measure the time between decisions, as of the last of them at which that is done."""
        if self.count < 2:
            return
        block = min(1 << self.count.bit_length() - 1, RECENT)
        last = self.count // block * block  # the number of that decision
        self._next = last + block
        stamps = sorted(item >> _PARTITION for item in self._stamps.items)
        end = len(stamps) - 1 - (self.count - last)
        first = max(0, end - (RECENT if last > RECENT else last - 1))
        span = stamps[end] - stamps[first]
        interval = span / (end - first) if span > 0 else None
        if interval != self.interval:
            self.interval, self.moved = interval, True

    def pack(self, partition: int, count: int) -> Packed:
        """What is of a partition, which has made ``count`` decisions."""
        stamps, delays = (
            sorted(item >> _PARTITION for item in latest.items if item & _PARTITIONS == partition)
            for latest in (self._stamps, self._delays)
        )
        return Packed(count, stamps, [(item >> _DELAY, item & _LONGEST) for item in delays])

    def unpack(self, partition: int, packed: Packed) -> None:
        """Take what :meth:`pack` gave; :meth:`measure` follows once all partitions are there."""
        for stamp in packed.stamps:
            self._stamps.add(stamp << _PARTITION | partition)
        for stamp, delay in packed.delays:
            self.rewarded(stamp, delay, partition)
        self.count += packed.count
        self._next = self.count + 1
