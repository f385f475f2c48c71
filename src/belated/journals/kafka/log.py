"""The log of a bandit in Kafka: append and import, read by position."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import groupby

import numpy as np

from belated.core.events import Event, Opaque, Record, digest_of, encode, read_event
from belated.exceptions import (
    CorruptEvent,
    CorruptJournal,
    HistoryTrimmed,
    InvalidInput,
    JournalClosed,
)
from belated.journals.acts import ACTS, CellActs
from belated.journals.arrivals import (
    Clock,
    arrange,
    arrange_imported,
    check_partition,
    check_range,
    check_requests,
    route,
)
from belated.journals.columns import ColumnPage
from belated.journals.kafka.commits import MAX_EVENTS, Commit, Place, pack
from belated.journals.kafka.offsets import Offsets
from belated.journals.kafka.reader import Finder, Reader
from belated.journals.kafka.writer import Writer
from belated.journals.log import Requests, Tail
from belated.journals.lookups import subject_of
from belated.journals.named import NamedJournal
from belated.model.kernels.pages import PADDING


class KafkaLog(CellActs, NamedJournal):
    """What is appended, and read back by position; see :class:`KafkaJournal`."""

    _writer: Writer
    _offsets: Offsets
    #: Follows the log; the other one looks single records up, so that neither loses its place.
    _reader: Reader
    _finder: Finder
    _topic: str
    #: Stands for the brokers' clock; for tests.
    _clock: Clock | None
    _closed = False

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
        for some, (offset, _) in zip(places.values(), sent, strict=True):
            for index, n in enumerate(some):
                positions[n] = Place(offset, index).position
        self._index(zip(homes, positions, events, strict=True))
        return positions

    def _stamps(
        self, events: Sequence[Event], homes: Sequence[int], recorded: Sequence[int] | None
    ) -> list[int] | None:
        """Stamps that go with the events; None where the broker's are used."""
        if recorded is None:
            if self._clock is None:
                return None
            recorded = [self._clock()] * len(events)
        elif len(recorded) != len(events):
            message = f"{len(recorded)} times were given for {len(events)} events"
            raise InvalidInput(f"{message}: one each is needed", recorded)
        arrivals = zip(homes, recorded, events, strict=True)
        return [one.recorded for one in arrange(arrivals, self._tail)]

    def import_records(
        self, records: Iterable[Record], *, requests: Requests | None = None
    ) -> None:
        """Append records with their stamps; see :meth:`Log.import_records`.

        What fits into one record of Kafka is sent as such, anything else in a transaction.
        """
        self._check_open()
        arranged = arrange_imported(records, self._partitions, self._tail)
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
        for (places, home, _), (offset, _) in zip(commits, sent, strict=True):
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
        self._keep_acts([one for one in records if subject_of(one.event) in ACTS])
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
        odd = np.flatnonzero(page.data[starts + 2] > _LAST_OF_DECISIONS)
        found = [page.record(int(n), partition) for n in odd]
        self._keep_acts([one for one in found if subject_of(one.event) in ACTS])

    def _read(
        self, reader: Reader, partition: int, after: int, limit: int
    ) -> list[tuple[Commit, int, int]]:
        """Commits, and which of their events: from the first to before the last."""
        check_range(partition, after, limit, self._partitions)
        self._check_open()
        offset, index = Place.behind(after)
        span = reader.span(partition)
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
        span = self._finder.span(partition)
        found: dict[int, bytes] = {}
        offsets = sorted({Place.behind(one - 1).offset for one in wanted})
        for first, last in _runs([one for one in offsets if span.first <= one < span.end]):
            for commit in self._finder.commits(partition, first, last + 1, MAX_EVENTS * _RUN):
                kept = commit.requests().items()
                found |= {Place(commit.offset, index).position: one for index, one in kept}
        return {position: one for position, one in found.items() if position in wanted}

    def end(self, partition: int) -> int:
        """Return the position of the last record, 0 if there is none."""
        return self._tail(partition).position

    def last_stamp(self, partition: int) -> int:
        """Return the stamp of the last record, 0 if there is none."""
        return self._tail(partition).stamp

    def _tail(self, partition: int) -> Tail:
        check_partition(partition, self._partitions)
        self._check_open()
        span = self._finder.span(partition)
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

    def _where(self, partition: int, position: int) -> str:
        return (
            f"the record at partition {partition}, position {position} of bandit "
            f"{self._bandit!r} in {self._place}"
        )

    def _check_open(self) -> None:
        if self._closed:
            raise JournalClosed("the journal is closed: open it again")


_LAST_OF_DECISIONS = 5
#: Records of Kafka that are looked up at a time, those in between included.
_RUN = 64


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
