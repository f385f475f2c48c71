"""A journal that lives as long as its object: for simulation, tests and first steps."""

from __future__ import annotations

import threading
from bisect import bisect_left, bisect_right
from collections.abc import Collection, Iterable, Sequence
from operator import attrgetter
from typing import Self

import msgspec

from belated.core.events import Event, Record
from belated.core.ids import check_id, check_partitions, erased_key_of, partition_of
from belated.exceptions import HistoryTrimmed, JournalClosed
from belated.journals.acts import ACTS
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
from belated.journals.bandits import Registration, register
from belated.journals.columns import ColumnPage
from belated.journals.indexed import IndexedJournal
from belated.journals.log import Appended, AppendedAfter, Requests, Tail
from belated.journals.lookups import (
    LAST_SETTLEMENTS,
    append_first,
    erased_key_in,
    of_kept,
    subject_of,
    to_overwrite,
)
from belated.journals.memory.cells import MemoryCells
from belated.journals.memory.index import MemoryIndex
from belated.journals.steady_clock import system_clock


class Facts:
    """The records of one bandit: what the journals opened on it share.

    Args:
        partitions: a power of two.
        cells: of the store.
    """

    def __init__(self, partitions: int, cells: MemoryCells) -> None:
        self.cells = cells
        self.streams: list[list[Record]] = [[] for _ in range(check_partitions(partitions))]
        self.index = MemoryIndex(self.streams)
        self.requests: dict[tuple[int, int], bytes] = {}  # by partition and position
        #: By partition, the position of the last record that was dropped.
        self.dropped = [0] * partitions
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

    _place = "the memory of this process"

    def __init__(
        self, bandit: str = "bandit", *, partitions: int = 1, clock: Clock | None = None
    ) -> None:
        self._bandit = check_id(bandit, "the bandit's name")
        self._clock = clock or system_clock
        self._share(Facts(partitions, MemoryCells(self._clock)))
        register(self.cells, lambda number: Registration(bandit, number, partitions))

    @classmethod
    def sharing(cls, facts: Facts, bandit: str, clock: Clock) -> Self:
        """Another journal on the facts of a bandit."""
        journal = cls.__new__(cls)
        journal._bandit, journal._clock = bandit, clock
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
            raise HistoryTrimmed(partition, self.start(partition).position)
        return dropped

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

    def settlements(self, partition: int) -> list[Record]:
        """Return the last records that settled a partition, in order."""
        self._check_open()
        check_partition(partition, self._partitions)
        with self._lock:
            return self._facts.index.of(partition, "settled")[-LAST_SETTLEMENTS:]

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

    def close(self) -> None:
        """Let go of everything; any later call raises :class:`JournalClosed`."""
        self.cells.close()
        self._facts = Facts(self._partitions, MemoryCells(self._clock))
        self._streams, self._closed = self._facts.streams, True

    def __enter__(self) -> Self:
        self._check_open()
        return self

    def _share(self, facts: Facts) -> None:
        self._facts = facts
        self._partitions = len(facts.streams)
        self._streams, self._lock = facts.streams, facts.lock
        self._open_shelf(facts.cells.share())
        self._closed = False

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
        self._keep_acts([record for record in records if subject_of(record.event) in ACTS])
        return positions

    def _tail(self, partition: int) -> Tail:
        self._check_open()
        check_partition(partition, self._partitions)
        stream = self._streams[partition]
        if not stream:
            return self.start(partition)
        last = stream[-1]
        return Tail(last.position, last.recorded)

    def _check_open(self) -> None:
        if self._closed:
            raise _closed()


def _closed() -> JournalClosed:
    return JournalClosed("this journal was closed: open it again, or make a new MemoryJournal")
