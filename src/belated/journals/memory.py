"""Journals and cells in memory, for simulations, tests and first steps."""

from __future__ import annotations

import threading
from bisect import bisect_left, bisect_right, insort
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from operator import attrgetter
from typing import Self

import msgspec

from belated.core.events import Decision, Event, Opaque, Overwritten, Record
from belated.core.ids import check_id, check_partitions, partition_of
from belated.exceptions import HistoryTrimmed, JournalClosed
from belated.journals.arrivals import (
    LAST_SETTLEMENTS,
    Clock,
    Subject,
    check_partition,
    check_range,
    erased_key_in,
    subject_of,
)
from belated.journals.bandits import open_bandit
from belated.journals.cells import NO_VERSIONS, Cell, Outcome
from belated.journals.indexed import IndexedJournal, T
from belated.journals.log import AppendedAfter, Requests, Tail
from belated.journals.outcomes import OutcomeMessage
from belated.journals.pages import ColumnPage
from belated.journals.steady_clock import system_clock
from belated.journals.store import Store

_position = attrgetter("position")


class MemoryCells:
    """Cells in memory; threads may share them.

    Args:
        clock: Returns the time in microseconds since 1970; by default, the system clock.
    """

    def __init__(self, clock: Clock | None = None) -> None:
        self._cells: dict[str, Cell] | None = {}
        self._lock = threading.Lock()
        self._clock = clock or system_clock

    def share(self) -> MemoryCells:
        """Return another object with the same cells, which is closed separately."""
        shared = MemoryCells(self._clock)
        shared._cells, shared._lock = self._open(), self._lock
        return shared

    def get(self, names: Iterable[str], known: Mapping[str, int] = NO_VERSIONS) -> dict[str, Cell]:
        """Return cells by name; see :meth:`Cells.get`."""
        with self._lock:
            cells = {name: cell for name in names if (cell := self._open().get(name))}
        return {name: cell for name, cell in cells.items() if known.get(name) != cell.version}

    def scan(self, prefix: str) -> dict[str, Cell]:
        """Return all cells whose names start with a prefix; see :meth:`Cells.scan`."""
        with self._lock:
            cells = sorted(self._open().items())
        return {name: cell for name, cell in cells if name.startswith(prefix)}

    def transact(
        self, expected: Mapping[str, int], puts: Mapping[str, bytes], deletes: Collection[str] = ()
    ) -> Outcome:
        """Write and delete cells if versions are as expected; see :meth:`Cells.transact`."""
        with self._lock:
            cells, now = self._open(), self._clock()
            versions = {name: cells[name].version for name in (*expected, *puts) if name in cells}
            if any(versions.get(name, 0) != version for name, version in expected.items()):
                return Outcome(False, now)
            for name, value in puts.items():
                cells[name] = Cell(versions.get(name, 0) + 1, now, bytes(value))
            for name in deletes:
                cells.pop(name, None)
            return Outcome(True, now)

    def close(self) -> None:
        """Close the cells; any later call raises :class:`JournalClosed`."""
        self._cells = None

    def _open(self) -> dict[str, Cell]:
        if self._cells is None:
            raise JournalClosed("this store was closed: open it again")
        return self._cells


#: Maximum number of events appended on the fast path: a decision and its subject.
FEW = 2
#: The partition, the erased key or kind of event, and whether the event is a decision.
_IndexKey = tuple[int, bytes | Subject | None, bool]


class MemoryIndex:
    """Index of records by erased key, or by kind for events without an id.

    Each lookup first indexes the records appended since the previous lookup, so that appending
    has no overhead.

    Args:
        streams: The records of each partition.
    """

    def __init__(self, streams: list[list[Record]]) -> None:
        self._streams = streams
        self._indexed = [0] * len(streams)
        self._records: dict[_IndexKey, list[Record]] = {}

    def of(self, partition: int, key: bytes | Subject, decisions: bool = False) -> list[Record]:
        """Return the records indexed under ``key``, in order: either decisions or other records."""
        stream, start = self._streams[partition], self._indexed[partition]
        for record in stream[start:]:
            records = self._records.setdefault(_index_key(record), [])
            if not records or records[-1] is not record:  # added already if a call was interrupted
                records.append(record)
            self._indexed[partition] += 1
        return self._records.get((partition, key, decisions), [])

    def drop(self, partition: int, count: int) -> None:
        """Remove the first records of a partition from the index."""
        self.of(partition, "settled")  # update the index of the partition
        for record in self._streams[partition][:count]:
            key = _index_key(record)
            records = self._records[key]
            del records[0]
            if not records:
                del self._records[key]
        self._indexed[partition] -= count

    def replace(self, record: Record, event: Overwritten) -> Record:
        """Replace the event of a record in the index; return the new record."""
        partition, key, is_decision = _index_key(record)
        assert key is not None
        records = self.of(partition, key, is_decision)
        del records[[stored.position for stored in records].index(record.position)]
        new = msgspec.structs.replace(record, event=event)
        entries = self._records.setdefault((record.partition, event.key, False), [])
        insort(entries, new, key=_position)
        return new


def _index_key(record: Record) -> _IndexKey:
    event = record.event
    key = erased_key_in(event) or subject_of(event)
    return record.partition, key, isinstance(event, Decision)


class Facts:
    """The records of one bandit, shared by all journals opened on it.

    Args:
        partitions: A power of two.
        cells: Cells of the store.
    """

    def __init__(self, partitions: int, cells: MemoryCells) -> None:
        self.cells = cells
        self.streams: list[list[Record]] = [[] for _ in range(check_partitions(partitions))]
        self.index = MemoryIndex(self.streams)
        self.requests: dict[tuple[int, int], bytes] = {}  # by partition and position
        self.outcomes: dict[str, OutcomeMessage] = {}  # by id
        #: Position of the last dropped record, by partition.
        self.dropped = [0] * partitions
        # Held by writers, and also by readers because dropping records shifts the lists.
        self.lock = threading.RLock()


class MemoryJournal(IndexedJournal):
    """A journal in memory, which is lost when the process ends.

    Events are stored without copying: do not modify the row of a decision after appending it.
    Threads may share a journal.

    Args:
        bandit: Name of the bandit.
        partitions: A power of two.
        clock: Returns the time in microseconds since 1970; by default, the system clock.

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
        open_bandit(self.cells, bandit, partitions, self._place)

    @classmethod
    def sharing(cls, facts: Facts, bandit: str, clock: Clock) -> Self:
        """Return another journal with the records of a bandit."""
        journal = cls.__new__(cls)
        journal._bandit, journal._clock = bandit, clock
        journal._share(facts)
        return journal

    def _write(self, act: Callable[[None], T], size: int = 0) -> T:
        with self._lock:
            self._check_open()
            return act(None)

    def _read(self, act: Callable[[None], T]) -> T:
        self._check_open()
        return act(None)

    def _encoded(self, events: Sequence[Event | Opaque]) -> list[bytes]:
        return []  # events are stored as objects

    def _is_last(self, handle: None, record: Record) -> bool:
        stream = self._streams[record.partition]
        return bool(stream) and stream[-1] is record

    def _index_acts(self, records: Sequence[Record]) -> None:
        """Do nothing, because :meth:`_insert` writes the cells."""

    def _insert(
        self, handle: None, records: list[Record], data: Sequence[bytes], requests: Requests | None
    ) -> list[Record]:
        """Store records; if interrupted, each partition has either all of its records or none."""
        facts = self._facts
        added: dict[int, tuple[list[Record], dict[tuple[int, int], bytes]]] = {}
        for index, record in enumerate(records):
            stream, requests_of_stream = added.setdefault(record.partition, ([], {}))
            stream.append(record)
            if requests and index in requests:
                requests_of_stream[record.partition, record.position] = requests[index]
        for partition, (stream, requests_of_stream) in added.items():
            # Do not call functions between these lines: an interrupt may be raised after any call.
            facts.requests |= requests_of_stream
            facts.streams[partition] += stream
        self._keep_acts(records)
        return records

    def append_after(
        self, events: Sequence[Event], last: Record, *, requests: Requests | None = None
    ) -> AppendedAfter:
        """Append events and return their records; see :meth:`FollowedLog.append_after`."""
        with self._lock:
            stream = self._streams[last.partition]
            if requests or len(events) > FEW or not stream or stream[-1] is not last:
                return super().append_after(events, last, requests=requests)
            stamp, home = max(self._clock(), last.recorded), last.partition
            records = [
                Record(home, position, stamp, event)
                for position, event in enumerate(events, last.position + 1)
            ]
            stream += records
            return AppendedAfter([record.position for record in records], records)

    def read(self, partition: int, after: int, limit: int) -> list[Record]:
        """Return the records after a position; see :meth:`Log.read`."""
        self._check_open()
        check_range(partition, after, limit, self._partitions)
        with self._lock:  # a concurrent drop would shift the records
            first = after - self._check_kept(partition, after)
            return self._streams[partition][first : first + limit]

    def read_columns(self, partition: int, after: int, limit: int) -> ColumnPage:
        """Return records after a position as columns; see :meth:`ColumnLog.read_columns`."""
        return ColumnPage.of_records(self.read(partition, after, limit))

    def _check_kept(self, partition: int, after: int) -> int:
        """Return the position of the last dropped record; raise if it is greater than ``after``."""
        dropped = self._facts.dropped[partition]
        if after < dropped:
            raise HistoryTrimmed(partition, self.start(partition).position)
        return dropped

    def _drop(self, handle: None, partition: int, start: int, limit: int) -> int:
        stream = self._streams[partition]
        count = min(limit, bisect_right(stream, start, key=_position))
        self._facts.index.drop(partition, count)
        for record in stream[:count]:
            self._facts.requests.pop((partition, record.position), None)
            self._facts.dropped[partition] = record.position
        del stream[:count]
        return count

    def _find(
        self, handle: None, keys: Collection[bytes], others: int | None = None
    ) -> list[Record]:
        records: list[Record] = []
        with self._lock:
            for key in keys:
                home = partition_of(key, self._partitions)
                records += self._facts.index.of(home, key, decisions=True)
                records += self._facts.index.of(home, key)[:others]
        return sorted(records, key=lambda record: (record.partition, record.position))

    def _replace(self, handle: None, record: Record, event: Overwritten) -> None:
        stream = self._streams[record.partition]
        index = bisect_left(stream, record.position, key=_position)
        stream[index] = self._facts.index.replace(record, event)
        self._facts.requests.pop((record.partition, record.position), None)

    def settlements(self, partition: int) -> list[Record]:
        """Return the most recent settlements of a partition, in order."""
        self._check_open()
        check_partition(partition, self._partitions)
        with self._lock:
            return self._facts.index.of(partition, "settled")[-LAST_SETTLEMENTS:]

    def requests(self, partition: int, positions: Sequence[int]) -> dict[int, bytes]:
        """Return the stored requests of decisions, by position."""
        self._check_open()
        check_partition(partition, self._partitions)
        requests = self._facts.requests
        return {n: requests[partition, n] for n in positions if (partition, n) in requests}

    def put_outcomes(self, partition: int, outcomes: Sequence[OutcomeMessage]) -> None:
        """Store outcomes; see :meth:`OutcomeLog.put_outcomes`."""
        self._check_open()
        stored = self._facts.outcomes
        for outcome in outcomes:
            if outcome.id not in stored or stored[outcome.id].version < outcome.version:
                stored[outcome.id] = outcome

    def close(self) -> None:
        """Close the journal; any later call raises :class:`JournalClosed`."""
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

    def _tail(self, handle: None, partition: int) -> Tail:
        stream = self._streams[partition]
        if not stream:
            return self.start(partition)
        last = stream[-1]
        return Tail(last.position, last.recorded)

    def _check_open(self) -> None:
        if self._closed:
            message = "this journal was closed: open it again, or create a new MemoryJournal"
            raise JournalClosed(message)


class MemoryStore(Store):
    """A store in memory, which is lost when the process ends; see :class:`Store`.

    Threads may share the store and the objects it opens.

    Args:
        clock: Returns the time in microseconds since 1970; by default, the system clock.

    >>> from belated.core.events import Void
    >>> store = MemoryStore()
    >>> with store.journal("offers") as writer, store.journal("offers") as reader:
    ...     writer.append([Void("a", 5)])
    ...     reader.end(0)
    [1]
    1
    >>> [bandit.name for bandit in store.describe()]
    ['offers']
    """

    name = "memory"
    place = "the memory of this process"

    def __init__(self, *, clock: Clock | None = None) -> None:
        self._clock = clock or system_clock
        self._cells = MemoryCells(self._clock)
        self._logs: dict[int, Facts] = {}
        self._lock = threading.Lock()

    def cells(self, *, wait: float = 10.0) -> MemoryCells:
        """Open the cells."""
        return self._cells.share()

    def journal(
        self, bandit: str = "default", *, partitions: int | None = None, wait: float = 10.0
    ) -> MemoryJournal:
        """Open the journal of a bandit; create it if it does not exist."""
        entry = open_bandit(self._cells, bandit, partitions, self.place)
        with self._lock:
            facts = self._logs.setdefault(entry.number, Facts(entry.partitions, self._cells))
        return MemoryJournal.sharing(facts, bandit, self._clock)
