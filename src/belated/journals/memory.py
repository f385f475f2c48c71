"""A journal that lives as long as its object: for simulation, tests and first steps."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple, Self

import msgspec

from belated.events import Event, Record
from belated.exceptions import JournalClosed
from belated.ids import check_id, check_partitions
from belated.journals.arrivals import (
    EMPTY,
    Clock,
    Tail,
    arrange,
    arrange_carried,
    check_partition,
    check_range,
    route,
    stamps_for,
    system_clock,
)
from belated.journals.named import NamedJournal
from belated.journals.snapshots import (
    Snapshot,
    check_kept,
    check_position,
    checksums_of,
    damage,
    seal,
    warn_discarded,
)


class _Stored(NamedTuple):
    snapshot: Snapshot
    checksums: dict[str, bytes]
    seal: bytes


class MemoryJournal(NamedJournal):
    """Keeps events as the objects they are, and nothing beyond the life of the process.

    Not for several threads at once. An event is taken to be immutable: the row of a decision must
    not be written to after it was appended.

    Args:
        bandit: the name of the bandit.
        partitions: a power of two.
        clock: gives the time in microseconds since 1970; None for the system's.

    >>> from belated.events import Reward
    >>> journal = MemoryJournal(clock=lambda: 1_700_000_000_000_000)
    >>> journal.append([Reward("a", 5, 1.0), Reward("b", 6, 0.0)])
    [1, 2]
    >>> [record.event.value for record in journal.read(partition=0, after=1, limit=10)]
    [0.0]
    """

    def __init__(
        self, bandit: str = "bandit", *, partitions: int = 1, clock: Clock | None = None
    ) -> None:
        self._bandit = check_id(bandit, "the bandit's name")
        self._partitions = check_partitions(partitions)
        self._clock = clock or system_clock
        self._streams: list[list[Record]] = [[] for _ in range(partitions)]
        self._identity: dict[str, str] | None = None
        self._snapshots: dict[int, _Stored] = {}
        self._closed = False

    def append(
        self, events: Sequence[Event], *, recorded: Sequence[int] | None = None
    ) -> list[int]:
        """Keep events; see :meth:`Journal.append`."""
        if self._closed:
            raise _closed()
        if recorded is None and len(events) == 1:  # what a decider does for every decision
            event = events[0]
            partition = route(event, self._partitions)
            stream = self._streams[partition]
            now = self._clock()
            if stream and (last := stream[-1].recorded) > now:
                now = last
            position = len(stream) + 1
            stream.append(Record(partition, position, now, event))
            return [position]
        partitions = [route(event, self._partitions) for event in events]
        stamps = stamps_for(events, recorded, self._clock)
        return self._keep(arrange(zip(partitions, stamps, events, strict=True), self._tail))

    def carry(self, records: Iterable[Record]) -> None:
        """Take over records with their stamps; see :meth:`Journal.carry`."""
        self._check_open()
        self._keep(arrange_carried(records, self._partitions, self._tail))

    def read(self, partition: int, after: int, limit: int) -> list[Record]:
        """The records beyond a position; see :meth:`Journal.read`."""
        self._check_open()
        check_range(partition, after, limit, self._partitions)
        return self._streams[partition][after : after + limit]

    def end(self, partition: int) -> int:
        """The position of the last record, 0 if there is none."""
        return self._tail(partition).position

    def last_stamp(self, partition: int) -> int:
        """The stamp of the last record, 0 if there is none."""
        return self._tail(partition).stamp

    def identify(self, identity: dict[str, str]) -> dict[str, str]:
        """Store what the bandit is, if nothing is stored yet; give back what is."""
        self._check_open()
        if self._identity is None:
            self._identity = dict(identity)
        return dict(self._identity)

    def reidentify(self, identity: dict[str, str]) -> None:
        """Store what the bandit is, instead of what was stored."""
        self._check_open()
        self._identity = dict(identity)

    def save(self, snapshot: Snapshot) -> None:
        """Store a snapshot; see :meth:`Journal.save`."""
        end = self.end(snapshot.partition)
        check_position(snapshot, end)
        stored = self._snapshots.get(snapshot.partition)
        checksums = checksums_of(snapshot, stored.checksums if stored else {})
        if stored is None:
            pieces = dict(snapshot.pieces)
        elif snapshot.position < stored.snapshot.position:
            return
        else:
            check_kept(snapshot, checksums, stored.checksums)
            kept = {name: stored.snapshot.pieces[name] for name in snapshot.kept}
            pieces = kept | snapshot.pieces
        whole = Snapshot(snapshot.partition, snapshot.position, snapshot.fingerprint, pieces)
        self._snapshots[snapshot.partition] = _Stored(whole, checksums, seal(whole, checksums))

    def load(self, partition: int) -> Snapshot | None:
        """The stored snapshot, None if there is none; see :meth:`Journal.load`."""
        end = self.end(partition)
        stored = self._snapshots.get(partition)
        if stored is None:
            return None
        reason = damage(*stored, end)
        if reason is not None:
            del self._snapshots[partition]
            warn_discarded(partition, reason)
            return None
        return msgspec.structs.replace(stored.snapshot, pieces=dict(stored.snapshot.pieces))

    def close(self) -> None:
        """Forget everything; any later call raises :class:`JournalClosed`."""
        self._closed = True
        self._streams = []
        self._snapshots = {}

    def __enter__(self) -> Self:
        self._check_open()
        return self

    def _keep(self, records: list[Record]) -> list[int]:
        for record in records:
            self._streams[record.partition].append(record)
        return [record.position for record in records]

    def _tail(self, partition: int) -> Tail:
        self._check_open()
        check_partition(partition, self._partitions)
        stream = self._streams[partition]
        return Tail(len(stream), stream[-1].recorded) if stream else EMPTY

    def _check_open(self) -> None:
        if self._closed:
            raise _closed()


def _closed() -> JournalClosed:
    return JournalClosed("this journal was closed: what it held is gone; make a new MemoryJournal")
