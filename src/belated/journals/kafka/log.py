"""A journal with its log in Kafka and its cells in PostgreSQL or SQLite."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import groupby
from typing import get_args

import numpy as np

from belated.core.events import (
    Decision,
    Event,
    Opaque,
    Record,
    SubjectEvent,
    digest_of,
    encode,
    read_event,
)
from belated.core.ids import check_id, check_partitions, subject_id
from belated.exceptions import (
    CorruptEvent,
    CorruptJournal,
    HistoryTrimmed,
    InvalidInput,
    JournalClosed,
    JournalError,
    JournalMismatch,
    NotIndexed,
)
from belated.journals.addresses import open_store
from belated.journals.arrivals import (
    Clock,
    arrange,
    arrange_imported,
    check_partition,
    check_range,
    check_requests,
    route,
    stamps_for,
    subject_of,
)
from belated.journals.bandits import Registration, check_partition_count, find_bandit, register
from belated.journals.journal import NamedJournal
from belated.journals.kafka.client import Cluster, Topics, new_name
from belated.journals.kafka.commits import MAX_EVENTS, Commit, Place, pack
from belated.journals.kafka.outcomes import OutcomeTopic
from belated.journals.kafka.piece_files import PieceFiles
from belated.journals.kafka.records import Finder, Offsets, Reader, Writer
from belated.journals.log import Appended, Requests, Tail
from belated.journals.outcomes import OutcomeMessage
from belated.journals.pages import ColumnPage
from belated.journals.shelf import ACTS, CellShelf
from belated.model.kernels.pages import PADDING

_LAST_OF_DECISIONS = 5
_OF_SUBJECTS = [kind.__struct_config__.tag for kind in get_args(SubjectEvent)]
#: Maximum distance of offsets that are fetched together in a lookup.
_RUN = 64
_ASK_OWNER = (
    "query the bandit or the learner that owns the partition, or use generated ids, which need no "
    "lookup"
)


class KafkaJournal(CellShelf, NamedJournal):
    """A journal in a Kafka topic; enough brokers have stored the events when an append returns.

    Any number of threads, processes and machines may append concurrently. Each call appends one
    Kafka record per partition. Timestamps come from the brokers, in milliseconds, and never
    decrease. Identity, owners, snapshots and operator actions are cells of a store in PostgreSQL,
    whose tables must exist (:meth:`PostgresJournal.create_tables`), or in a SQLite file if all
    processes run on one machine.

    Records cannot be looked up by id. Lookups, and decisions with ids chosen by callers, raise
    :class:`NotIndexed`; query the bandit or learner that has folded the partition. Generated ids
    need no lookup.

    The topic is created when the bandit is first opened. Its settings are checked whenever the
    journal is opened, and rejected if records could be lost or have wrong timestamps. Requires the
    extras ``kafka`` and ``postgres``. See the how-to on Kafka.

    Args:
        brokers: ``host:port`` of some brokers, separated by commas.
        shelf: Address of the store of cells: ``postgresql://user@host/name``, or
            ``sqlite:///offers.db``.
        bandit: Name of the bandit within that store.
        partitions: Number of partitions, a power of two that is fixed when the bandit is first
            opened. None means the existing number, or 1 for a new bandit.
        wait: Seconds to wait for brokers and the database before raising
            :class:`JournalUnavailable`.
        copies: Number of replicas of each record. Use 1 only for tests: losing a disk loses the
            journal.
        settings: librdkafka settings, such as ``{"security.protocol": "SSL"}``.
        snapshots: Folder for snapshot pieces, shared by all processes, or an fsspec address such as
            ``s3://…``. By default, pieces are stored in cells.
    """

    #: Records cannot be looked up by id, so services assume that recently generated ids are new.
    finds_by_id = False
    _closed = False

    def __init__(
        self,
        brokers: str,
        *,
        shelf: str,
        bandit: str,
        partitions: int | None = None,
        wait: float = 10.0,
        copies: int = 3,
        settings: Mapping[str, str] | None = None,
        snapshots: str | None = None,
    ) -> None:
        self._bandit = check_id(bandit, "the bandit's name")
        requested = None if partitions is None else check_partitions(partitions)
        #: Replaces the brokers' clock in tests.
        self._clock: Clock | None = None
        self._cluster = cluster = Cluster(brokers, settings or {}, wait)
        topics, store = Topics(cluster, copies), open_store(shelf)
        self._place = f"{cluster.place}, cells in {store.place}"
        self._open_shelf(store.cells(wait=wait))
        try:
            self._topic = self._open_topic(topics, requested)
            limit = topics.check(self._topic, self._partitions)
        except BaseException:
            self.cells.close()
            raise
        if snapshots is not None:
            self._snapshots = PieceFiles(self.cells, snapshots, self._bandit, self._topic)
        self._writer = Writer(cluster, self._topic, limit)
        self._offsets = Offsets(cluster, self._topic)
        # The reader follows the log. Lookups use the finder, so that they do not move the reader.
        self._reader = Reader(cluster, self._topic, self._offsets, self._floor)
        self._finder = Finder(cluster, self._topic, self._offsets, self._floor)
        # Reads decisions again when their outcomes are known.
        self._second_reader = Reader(cluster, self._topic, self._offsets, self._floor)
        self._outcomes = OutcomeTopic(cluster, self._topic, self._partitions, copies)

    def _open_topic(self, topics: Topics, requested: int | None) -> str:
        """Return the bandit's topic; if the bandit is new, create the topic and register it."""
        _, entry = find_bandit(self.cells, self._bandit)
        if entry is None:
            name = new_name(self._bandit)
            topics.make(name, requested or 1)
            entry = register(self.cells, Registration(self._bandit, 0, requested or 1, topic=name))
            assert entry is not None
            if entry.topic != name:  # another process registered the bandit first
                with suppress(JournalError):
                    topics.remove(name)
        if entry.topic is None:
            message = (
                f"the records of bandit {self._bandit!r} are not in Kafka: open it by its "
                "`postgresql:` or `sqlite:` address, or choose another name"
            )
            raise JournalMismatch(message)
        check_partition_count(self._bandit, self._place, requested, entry.partitions)
        self._partitions = entry.partitions
        return entry.topic

    # --- lookups, which are rejected ------------------------------------------------------------

    def append_unique(
        self, events: Sequence[Event], ids: Collection[str], requests: Requests | None = None
    ) -> Appended:
        """Append events; reject ids chosen by callers, which would require a lookup."""
        self._refuse_ids(ids)
        return Appended(self.append(events, requests=requests), {})

    def decisions(self, ids: Sequence[str]) -> dict[str, Decision]:
        """Raise NotIndexed, because only the owner of a partition knows its decisions."""
        self._refuse_ids(ids)
        return {}

    def records_of(self, ids: Sequence[str], limit: int | None = None) -> list[Record]:
        """Raise NotIndexed, because only the owner of a partition knows its records."""
        self._refuse_ids(ids)
        return []

    def settlements(self, partition: int) -> list[Record]:
        """Raise NotIndexed, because only the owner of a partition knows its settlements."""
        check_partition(partition, self._partitions)
        self._check_open()
        raise NotIndexed(f"settlements of partition {partition} are not indexed: {_ASK_OWNER}")

    def overwrite(self, keys: Sequence[bytes]) -> int:
        """Raise JournalError, because records in Kafka cannot be changed."""
        self._check_open()
        if keys:
            message = "records in Kafka cannot be overwritten. Learners ignore erased events; to"
            raise JournalError(f"{message} delete their bytes, trim the partition")
        return 0

    def _refuse_ids(self, ids: Collection[str]) -> None:
        self._check_open()
        for id in ids:
            name = id.removeprefix(subject_id(""))
            raise NotIndexed(f"{self._place} cannot look up the id {name!r}: {_ASK_OWNER}")

    # --- old records -----------------------------------------------------------------------------

    def drop(self, partition: int, limit: int) -> int:
        """Drop all records up to the start at once, in whole Kafka records; see :meth:`Log.drop`.

        Returns:
            The number of Kafka records dropped.
        """
        start = self.start(partition).position
        span = self._offsets.span(partition)
        offset = Place.behind(start - 1).offset
        if not start or offset < span.first:
            return 0
        commit = self._finder.commits(partition, offset, span.end, 1)[0]
        before = offset if commit.offset == offset and commit.last > start else offset + 1
        if before > span.first:
            Topics(self._cluster, 1).drop(self._topic, partition, before)
        return before - span.first

    def _floor(self, partition: int) -> int:
        return self.start(partition).stamp // 1000

    def now(self) -> int:
        """Return the time of the database's clock, in microseconds since 1970.

        Brokers cannot be asked for their time. A :class:`Settled` event counts at most up to its
        own timestamp, so a clock ahead of the brokers' clocks settles nothing early.
        """
        self._check_open()
        return super().now() if self._clock is None else self._clock()

    def close(self) -> None:
        """Close all connections; any later call raises :class:`JournalClosed`."""
        if not self._closed:
            self._closed = True
            self._writer.close()
            self._reader.close()
            self._finder.close()
            self._second_reader.close()
            self._outcomes.close()
            self._offsets.close()
        self.cells.close()

    # --- the log ---------------------------------------------------------------------------------

    def append(
        self,
        events: Sequence[Event],
        *,
        recorded: Sequence[int] | None = None,
        requests: Requests | None = None,
    ) -> list[int]:
        """Append events with one Kafka record per partition; see :meth:`Log.append`."""
        check_requests(events, requests)
        homes = [route(event, self._partitions) for event in events]
        self._check_open()
        if not events:
            return []
        indexes_by_home: dict[int, list[int]] = {}
        for n, home in enumerate(homes):
            indexes_by_home.setdefault(home, []).append(n)
        stamps = self._stamps(events, homes, recorded)
        values = [
            (home, _pack(events, indexes, stamps, requests))
            for home, indexes in indexes_by_home.items()
        ]
        offsets = self._writer.send(values)
        positions = [0] * len(events)
        for indexes, offset in zip(indexes_by_home.values(), offsets, strict=True):
            for number, n in enumerate(indexes):
                positions[n] = Place(offset, number).position
        self._index(zip(homes, positions, events, strict=True))
        return positions

    def _stamps(
        self, events: Sequence[Event], homes: Sequence[int], recorded: Sequence[int] | None
    ) -> list[int] | None:
        """Return the timestamps to send with the events; None means the broker's timestamps."""
        if recorded is None and self._clock is None:
            return None
        stamps = stamps_for(events, recorded, self._clock or self.now)
        arrivals = zip(homes, stamps, events, strict=True)
        return [record.recorded for record in arrange(arrivals, self._tail_of)]

    def import_records(
        self, records: Iterable[Record], *, requests: Requests | None = None
    ) -> None:
        """Append records with their timestamps; see :meth:`Log.import_records`.

        If several Kafka records are needed, they are sent in a transaction.
        """
        self._check_open()
        arranged = arrange_imported(records, self._partitions, self._tail_of)
        events = [record.event for record in arranged]
        stamps = [record.recorded for record in arranged]
        check_requests(events, requests)

        def split(indexes: list[int]) -> list[tuple[list[int], bytes]]:
            """Split events into Kafka records of permitted size."""
            if len(indexes) <= MAX_EVENTS:
                value = _pack(events, indexes, stamps, requests)
                if len(value) <= self._writer.room or len(indexes) == 1:
                    return [(indexes, value)]
            half = len(indexes) // 2
            return split(indexes[:half]) + split(indexes[half:])

        by_home = sorted(range(len(arranged)), key=lambda n: arranged[n].partition)
        commits: list[tuple[list[int], int, bytes]] = []
        for home, indexes_of_home in groupby(by_home, key=lambda n: arranged[n].partition):
            commits += [(part, home, value) for part, value in split(list(indexes_of_home))]
        values = [(home, value) for _, home, value in commits]
        if not values:
            return
        offsets = (self._writer.send if len(values) == 1 else self._writer.send_whole)(values)
        for (indexes, home, _), offset in zip(commits, offsets, strict=True):
            self._finder.wait_for(home, offset)
            self._index(
                (home, Place(offset, number).position, events[n])
                for number, n in enumerate(indexes)
            )

    def read(self, partition: int, after: int, limit: int) -> list[Record]:
        """Return the records after a position; see :meth:`Log.read`."""
        records = self._records(self._reader, partition, after, limit)
        self._keep_acts(records)
        return records

    def read_again(self, partition: int, after: int, limit: int) -> list[Record]:
        """Return the records after a position; see :meth:`OutcomeLog.read_again`."""
        return self._records(self._second_reader, partition, after, limit)

    def put_outcomes(self, partition: int, outcomes: Sequence[OutcomeMessage]) -> None:
        """Send outcomes to the topic of outcomes; see :meth:`OutcomeLog.put_outcomes`."""
        self._check_open()
        self._outcomes.send(partition, outcomes)

    def _records(self, reader: Reader, partition: int, after: int, limit: int) -> list[Record]:
        records = []
        for commit, first, last in self._read(reader, partition, after, limit):
            for index in range(first, last):
                data = commit.event(index)
                position = Place(commit.offset, index).position
                try:
                    event = read_event(data) if commit.is_read else Opaque(bytes(data))
                except CorruptEvent as error:
                    raise CorruptEvent(f"{self._where(partition, position)}: {error}") from None
                stamp = int(commit.recorded[index])
                records.append(Record(partition, position, stamp, event, digest_of(data)))
        return records

    def read_columns(self, partition: int, after: int, limit: int) -> ColumnPage:
        """Return records after a position as columns; see :meth:`ColumnLog.read_columns`."""
        parts = self._read(self._reader, partition, after, limit)
        spans = [(int(c.starts[first]), int(c.ends[last - 1])) for c, first, last in parts]
        data = [c.value[begin:end] for (c, _, _), (begin, end) in zip(parts, spans, strict=True)]
        lengths = [(c.ends - c.starts)[first:last] for c, first, last in parts]
        places = [Place(c.offset, 0).position + np.arange(a, b) for c, a, b in parts]
        stamps = [c.recorded[first:last] for c, first, last in parts]
        digests = [digest_of(c.event(n)) for c, first, last in parts for n in range(first, last)]
        page = ColumnPage(
            _joined(places),
            _joined(stamps),
            np.frombuffer(b"".join(digests), dtype=np.uint8).reshape(-1, 32),
            np.frombuffer(b"".join([*data, bytes(PADDING)]), dtype=np.uint8),
            np.cumsum(_joined(lengths)),
        )
        self._index_columns(page, partition)
        return page

    def _index_columns(self, page: ColumnPage, partition: int) -> None:
        # The third byte of an event is its kind; operator actions are rare.
        starts = np.concatenate([[0], page.ends[:-1]])[: len(page)]
        kinds = page.data[starts + 2]
        lines = np.flatnonzero((kinds > _LAST_OF_DECISIONS) & ~np.isin(kinds, _OF_SUBJECTS))
        self._keep_acts(page.record(int(n), partition) for n in lines)

    def _read(
        self, reader: Reader, partition: int, after: int, limit: int
    ) -> list[tuple[Commit, int, int]]:
        """Return commits, each with the range of events to read."""
        check_range(partition, after, limit, self._partitions)
        self._check_open()
        offset, index = Place.behind(after)
        span = self._offsets.span(partition)
        if offset < span.first:
            self._check_trimmed(partition, after, span.first)
            offset, index = span.first, 0
        if not limit or offset >= span.end:
            return []
        ranges = []
        for commit in reader.commits(partition, offset, span.end, index + limit):
            first = index if commit.offset == offset else 0
            last = min(len(commit), first + limit)
            if first < last:
                ranges.append((commit, first, last))
                limit -= last - first
            if not limit:
                break
        return ranges

    def _check_trimmed(self, partition: int, after: int, first: int) -> None:
        """Raise if records after a position were trimmed, or deleted without a base."""
        start = self.start(partition).position
        if after < start:
            raise HistoryTrimmed(partition, start)
        offset = Place.behind(start - 1).offset + 1
        if offset < first:
            where = self._where(partition, Place(offset, 0).position)
            message = f"{where} was deleted from Kafka, and no base replaces it"
            raise CorruptJournal(f"{message}: restore the topic, and trim it only with `belated`")

    def advanced(self, positions: Mapping[int, int]) -> set[int]:
        """Return the partitions whose ends have changed; see :meth:`WatchedLog.advanced`."""
        self._check_open()
        ends = self._offsets.ends(positions)
        # The position of the last event is in the last record, which is before the end.
        return {n for n, last in positions.items() if ends[n] != Place.last(last).offset + 1}

    def requests(self, partition: int, positions: Sequence[int]) -> dict[int, bytes]:
        """Return the stored requests of decisions, by position."""
        check_partition(partition, self._partitions)
        self._check_open()
        unique = set(positions)
        span = self._offsets.span(partition)
        stored: dict[int, bytes] = {}
        offsets = sorted({Place.behind(position - 1).offset for position in unique})
        for first, last in _runs([n for n in offsets if span.first <= n < span.end]):
            for commit in self._finder.commits(partition, first, last + 1, MAX_EVENTS * _RUN):
                for index, request in commit.requests().items():
                    stored[Place(commit.offset, index).position] = request
        return {position: data for position, data in stored.items() if position in unique}

    def _tail_of(self, partition: int) -> Tail:
        check_partition(partition, self._partitions)
        self._check_open()
        span = self._offsets.span(partition)
        # The last offsets may be transaction markers, which are not visible.
        back = 1
        while span.end > span.first:
            offset = max(span.first, span.end - back)
            commits = self._finder.commits(partition, offset, span.end, MAX_EVENTS * back)
            if commits:
                return Tail(commits[-1].last, int(commits[-1].recorded[-1]))
            if offset == span.first:
                break
            back *= 2
        return self.start(partition)

    def _index(self, arrived: Iterable[tuple[int, int, Event | Opaque]]) -> None:
        """Copy operator actions to their cells.

        Readers also do this, because the process that appended an action may have died before
        copying it.

        Args:
            arrived: Partition, position and event of each appended event.
        """
        for home, position, event in arrived:
            if subject_of(event) in ACTS:
                self._keep_acts(self._records(self._finder, home, position - 1, 1))

    def _check_open(self) -> None:
        if self._closed:
            raise JournalClosed("the journal is closed: open it again")


def _pack(
    events: Sequence[Event | Opaque],
    indexes: Sequence[int],
    stamps: Sequence[int] | None,
    requests: Requests | None,
) -> bytes:
    """Return the value of a record that contains the events at these indexes."""
    if len(indexes) > MAX_EVENTS:
        message = f"a call has {len(indexes)} events of one partition, more than {MAX_EVENTS}"
        raise InvalidInput(f"{message}: append them in several calls", len(indexes))
    return pack(
        [encode(events[n]) for n in indexes],
        None if stamps is None else [stamps[n] for n in indexes],
        {number: requests[n] for number, n in enumerate(indexes) if n in requests}
        if requests
        else None,
    )


def _runs(offsets: Sequence[int]) -> Iterator[tuple[int, int]]:
    """Yield the first and last offset of each run of nearby offsets."""
    start = 0
    for n in range(1, len(offsets) + 1):
        if n == len(offsets) or offsets[n] - offsets[start] >= _RUN:
            yield offsets[start], offsets[n - 1]
            start = n


def _joined(parts: list[np.ndarray]) -> np.ndarray:
    return np.concatenate(parts) if parts else np.zeros(0, dtype=np.int64)
