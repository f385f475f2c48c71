"""A journal whose log is in Kafka, and whose cells are in PostgreSQL or SQLite."""

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
from belated.journals.bandits import Registration, check_wanted, find_bandit, register_as
from belated.journals.journal import NamedJournal
from belated.journals.kafka.client import Cluster, Topics, new_name
from belated.journals.kafka.commits import MAX_EVENTS, Commit, Place, pack
from belated.journals.kafka.piece_files import PieceFiles
from belated.journals.kafka.records import Finder, Offsets, Reader, Writer
from belated.journals.log import Appended, Requests, Tail
from belated.journals.pages import ColumnPage
from belated.journals.shelf import ACTS, CellShelf
from belated.model.kernels.pages import PADDING

_LAST_OF_DECISIONS = 5
_OF_SUBJECTS = [kind.__struct_config__.tag for kind in get_args(SubjectEvent)]
#: Records of Kafka that are looked up at a time, those in between included.
_RUN = 64
_ASK_OWNER = (
    "ask the bandit or the learner that owns the partition, or use ids made here, under which no "
    "second decision is made"
)


class KafkaJournal(CellShelf, NamedJournal):
    """Keeps events in a topic of Kafka, each append at enough brokers when it returns.

    Any number of threads, processes and machines may append at the same time. Events of one call
    and one partition are one record of Kafka. Stamps are those of the brokers, in milliseconds,
    held at the greatest so far. Identity, owners, snapshots and the acts of operators are cells of
    a store in PostgreSQL, whose tables must exist (:meth:`PostgresJournal.create_tables`), or in a
    file of SQLite, if all processes are on one machine.

    It is a log and no :class:`UniqueLog`: nothing is found by id. So an id that callers choose is
    refused for a decision, with :class:`NotIndexed`, and so is a look-up by id; the bandit or
    learner that has folded the partition can answer. Ids made here need no look-up.

    The topic is made when the bandit is first opened, and its settings are read back whenever it
    is: if a record could be lost or misdated, it is refused. Needs the extras ``kafka`` and
    ``postgres``. The how-to on Kafka shows it in use.

    Args:
        brokers: ``host:port`` of some brokers, with commas between.
        shelf: Address of the store of cells: ``postgresql://user@host/name``, or
            ``sqlite:///offers.db``.
        bandit: Name of the bandit within that store.
        partitions: A power of two, fixed when the bandit is first opened; None for as many as
            there are, and 1 in a new one.
        wait: Seconds to wait for brokers and the database before :class:`JournalUnavailable`.
        copies: Brokers that must have a copy of each record. With 1, losing a disk loses the
            journal: for tests.
        settings: Of librdkafka, such as ``{"security.protocol": "SSL"}``.
        snapshots: Where pieces of snapshots are: a folder that all processes reach, or an address
            that fsspec knows, as in ``s3://…``. In cells if None.
    """

    #: Nothing is: a service then takes an id that its client has just made to be new.
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
        wanted = None if partitions is None else check_partitions(partitions)
        #: Stands for the brokers' clock; for tests.
        self._clock: Clock | None = None
        self._cluster = cluster = Cluster(brokers, settings or {}, wait)
        topics, store = Topics(cluster, copies), open_store(shelf)
        self._place = f"{cluster.place}, cells in {store.place}"
        self._open_shelf(store.cells(wait=wait))
        try:
            self._topic = self._open_topic(topics, wanted)
            limit = topics.check(self._topic, self._partitions)
        except BaseException:
            self.cells.close()
            raise
        if snapshots is not None:
            self._snapshots = PieceFiles(self.cells, snapshots, self._bandit, self._topic)
        self._writer = Writer(cluster, self._topic, limit)
        self._offsets = Offsets(cluster, self._topic)
        # Follows the log; the other one looks single records up, so that neither loses its place.
        self._reader = Reader(cluster, self._topic, self._offsets, self._floor)
        self._finder = Finder(cluster, self._topic, self._offsets, self._floor)

    def _open_topic(self, topics: Topics, wanted: int | None) -> str:
        """Find the bandit; make a topic first if there is none."""
        _, found = find_bandit(self.cells, self._bandit)
        if found is None:
            name = new_name(self._bandit)
            topics.make(name, wanted or 1)
            new = Registration(self._bandit, 0, wanted or 1, topic=name)
            found = register_as(self.cells, new)
            assert found is not None
            if found.topic != name:  # another process was faster
                with suppress(JournalError):
                    topics.remove(name)
        if found.topic is None:
            message = (
                f"the records of bandit {self._bandit!r} are not in Kafka: open it by its address "
                "that begins with `postgresql:` or `sqlite:`"
            )
            raise JournalMismatch(f"{message}, or choose another name")
        check_wanted(self._bandit, self._place, wanted, found.partitions)
        self._partitions = found.partitions
        return found.topic

    # --- what is found by id is refused ----------------------------------------------------------

    def append_unique(
        self, events: Sequence[Event], ids: Collection[str], requests: Requests | None = None
    ) -> Appended:
        """Append events if no id among them is a caller's own; refuse a look-up."""
        self._refuse_ids(ids)
        return Appended(self.append(events, requests=requests), {})

    def decisions(self, ids: Sequence[str]) -> dict[str, Decision]:
        """Refuse: the owner of a partition knows its decisions."""
        self._refuse_ids(ids)
        return {}

    def records_of(self, ids: Sequence[str], limit: int | None = None) -> list[Record]:
        """Refuse: the owner of a partition knows its records."""
        self._refuse_ids(ids)
        return []

    def settlements(self, partition: int) -> list[Record]:
        """Refuse: the owner of a partition knows when it was settled."""
        check_partition(partition, self._partitions)
        self._check_open()
        raise NotIndexed(f"when partition {partition} was settled is not indexed: {_ASK_OWNER}")

    def overwrite(self, keys: Sequence[bytes]) -> int:
        """Refuse: what Kafka has, nobody can change."""
        self._check_open()
        if keys:
            message = "records in Kafka cannot be overwritten: what was erased is not learned from"
            raise JournalError(f"{message}, and its bytes go when the partition is trimmed")
        return 0

    def _refuse_ids(self, ids: Collection[str]) -> None:
        self._check_open()
        for id in ids:
            name = id.removeprefix(subject_id(""))
            raise NotIndexed(f"{self._place} finds nothing by the id {name!r}: {_ASK_OWNER}")

    # --- old records -----------------------------------------------------------------------------

    def drop(self, partition: int, limit: int) -> int:
        """Drop the records up to the start; see :meth:`Log.drop`.

        Brokers do it at once, and by whole records of Kafka.

        Returns:
            How many records of Kafka were dropped.
        """
        start = self.start(partition).position
        span = self._offsets.span(partition)
        offset = Place.behind(start - 1).offset
        if not start or offset < span.first:
            return 0
        found = self._finder.commits(partition, offset, span.end, 1)[0]
        before = offset if found.offset == offset and found.last > start else offset + 1
        if before > span.first:
            Topics(self._cluster, 1).drop(self._topic, partition, before)
        return before - span.first

    def _floor(self, partition: int) -> int:
        return self.start(partition).stamp // 1000

    def now(self) -> int:
        """Return the time of the database's clock, in microseconds since 1970.

        Brokers cannot be asked for theirs. A :class:`Settled` counts up to its own stamp at most,
        so a clock that is ahead of theirs settles nothing early.
        """
        self._check_open()
        return super().now() if self._clock is None else self._clock()

    def close(self) -> None:
        """Let go of all connections; any later call raises :class:`JournalClosed`."""
        if not self._closed:
            self._closed = True
            self._writer.close()
            self._reader.close()
            self._finder.close()
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
        """Append events, what goes to one partition as one record; see :meth:`Log.append`."""
        check_requests(events, requests)
        homes = [route(event, self._partitions) for event in events]
        self._check_open()
        if not events:
            return []
        places: dict[int, list[int]] = {}
        for n, home in enumerate(homes):
            places.setdefault(home, []).append(n)
        stamps = self._stamps(events, homes, recorded)
        values = [
            (home, _pack([encode(events[n]) for n in some], some, stamps, requests))
            for home, some in places.items()
        ]
        sent = self._writer.send(values)
        positions = [0] * len(events)
        for some, offset in zip(places.values(), sent, strict=True):
            for index, n in enumerate(some):
                positions[n] = Place(offset, index).position
        self._index(zip(homes, positions, events, strict=True))
        return positions

    def _stamps(
        self, events: Sequence[Event], homes: Sequence[int], recorded: Sequence[int] | None
    ) -> list[int] | None:
        """Stamps that go with the events; None where the broker's are used."""
        if recorded is None and self._clock is None:
            return None
        stamps = stamps_for(events, recorded, self._clock or self.now)
        arrivals = zip(homes, stamps, events, strict=True)
        return [one.recorded for one in arrange(arrivals, self._tail_of)]

    def import_records(
        self, records: Iterable[Record], *, requests: Requests | None = None
    ) -> None:
        """Append records with their stamps; see :meth:`Log.import_records`.

        What fits into one record of Kafka is sent as such, anything else in a transaction.
        """
        self._check_open()
        arranged = arrange_imported(records, self._partitions, self._tail_of)
        check_requests([record.event for record in arranged], requests)
        by_home = sorted(range(len(arranged)), key=lambda n: arranged[n].partition)
        commits: list[tuple[list[int], int, bytes]] = []
        for home, some in groupby(by_home, key=lambda n: arranged[n].partition):
            packed = self._packed(list(some), arranged, requests)
            commits += [(places, home, value) for places, value in packed]
        values = [(home, value) for _, home, value in commits]
        if not values:
            return
        sent = (self._writer.send if len(values) == 1 else self._writer.send_whole)(values)
        for (places, home, _), offset in zip(commits, sent, strict=True):
            self._finder.wait_for(home, offset)
            self._index(
                (home, Place(offset, index).position, arranged[n].event)
                for index, n in enumerate(places)
            )

    def _packed(
        self, some: list[int], arranged: list[Record], requests: Requests | None
    ) -> list[tuple[list[int], bytes]]:
        """Return the values of as few records of Kafka as hold these, and what each holds."""
        if len(some) <= MAX_EVENTS:
            stamps = [record.recorded for record in arranged]
            value = _pack([encode(arranged[n].event) for n in some], some, stamps, requests)
            if len(value) <= self._writer.room or len(some) == 1:
                return [(some, value)]
        half = len(some) // 2
        return [
            *self._packed(some[:half], arranged, requests),
            *self._packed(some[half:], arranged, requests),
        ]

    def read(self, partition: int, after: int, limit: int) -> list[Record]:
        """Return the records beyond a position; see :meth:`Log.read`."""
        records = self._records(self._reader, partition, after, limit)
        self._keep_acts(records)
        return records

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
        """Return the records beyond a position as columns; see :meth:`ColumnLog.read_columns`."""
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
        # The third byte of an event is its kind; those of operators are rare.
        starts = np.concatenate([[0], page.ends[:-1]])[: len(page)]
        kinds = page.data[starts + 2]
        odd = np.flatnonzero((kinds > _LAST_OF_DECISIONS) & ~np.isin(kinds, _OF_SUBJECTS))
        self._keep_acts(page.record(int(n), partition) for n in odd)

    def _read(
        self, reader: Reader, partition: int, after: int, limit: int
    ) -> list[tuple[Commit, int, int]]:
        """Commits, and which of their events: from the first to before the last."""
        check_range(partition, after, limit, self._partitions)
        self._check_open()
        offset, index = Place.behind(after)
        span = self._offsets.span(partition)
        if offset < span.first:
            self._check_trimmed(partition, after, span.first)
            offset, index = span.first, 0
        if not limit or offset >= span.end:
            return []
        found = []
        for commit in reader.commits(partition, offset, span.end, index + limit):
            first = index if commit.offset == offset else 0
            last = min(len(commit), first + limit)
            if first < last:
                found.append((commit, first, last))
                limit -= last - first
            if not limit:
                break
        return found

    def _check_trimmed(self, partition: int, after: int, first: int) -> None:
        """Refuse to read on if records are gone that the base does not stand for."""
        start = self.start(partition).position
        if after < start:
            raise HistoryTrimmed(partition, start)
        offset = Place.behind(start - 1).offset + 1
        if offset < first:
            where = self._where(partition, Place(offset, 0).position)
            message = f"{where} was deleted in Kafka, and nothing holds what it came to"
            raise CorruptJournal(f"{message}: restore the topic, and let only `belated` trim it")

    def grown(self, positions: Mapping[int, int]) -> set[int]:
        """Return the partitions that may end elsewhere; see :class:`WatchedLog`."""
        self._check_open()
        ends = self._offsets.ends(positions)
        # A position is in the record before the end, unless something has come or is gone.
        return {one for one, at in positions.items() if ends[one] != Place.last(at).offset + 1}

    def requests(self, partition: int, positions: Sequence[int]) -> dict[int, bytes]:
        """Return what decisions were chosen from, by position, where it was kept."""
        check_partition(partition, self._partitions)
        self._check_open()
        wanted = set(positions)
        span = self._offsets.span(partition)
        found: dict[int, bytes] = {}
        offsets = sorted({Place.behind(one - 1).offset for one in wanted})
        for first, last in _runs([one for one in offsets if span.first <= one < span.end]):
            for commit in self._finder.commits(partition, first, last + 1, MAX_EVENTS * _RUN):
                kept = commit.requests().items()
                found |= {Place(commit.offset, index).position: one for index, one in kept}
        return {position: one for position, one in found.items() if position in wanted}

    def _tail_of(self, partition: int) -> Tail:
        check_partition(partition, self._partitions)
        self._check_open()
        span = self._offsets.span(partition)
        # The last offsets may be ends of transactions, which readers do not see.
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
        """Have the acts of operators found without reading the log.

        Readers do it too: whoever appended one may have died before it was in its cell.

        Args:
            arrived: Partition, position and event of what was appended.
        """
        for home, position, event in arrived:
            if subject_of(event) in ACTS:
                self._keep_acts(self._records(self._finder, home, position - 1, 1))

    def _check_open(self) -> None:
        if self._closed:
            raise JournalClosed("the journal is closed: open it again")


def _pack(
    data: Sequence[bytes],
    places: Sequence[int],
    stamps: Sequence[int] | None,
    requests: Requests | None,
) -> bytes:
    """Return the value of a record with the events at these places of a call."""
    if len(data) > MAX_EVENTS:
        message = f"{len(data)} events of one partition in a call: at most {MAX_EVENTS} fit"
        raise InvalidInput(f"{message}; append them in several calls", len(data))
    own = None if stamps is None else [stamps[n] for n in places]
    kept = None
    if requests:
        kept = {index: requests[n] for index, n in enumerate(places) if n in requests}
    return pack(data, own, kept)


def _runs(offsets: Sequence[int]) -> Iterator[tuple[int, int]]:
    """Yield the first and the last of offsets that are near each other."""
    start = 0
    for n in range(1, len(offsets) + 1):
        if n == len(offsets) or offsets[n] - offsets[start] >= _RUN:
            yield offsets[start], offsets[n - 1]
            start = n


def _joined(parts: list[np.ndarray]) -> np.ndarray:
    return np.concatenate(parts) if parts else np.zeros(0, dtype=np.int64)
