"""A journal that lives as long as its object: for simulation, tests and first steps."""

from __future__ import annotations

import threading
from bisect import bisect_left, bisect_right
from collections.abc import Collection, Iterable, Sequence
from operator import attrgetter
from typing import NamedTuple, Self

import msgspec

from belated.core.events import Event, Record, Trimmed
from belated.core.ids import check_id, check_partitions, erased_key_of, partition_of
from belated.exceptions import HistoryTrimmed, JournalClosed, OwnerFenced
from belated.journals.arrivals import (
    Clock,
    arrange,
    arrange_imported,
    check_partition,
    check_range,
    check_requests,
    route,
    stamps_for,
)
from belated.journals.columns import ColumnPage
from belated.journals.indexed import IndexedJournal
from belated.journals.log import EMPTY, Appended, AppendedAfter, Requests, Tail
from belated.journals.lookups import Subject, append_first, erased_key_in, of_kept, to_overwrite
from belated.journals.memory.index import MemoryIndex
from belated.journals.snapshots import (
    Snapshot,
    check_base,
    check_kept,
    check_position,
    checksums_of,
    damage,
    refuse_damaged_base,
    seal,
    tell_discarded,
)
from belated.journals.steady_clock import system_clock


class _Stored(NamedTuple):
    snapshot: Snapshot
    checksums: dict[str, bytes]
    seal: bytes


class Facts:
    """All that is known of one bandit: what the journals opened on it share.

    Args:
        partitions: a power of two.
    """

    def __init__(self, partitions: int) -> None:
        self.streams: list[list[Record]] = [[] for _ in range(check_partitions(partitions))]
        self.index = MemoryIndex(self.streams)
        self.requests: dict[tuple[int, int], bytes] = {}  # by partition and position
        self.identity: dict[str, str] | None = None
        self.snapshots: dict[int, _Stored] = {}
        self.bases: dict[int, _Stored] = {}
        # By partition: what may be dropped, and the position of the last record that was.
        self.starts = [EMPTY] * partitions
        self.dropped = [0] * partitions
        self.epochs = [0] * partitions
        # Held to change anything, and to read by position: places shift when records are dropped.
        self.lock = threading.RLock()


class MemoryJournal(IndexedJournal):
    """Keeps events as the objects they are, and nothing beyond the life of the process.

    An event is taken to be immutable: the row of a decision must not be written to after it was
    appended. Threads may share a journal.

    Args:
        bandit: Name of the bandit.
        partitions: A power of two.
        clock: Gives the time in microseconds since 1970; None for the system's.

    >>> from belated.core.events import Reward
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
        self._clock = clock or system_clock
        self._share(Facts(partitions))

    @classmethod
    def sharing(cls, facts: Facts, bandit: str, clock: Clock) -> Self:
        """Another journal on the facts of a bandit."""
        journal = cls(bandit, clock=clock)
        journal._share(facts)
        return journal

    def append(
        self,
        events: Sequence[Event],
        *,
        recorded: Sequence[int] | None = None,
        requests: Requests | None = None,
    ) -> list[int]:
        """Keep events; see :meth:`Log.append`."""
        check_requests(events, requests)
        partitions = [route(event, self._partitions) for event in events]
        with self._lock:
            self._check_open()
            stamps = stamps_for(events, recorded, self._clock)
            arranged = arrange(zip(partitions, stamps, events, strict=True), self._tail)
            return self._keep(arranged, requests)

    def append_after(
        self, events: Sequence[Event], last: Record, *, requests: Requests | None = None
    ) -> AppendedAfter:
        """Keep events, and give their records; see :meth:`FollowedLog.append_after`."""
        with self._lock:
            stream = self._streams[last.partition]
            if not stream or stream[-1] is not last:
                return AppendedAfter(self.append(events, requests=requests), [])
            if requests:
                check_requests(events, requests)
            stamp = max(self._clock(), last.recorded)
            first = last.position + 1
            if len(events) == 1 and not requests:
                record = Record(last.partition, first, stamp, events[0])
                stream.append(record)
                return AppendedAfter([first], [record])
            records = [
                Record(last.partition, position, stamp, event)
                for position, event in enumerate(events, first)
            ]
            return AppendedAfter(self._keep(records, requests), stream[-len(records) :])

    def append_unique(
        self,
        events: Sequence[Event],
        ids: Collection[str],
        requests: Requests | None = None,
    ) -> Appended:
        """Append events, and no second decision; see :meth:`UniqueLog.append_unique`."""
        with self._lock:
            return append_first(
                events,
                ids,
                self.records_of(list(ids)),
                lambda kept: self.append(
                    [events[n] for n in kept], requests=of_kept(requests, kept)
                ),
            )

    def import_records(
        self, records: Iterable[Record], *, requests: Requests | None = None
    ) -> None:
        """Append records with their stamps; see :meth:`Log.import_records`."""
        with self._lock:
            self._check_open()
            arranged = arrange_imported(records, self._partitions, self._tail)
            check_requests([record.event for record in arranged], requests)
            self._keep(arranged, requests)

    def read(self, partition: int, after: int, limit: int) -> list[Record]:
        """Return the records beyond a position; see :meth:`Log.read`."""
        self._check_open()
        check_range(partition, after, limit, self._partitions)
        with self._lock:  # a drop would shift the records between the two lines
            first = after - self._check_kept(partition, after)
            return self._streams[partition][first : first + limit]

    def read_columns(self, partition: int, after: int, limit: int) -> ColumnPage:
        """Return the records beyond a position as columns; see :meth:`ColumnLog.read_columns`."""
        return ColumnPage.of_records(self.read(partition, after, limit))

    def _check_kept(self, partition: int, after: int) -> int:
        """Refuse to read what was dropped; returns the position of the last record that was."""
        dropped = self._facts.dropped[partition]
        if after < dropped:
            raise HistoryTrimmed(partition, self._facts.starts[partition].position)
        return dropped

    def start(self, partition: int) -> Tail:
        """Return the last record that was dropped; see :meth:`Log.start`."""
        self._check_open()
        check_partition(partition, self._partitions)
        return self._facts.starts[partition]

    def drop(self, partition: int, limit: int) -> int:
        """Drop some of the records up to the start; see :meth:`Log.drop`."""
        start = self.start(partition).position
        with self._lock:
            stream = self._streams[partition]
            count = min(limit, bisect_right(stream, start, key=attrgetter("position")))
            self._facts.index.drop(partition, count)
            for record in stream[:count]:
                self._facts.requests.pop((partition, record.position), None)
                self._facts.dropped[partition] = record.position
            del stream[:count]
        return count

    def records_of(self, ids: Sequence[str]) -> list[Record]:
        """Return all records of these ids, by partition and position."""
        self._check_open()
        return self._of({erased_key_of(id) for id in ids})

    def _of(self, keys: Collection[bytes]) -> list[Record]:
        places = sorted({(partition_of(key, self._partitions), key[:8]) for key in keys})
        with self._lock:
            found = [one for home, half in places for one in self._facts.index.of(home, half)]
        records = [one for one in found if erased_key_in(one.event) in keys]
        return sorted(records, key=lambda record: (record.partition, record.position))

    def overwrite(self, keys: Sequence[bytes]) -> int:
        """Overwrite the events of erased decisions; see :meth:`UniqueLog.overwrite`."""
        self._check_erased(keys)
        with self._lock:
            found = to_overwrite(self._of(set(keys)))
            for record, event in found:
                blank = msgspec.structs.replace(record, event=event)
                stream = self._streams[record.partition]
                stream[bisect_left(stream, record.position, key=attrgetter("position"))] = blank
                self._facts.index.replace(blank)
                self._facts.requests.pop((record.partition, record.position), None)
        return len(found)

    def _about(self, partition: int, subject: Subject, limit: int | None = None) -> list[Record]:
        self._check_open()
        with self._lock:
            found = self._facts.index.of(partition, subject)
            return found[-limit:] if limit else list(found)

    def requests(self, partition: int, positions: Sequence[int]) -> dict[int, bytes]:
        """Return what decisions were chosen from, by position, where it was kept."""
        self._check_open()
        check_partition(partition, self._partitions)
        found = self._facts.requests
        return {one: found[partition, one] for one in positions if (partition, one) in found}

    def end(self, partition: int) -> int:
        """Return the position of the last record, 0 if there is none."""
        return self._tail(partition).position

    def last_stamp(self, partition: int) -> int:
        """Return the stamp of the last record, 0 if there is none."""
        return self._tail(partition).stamp

    def now(self) -> int:
        """Return the time of the clock, in microseconds since 1970."""
        self._check_open()
        return self._clock()

    def identify(self, identity: dict[str, str]) -> dict[str, str]:
        """Store what the bandit is, if nothing is stored yet; give back what is."""
        with self._lock:
            self._check_open()
            if self._facts.identity is None:
                self._facts.identity = dict(identity)
            return dict(self._facts.identity)

    def reidentify(self, identity: dict[str, str]) -> None:
        """Store what the bandit is, in place of what was stored."""
        self._check_open()
        self._facts.identity = dict(identity)

    def acquire(self, partition: int) -> int:
        """Become the owner of a partition; see :meth:`Shelf.acquire`."""
        self._check_open()
        check_partition(partition, self._partitions)
        with self._lock:
            self._facts.epochs[partition] += 1
            self._owned[partition] = self._facts.epochs[partition]
            return self._owned[partition]

    def save(self, snapshot: Snapshot) -> None:
        """Store a snapshot; see :meth:`Shelf.save`."""
        partition = snapshot.partition
        with self._lock:
            check_position(snapshot, self.end(partition))
            checksums = checksums_of(snapshot, self._known.get(partition, {}))
            if self._owned.get(partition) not in (None, self._facts.epochs[partition]):
                raise OwnerFenced(partition)
            stored = self._snapshots.get(partition)
            if stored is None or snapshot.position >= stored.snapshot.position:
                check_kept(snapshot, checksums, stored.checksums if stored else {})
                kept = {name: stored.snapshot.pieces[name] for name in snapshot.kept if stored}
                whole = msgspec.structs.replace(
                    snapshot, pieces=kept | snapshot.pieces, kept=frozenset()
                )
                self._snapshots[partition] = _Stored(whole, checksums, seal(whole, checksums))
        # Also where it was ignored: what may be kept next time is compared with what is stored.
        self._known[partition] = checksums

    def load(self, partition: int) -> Snapshot | None:
        """Return the stored snapshot, None if there is none; see :meth:`Shelf.load`."""
        with self._lock:
            end = self.end(partition)
            self._known.pop(partition, None)
            stored = self._snapshots.get(partition)
            if stored is None:
                return None
            reason = damage(*stored)
            is_sound = reason is None and stored.snapshot.position <= end
            if not is_sound:
                del self._snapshots[partition]
        if not is_sound:
            tell_discarded(stored.snapshot, reason)
            return None
        self._known[partition] = stored.checksums
        return msgspec.structs.replace(stored.snapshot, pieces=dict(stored.snapshot.pieces))

    def base(self, partition: int) -> Snapshot | None:
        """Return what the records that were dropped came to; see :meth:`Shelf.base`."""
        self._check_open()
        check_partition(partition, self._partitions)
        stored = self._facts.bases.get(partition)
        if stored is None:
            return None
        refuse_damaged_base(stored.snapshot, damage(*stored), self.end(partition), "memory")
        return stored.snapshot

    def rebase(self, base: Snapshot, trimmed: Trimmed, undone: int) -> None:
        """Store a base, and a record that says so; see :meth:`Shelf.rebase`."""
        partition = base.partition
        with self._lock:
            self._check_open()
            stored = self._snapshots.get(partition)
            saved = None if stored is None else stored.snapshot.position
            check_base(
                base,
                undone,
                before=self._facts.starts[partition].position,
                saved=saved,
                undone=len(self.undone(partition)),
            )
            self.append([trimmed])
            checksums = checksums_of(base, {})
            self._facts.bases[partition] = _Stored(base, checksums, seal(base, checksums))
            self._facts.starts[partition] = Tail(base.position, trimmed.recorded)

    def close(self) -> None:
        """Let go of everything; any later call raises :class:`JournalClosed`."""
        self._share(Facts(self._partitions), closed=True)

    def __enter__(self) -> Self:
        self._check_open()
        return self

    def _share(self, facts: Facts, *, closed: bool = False) -> None:
        self._facts = facts
        self._partitions = len(facts.streams)
        self._streams, self._snapshots, self._lock = facts.streams, facts.snapshots, facts.lock
        # By partition: the epoch in which it is owned here, and the checksums of the pieces of the
        # snapshot last saved or loaded here.
        self._owned: dict[int, int] = {}
        self._known: dict[int, dict[str, bytes]] = {}
        self._closed = closed

    def _keep(self, records: list[Record], requests: Requests | None = None) -> list[int]:
        """Store records; an exception at any point leaves a partition with all of its, or none."""
        streams, facts = self._streams, self._facts
        arrived: dict[int, tuple[list[Record], dict[tuple[int, int], bytes]]] = {}
        for place, record in enumerate(records):
            stream, kept = arrived.setdefault(record.partition, ([], {}))
            stream.append(record)
            if requests and place in requests:
                kept[record.partition, record.position] = requests[place]
        positions = [record.position for record in records]
        for partition, (stream, kept) in arrived.items():
            # No call may come between these: Python raises interrupts when one has returned.
            facts.requests |= kept
            streams[partition] += stream
        return positions

    def _tail(self, partition: int) -> Tail:
        self._check_open()
        check_partition(partition, self._partitions)
        stream = self._streams[partition]
        if not stream:
            return self._facts.starts[partition]
        last = stream[-1]
        return Tail(last.position, last.recorded)

    def _check_open(self) -> None:
        if self._closed:
            raise _closed()


def _closed() -> JournalClosed:
    return JournalClosed("this journal was closed: open it again, or make a new MemoryJournal")
