"""Base classes of journals that look up records by id."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from typing import Any, TypeVar

from belated.core.events import (
    Decision,
    Event,
    Opaque,
    Overwritten,
    Record,
    Settled,
    digest_of,
    encode,
    read_event,
)
from belated.core.ids import erased_key_of, partition_of
from belated.exceptions import CorruptEvent, CorruptJournal, HistoryTrimmed, InvalidInput
from belated.journals.arrivals import (
    LAST_SETTLEMENTS,
    Clock,
    FirstDecisions,
    arrange,
    arrange_imported,
    assignment_of,
    check_partition,
    check_requests,
    first_of_each,
    route,
    stamps_for,
    standing,
    to_overwrite,
)
from belated.journals.journal import NamedJournal
from belated.journals.log import Appended, AppendedAfter, Requests, Tail
from belated.journals.shelf import CellShelf

T = TypeVar("T")


class IndexedJournal(CellShelf, NamedJournal):
    """A journal that looks up records by id; subclasses implement storage in a few methods.

    A *handle* is the object that these methods need, such as a connection. :meth:`_write` and
    :meth:`_read` pass a handle to the function that they run.
    """

    _clock: Clock

    def _write(self, act: Callable[[Any], T], size: int = 0) -> T:
        """Run ``act`` in an exclusive write transaction, which is rolled back on errors.

        Args:
            act: Function to call with the handle.
            size: Approximate number of bytes that ``act`` writes.
        """
        raise NotImplementedError

    def _read(self, act: Callable[[Any], T]) -> T:
        """Run ``act``, which must only read."""
        return act(None)

    def _lock_partitions(self, handle: Any, partitions: Collection[int]) -> None:
        """Lock partitions against other writers, unless :meth:`_write` does so already."""

    def _tail(self, handle: Any, partition: int) -> Tail:
        """Return the position and timestamp of a partition's last record."""
        raise NotImplementedError

    def _insert(
        self, handle: Any, records: list[Record], data: Sequence[bytes], requests: Requests | None
    ) -> list[Record]:
        """Write records with their encoded events; return the records with digests."""
        raise NotImplementedError

    def _find(
        self, handle: Any, keys: Collection[bytes], others: int | None = None
    ) -> list[Record]:
        """Return the records with these ids, sorted by partition and position.

        Args:
            handle: Handle from :meth:`_read` or :meth:`_write`.
            keys: Erased keys of the ids.
            others: Maximum number of records per id in addition to decisions. None means all.
        """
        raise NotImplementedError

    def _drop(self, handle: Any, partition: int, start: int, limit: int) -> int:
        """Drop up to ``limit`` records up to position ``start``; return the number dropped."""
        raise NotImplementedError

    def _replace(self, handle: Any, record: Record, event: Overwritten) -> None:
        """Replace the event of a record, and delete its request."""
        raise NotImplementedError

    def _is_last(self, handle: Any, record: Record) -> bool:
        """Return whether a record is the last record of its partition."""
        return self.read(record.partition, record.position - 1, 2) == [record]

    def _index_acts(self, records: Sequence[Record]) -> None:
        """Copy operator actions to their cells, unless :meth:`_insert` already does so."""
        self._keep_acts(records)

    def _encoded(self, events: Sequence[Event | Opaque]) -> list[bytes]:
        """Encode events, before anything is locked."""
        return [encode(event) for event in events]

    def read(self, partition: int, after: int, limit: int) -> list[Record]:
        """Return the records after a position; see :meth:`Log.read`."""
        raise NotImplementedError

    def append(
        self,
        events: Sequence[Event],
        *,
        recorded: Sequence[int] | None = None,
        requests: Requests | None = None,
    ) -> list[int]:
        """Append events atomically; see :meth:`Log.append`."""
        data = self._encoded(events)
        check_requests(events, requests)
        records = self._write(
            lambda handle: self._append(handle, events, data, recorded, requests),
            _size(data, requests),
        )
        self._index_acts(records)
        return [record.position for record in records]

    def append_after(
        self, events: Sequence[Event], last: Record, *, requests: Requests | None = None
    ) -> AppendedAfter:
        """Append events and return their records; see :meth:`FollowedLog.append_after`."""
        data = self._encoded(events)
        check_requests(events, requests)

        def append(handle: Any) -> AppendedAfter:
            if not self._is_last(handle, last):
                appended = self._append(handle, events, data, None, requests)
                return AppendedAfter([record.position for record in appended], [])
            stamp = max(self._clock(), last.recorded)
            records = [
                Record(last.partition, position, stamp, event)
                for position, event in enumerate(events, last.position + 1)
            ]
            inserted = self._insert(handle, records, data, requests)
            return AppendedAfter([record.position for record in inserted], inserted)

        appended = self._write(append, _size(data, requests))
        self._index_acts(appended.records)
        return appended

    def append_unique(
        self, events: Sequence[Event], ids: Collection[str], requests: Requests | None = None
    ) -> Appended:
        """Append events, but no second decision per id; see :meth:`UniqueLog.append_unique`."""
        check_requests(events, requests)
        data = self._encoded(events)
        return self._write(
            lambda handle: self.append_within(handle, events, data, ids, requests),
            _size(data, requests),
        )

    def append_within(
        self,
        handle: Any,
        events: Sequence[Event],
        data: Sequence[bytes],
        ids: Collection[str],
        requests: Requests | None,
    ) -> Appended:
        """Append as in :meth:`append_unique`, within a transaction for several bandits."""
        stored = self._find(handle, {erased_key_of(id) for id in ids}, 0) if ids else []
        first = FirstDecisions(events, ids, stored)
        selected = first.select(data) if data else data
        records = self._append(handle, first.events, selected, None, first.requests(requests))
        return first.appended([record.position for record in records])

    def import_records(
        self, records: Iterable[Record], *, requests: Requests | None = None
    ) -> None:
        """Append records with their timestamps; see :meth:`Log.import_records`."""
        whole = list(records)
        events = [record.event for record in whole]
        data = self._encoded(events)
        check_requests(events, requests)

        def append(handle: Any) -> list[Record]:
            tail = lambda partition: self._tail(handle, partition)  # noqa: E731
            arranged = arrange_imported(whole, self._partitions, tail)
            return self._insert(handle, arranged, data, requests)

        self._index_acts(self._write(append, _size(data, requests)))

    def records_of(self, ids: Sequence[str], limit: int | None = None) -> list[Record]:
        """Return the records of these ids; see :meth:`UniqueLog.records_of`."""
        keys = {*map(erased_key_of, ids)}
        return first_of_each(self._read(lambda handle: self._find(handle, keys, limit)), limit)

    def decisions(self, ids: Sequence[str]) -> dict[str, Decision]:
        """Return the decisions with these ids; see :meth:`UniqueLog.decisions`."""
        keys = {*map(erased_key_of, ids)}
        return standing(self._read(lambda handle: self._find(handle, keys, 0)))

    def settlements(self, partition: int) -> list[Record]:
        """Return the most recent settlements of a partition by reading the whole partition."""
        records = self.read(partition, self.start(partition).position, self.end(partition))
        return [r for r in records if isinstance(r.event, Settled)][-LAST_SETTLEMENTS:]

    def overwrite(self, keys: Sequence[bytes]) -> int:
        """Overwrite the events of erased decisions; see :meth:`UniqueLog.overwrite`."""
        homes = {partition_of(key, self._partitions) for key in keys}
        erased = {getattr(act.event, "key", b"") for home in homes for act in self.undone(home)}
        for key in keys:
            if key not in erased:
                message = f"the decision with the key {key.hex()} was not erased: erase it first"
                raise InvalidInput(message, key)

        records = self._read(lambda handle: self._find(handle, set(keys), 0))
        decisions = [record for record in records if isinstance(record.event, Decision)]
        assignments = [assignment_of(self.read, decision) for decision in decisions]
        assigned = [record for record in assignments if record is not None]

        def replace(handle: Any) -> int:
            self._lock_partitions(handle, homes)
            stored = [*assigned, *self._find(handle, set(keys))]
            records = {(record.partition, record.position): record for record in stored}
            replacements = to_overwrite(records.values(), set(keys))
            for record, event in replacements:
                self._replace(handle, record, event)
            return len(replacements)

        return self._write(replace)

    def drop(self, partition: int, limit: int) -> int:
        """Drop records up to the start; see :meth:`Log.drop`."""
        start = self.start(partition).position
        return self._write(lambda handle: self._drop(handle, partition, start, limit))

    def read_again(self, partition: int, after: int, limit: int) -> list[Record]:
        """Return the records after a position; see :meth:`OutcomeLog.read_again`."""
        return self.read(partition, after, limit)

    def _tail_of(self, partition: int) -> Tail:
        check_partition(partition, self._partitions)
        return self._read(lambda handle: self._tail(handle, partition))

    def _append(
        self,
        handle: Any,
        events: Sequence[Event],
        data: Sequence[bytes],
        recorded: Sequence[int] | None,
        requests: Requests | None,
    ) -> list[Record]:
        homes = [route(event, self._partitions) for event in events]
        # Read the clock within the transaction, so that timestamps are in the order of positions.
        stamps = stamps_for(events, recorded, self._clock)
        arrivals = zip(homes, stamps, events, strict=True)
        records = arrange(arrivals, lambda partition: self._tail(handle, partition))
        return self._insert(handle, records, data, requests)


def _size(data: Sequence[bytes], requests: Requests | None) -> int:
    return sum(map(len, data)) + (sum(map(len, requests.values())) if requests else 0)


class StoredJournal(IndexedJournal):
    """A journal with consecutive positions and with checksums of records."""

    #: Whether reads recompute the digest of every record, which detects a changed record even if
    #: its checksum was recomputed. Folds do not need this check.
    checks_digests = False

    def _records(
        self, partition: int, after: int, rows: Iterable[tuple[int, int, bool, bytes, bytes]]
    ) -> list[Record]:
        """Return the records of stored rows.

        Args:
            partition: Partition of the rows.
            after: Position before the first row.
            rows: Position, timestamp, whether the checksum matches, digest, and encoded event per
                row.

        Raises:
            HistoryTrimmed: records were dropped.
            CorruptJournal: records are missing.
            CorruptEvent: a record was changed after it was written.
        """
        records = []
        for expected, (position, recorded, intact, digest, data) in enumerate(
            rows, start=after + 1
        ):
            if position != expected:
                start = self.start(partition).position
                if expected <= start:
                    raise HistoryTrimmed(partition, start)
                where = self._where(partition, expected)
                raise CorruptJournal(f"{where} is missing: restore a backup")
            if not intact or (self.checks_digests and not _matches(digest, data)):
                where = self._where(partition, expected)
                raise CorruptEvent(f"{where} was changed after it was written: restore a backup")
            try:
                event = read_event(data)
            except CorruptEvent as error:
                raise CorruptEvent(f"{self._where(partition, expected)}: {error}") from None
            records.append(Record(partition, position, recorded, event, digest))
        return records


def _matches(digest: bytes, data: bytes) -> bool:
    """Return whether a digest matches an encoded event, or the event has been overwritten."""
    if digest_of(data) == digest:
        return True
    try:
        return isinstance(read_event(data), Overwritten)
    except CorruptEvent:
        return False
