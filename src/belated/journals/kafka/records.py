"""The producer and the consumers of a topic."""

from __future__ import annotations

import os
import secrets
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Generic, TypeVar

import msgspec

from belated.exceptions import CommitTooLarge, HistoryChanged
from belated.journals.kafka.client import Cluster, KafkaError, KafkaException
from belated.journals.kafka.commits import Commit, Place, unpack

# Import after the modules above, which raise MissingExtra if confluent-kafka is not installed.
from confluent_kafka import (  # isort: skip
    OFFSET_BEGINNING,
    OFFSET_END,
    Consumer,
    Message,
    Producer,
    TopicPartition,
)

#: Overhead of a record that is sent separately, in bytes.
_AROUND = 128
#: Time after which the brokers abort the transaction of a dead client, in milliseconds.
_TRANSACTION = 10_000


T = TypeVar("T")


class PerProcess(Generic[T]):
    """One Kafka client per process, because clients do not survive a fork; threads may share it.

    Args:
        create: Creates a client.
    """

    def __init__(self, create: Callable[[], T]) -> None:
        self._create = create
        self._lock = threading.Lock()
        self._clients: dict[int, T] = {}

    def get(self) -> T:
        """Return the client of this process; create it if necessary."""
        with self._lock:
            if os.getpid() not in self._clients:
                self._clients[os.getpid()] = self._create()
            return self._clients[os.getpid()]

    def discard(self, client: T | None = None) -> T | None:
        """Remove and return this process's client; if ``client`` is given, only that client."""
        with self._lock:
            if client is not None and self._clients.get(os.getpid()) is not client:
                return None
            return self._clients.pop(os.getpid(), None)


class Writer:
    """Sends records, and waits until enough brokers have stored them.

    Threads may share a writer and send concurrently.

    Args:
        cluster: Kafka cluster.
        topic: Name of the topic.
        limit: Maximum record size of the topic in bytes.
    """

    def __init__(self, cluster: Cluster, topic: str, limit: int) -> None:
        self._cluster = cluster
        self._topic = topic
        self._limit = limit
        self._producers = PerProcess(lambda: Producer(self._settings()))

    @property
    def room(self) -> int:
        """Maximum size of a value in bytes."""
        return self._limit - _AROUND

    def send(self, values: Sequence[tuple[int, bytes]]) -> list[int]:
        """Send values to partitions, one record each; return their offsets.

        Raises:
            CommitTooLarge: a value is too large; nothing was sent.
            JournalUnavailable: some records may not have been stored; send all records again.
        """
        self._check(values)
        with self._cluster.translated():
            return self._deliver(self._producers.get(), values)

    def send_whole(self, values: Sequence[tuple[int, bytes]]) -> list[int]:
        """Send values to partitions atomically, in a transaction."""
        self._check(values)
        producer = Producer(
            self._settings(
                transactional_id=f"belated.{secrets.token_hex(8)}",
                transaction_timeout_ms=max(_TRANSACTION, int(1000 * self._cluster.wait)),
            )
        )
        with self._cluster.translated():
            producer.init_transactions(self._cluster.wait)
            producer.begin_transaction()
            try:
                offsets = self._deliver(producer, values)
                producer.commit_transaction(self._cluster.wait)
            except BaseException:
                producer.abort_transaction(self._cluster.wait)
                raise
        return offsets

    def _check(self, values: Sequence[tuple[int, bytes]]) -> None:
        """Raise CommitTooLarge before anything is sent."""
        for _, value in values:
            if len(value) > self.room:
                raise CommitTooLarge(len(value), self.room)

    def _deliver(self, producer: Producer, values: Sequence[tuple[int, bytes]]) -> list[int]:
        """Produce records, and wait until all of them are stored or one fails."""
        offsets: dict[int, int] = {}
        errors: list[KafkaError] = []
        for index, (partition, value) in enumerate(values):

            def note(error: KafkaError | None, message: Message, index: int = index) -> None:
                if error is not None:
                    errors.append(error)
                else:
                    offsets[index] = message.offset() or 0

            while True:
                try:
                    producer.produce(self._topic, value, partition=partition, on_delivery=note)
                    break
                except BufferError:  # the queue is full
                    producer.poll(0.01)
        deadline = time.monotonic() + self._cluster.wait + 1.0
        while len(offsets) + len(errors) < len(values) and time.monotonic() < deadline:
            producer.poll(0.02)
        if errors:
            if errors[-1].fatal():
                self._producers.discard(producer)
            raise self._cluster.translation(errors[-1])
        if len(offsets) < len(values):
            raise self._cluster.timed_out()
        return [offsets[index] for index in range(len(values))]

    def close(self) -> None:
        """Close the connections. No records are in flight, because appends wait for brokers."""
        self._producers.discard()

    def _settings(self, **others: object) -> dict[str, object]:
        wait = int(1000 * self._cluster.wait)
        return self._cluster.settings(
            acks="all",
            enable_idempotence=True,
            linger_ms=0,
            message_max_bytes=self._limit,
            delivery_timeout_ms=wait,
            request_timeout_ms=min(wait, 5_000),
            **others,
        )


#: Seconds after which a request is repeated, because a dead broker does not respond.
_TIMEOUT = 1.0


class Span(msgspec.Struct, frozen=True):
    """The range of offsets of a partition.

    Attributes:
        first: First offset that was not deleted.
        end: Offset after the last visible record; records of open transactions are not visible.
    """

    first: int
    end: int


class Offsets:
    """Queries the offsets of a topic; threads may share it.

    Args:
        cluster: Kafka cluster.
        topic: Name of the topic.
    """

    def __init__(self, cluster: Cluster, topic: str) -> None:
        self._cluster = cluster
        self._topic = topic
        self._consumers = PerProcess(lambda: Consumer(reading(cluster)))

    def span(self, partition: int) -> Span:
        """Return the current range of offsets of a partition."""
        return Span(self._query({partition: OFFSET_BEGINNING})[partition], self.end(partition))

    def end(self, partition: int) -> int:
        """Return the offset after the last visible record."""
        return self.ends([partition])[partition]

    def ends(self, partitions: Iterable[int]) -> dict[int, int]:
        """Return the ends of several partitions, in one request."""
        return self._query(dict.fromkeys(partitions, OFFSET_END))

    def first_from(self, partition: int, stamp: int) -> int:
        """Return the offset of the first record with at least this timestamp."""
        offset = self._query({partition: stamp})[partition]
        return offset if offset >= 0 else 1 << 62

    def _query(self, times: Mapping[int, int]) -> dict[int, int]:
        """Return an offset per partition, given a time, OFFSET_BEGINNING or OFFSET_END for each.

        The client's built-in call for both ends of a partition takes ten times as long.
        """
        requested = [TopicPartition(self._topic, number, time) for number, time in times.items()]
        wait = min(_TIMEOUT, self._cluster.wait)

        def query() -> dict[int, int]:
            consumer = self._consumers.get()
            try:
                places = consumer.offsets_for_times(requested, timeout=wait)
                for place in places:
                    if place.error is not None:
                        raise KafkaException(place.error)
            except KafkaException:
                # Use a new client for the next request, because a consumer that reads nothing keeps
                # querying the first leader of a partition.
                self._consumers.discard(consumer)
                raise
            return {place.partition: place.offset for place in places}

        with self._cluster.translated():
            return self._cluster.repeated(query)

    def close(self) -> None:
        """Close the connections."""
        if (consumer := self._consumers.discard()) is not None:
            consumer.close()


def reading(cluster: Cluster, **others: object) -> dict[str, object]:
    """Return the settings of a consumer that reads committed records and joins no group."""
    return cluster.settings(
        group_id=f"belated.{secrets.token_hex(8)}",  # required, but never subscribed
        enable_auto_commit=False,
        enable_auto_offset_store=False,
        auto_offset_reset="error",
        isolation_level="read_committed",
        **others,
    )


#: Number of bytes to buffer for a partition that is not being read.
_AHEAD = 2 << 20
#: How long a broker waits for new records before it responds to a fetch, in milliseconds.
_PATIENCE = 20

#: Errors that mean that a record does not exist yet or has been deleted.
_ENDS = (KafkaError._PARTITION_EOF, KafkaError._AUTO_OFFSET_RESET, KafkaError.OFFSET_OUT_OF_RANGE)


@dataclass
class _Stream:
    """The buffered commits of a partition, which the next call is likely to read."""

    offset: int  # offset of the next record
    greatest: int | None = None  # greatest broker timestamp so far (milliseconds); None if unknown
    commits: deque[Commit] = field(default_factory=deque)
    bytes: int = 0
    paused: bool = False


class Reader:
    """Reads commits, and prefetches the commits that follow.

    The timestamp of a commit comes from its broker, whose clock may be behind the clock of the
    previous leader. To prevent decreasing timestamps, a commit gets the greatest timestamp so far,
    regardless of where reading began.

    Args:
        cluster: Kafka cluster.
        topic: Name of the topic.
        offsets: Queries the offsets of the topic.
        floor: Returns the timestamp of the last dropped record of a partition, in milliseconds.
    """

    def __init__(
        self, cluster: Cluster, topic: str, offsets: Offsets, floor: Callable[[int], int]
    ) -> None:
        self._cluster = cluster
        self._topic = topic
        self._offsets = offsets
        self._floor = floor
        self._lock = threading.RLock()
        self._pid = 0
        self._consumer: Consumer | None = None
        self._streams: dict[int, _Stream] = {}

    def wait_for(self, partition: int, offset: int) -> None:
        """Wait until a record that was sent is visible.

        A transaction is committed before its records are visible in all partitions.
        """
        deadline = time.monotonic() + self._cluster.wait
        while self._offsets.end(partition) <= offset:
            if time.monotonic() > deadline:
                raise self._cluster.timed_out()
            time.sleep(0.005)

    def commits(self, partition: int, offset: int, end: int, enough: int) -> list[Commit]:
        """Return the commits from an offset, in order.

        Args:
            partition: Partition to read.
            offset: First offset; transaction markers are skipped.
            end: Offset to stop at, from :meth:`Offsets.span`.
            enough: Number of events after which to stop.
        """
        with self._lock, self._cluster.translated():
            stream = self._stream_at(partition, offset, end)
            while stream.commits and stream.commits[0].offset < offset:
                stream.bytes -= len(stream.commits.popleft().value)
            deadline = time.monotonic() + self._cluster.wait
            while stream.offset < end and sum(map(len, stream.commits)) < enough:
                if time.monotonic() > deadline:
                    raise self._cluster.timed_out()
                if self._receive():
                    deadline = time.monotonic() + self._cluster.wait
                if self._streams.get(partition) is not stream:
                    raise HistoryChanged(partition, Place(offset, 0).position)
            return [commit for commit in stream.commits if commit.offset < end]

    def close(self) -> None:
        """Close the connections."""
        with self._lock:
            if self._consumer is not None and self._pid == os.getpid():
                self._consumer.close()
            self._consumer = None
            self._streams.clear()

    def _connected(self) -> Consumer:
        if self._pid != os.getpid():  # a client does not survive a fork
            self._streams.clear()
            self._pid = os.getpid()
            self._consumer = None
        if self._consumer is None:
            self._consumer = Consumer(
                reading(
                    self._cluster,
                    enable_partition_eof=True,
                    check_crcs=True,
                    fetch_wait_max_ms=_PATIENCE,
                    fetch_error_backoff_ms=50,
                    queued_max_messages_kbytes=16_384,
                )
            )
        return self._consumer

    def _stream_at(self, partition: int, offset: int, end: int) -> _Stream:
        """Return the stream of a partition that contains an offset, or a new one."""
        consumer = self._connected()
        stream = self._streams.get(partition)
        if stream is not None and stream.offset <= end:
            first = stream.commits[0].offset if stream.commits else stream.offset
            if first <= offset <= stream.offset:
                self._prefer(partition)
                return stream
        self._forget(partition)
        stream = _Stream(offset)
        consumer.incremental_assign([TopicPartition(self._topic, partition, offset)])
        self._streams[partition] = stream
        self._prefer(partition)
        return stream

    def _prefer(self, partition: int) -> None:
        """Pause the fetching of other partitions whose buffers are full."""
        consumer = self._connected()
        for number, stream in self._streams.items():
            pause = number != partition and stream.bytes > _AHEAD
            if pause != stream.paused:
                (consumer.pause if pause else consumer.resume)(
                    [TopicPartition(self._topic, number)]
                )
                stream.paused = pause

    def _receive(self) -> bool:
        """Receive messages from all partitions; return whether there were any."""
        consumer = self._connected()
        # With a timeout, `consume` would wait for all 500 messages.
        messages = consumer.consume(500, timeout=0.0)
        if not messages:
            first = consumer.poll(0.05)
            messages = [] if first is None else [first, *consumer.consume(500, timeout=0.0)]
        try:
            for message in messages:
                self._dispatch(message)
        except BaseException:
            # The consumer has skipped the remaining messages, so fetch everything again.
            self._streams.clear()
            self._connected().unassign()
            raise
        return bool(messages)

    def _dispatch(self, message: Message) -> None:
        partition, error = message.partition(), message.error()
        stream = None if partition is None else self._streams.get(partition)
        if error is not None and error.code() not in _ENDS:
            if not error.retriable() and error.code() != KafkaError._ALL_BROKERS_DOWN:
                raise self._cluster.translation(error)
        elif stream is not None and partition is not None:
            if error is None:
                self._add(stream, partition, message)
            elif error.code() == KafkaError._PARTITION_EOF:
                # Transaction markers after the last commit also have offsets.
                stream.offset = max(stream.offset, message.offset() or 0)
            else:  # records have been deleted, or the topic was recreated
                self._forget(partition)

    def _add(self, stream: _Stream, partition: int, message: Message) -> None:
        value, stamp = message.value() or b"", message.timestamp()[1]
        if stream.greatest is None:
            stream.greatest = self._greatest_before(partition, stream.offset, stamp)
        stream.greatest = max(stream.greatest, stamp)
        commit = unpack(value, message.offset() or 0, 1000 * stream.greatest)
        stream.commits.append(commit)
        stream.bytes += len(value)
        stream.offset = commit.offset + 1

    def _forget(self, partition: int) -> None:
        """Stop fetching a partition, and drop its buffer."""
        if (stream := self._streams.pop(partition, None)) is not None:
            where = [TopicPartition(self._topic, partition)]
            if stream.paused:  # the partition would still be paused when it is assigned again
                self._connected().resume(where)
            self._connected().incremental_unassign(where)

    def _greatest_before(self, partition: int, offset: int, stamp: int) -> int:
        """Return the greatest broker timestamp before an offset, but at least ``stamp``.

        Brokers can only find the first record with at least a given timestamp. Typically, one query
        shows that there is no greater timestamp; otherwise, a binary search is necessary.
        """
        low = max(stamp, self._floor(partition))
        high = low + 1
        while self._offsets.first_from(partition, high) < offset:
            low, high = high, high + 2 * (high - stamp + 1)
        while high - low > 1:
            middle = (low + high) // 2
            if self._offsets.first_from(partition, middle) < offset:
                low = middle
            else:
                high = middle
        return low


class Finder(Reader):
    """Looks up individual commits without prefetching.

    A consumer fetches all records of its partitions, even if they are not read, so lookups in
    many partitions would buffer too much.
    """

    def commits(self, partition: int, offset: int, end: int, enough: int) -> list[Commit]:
        """Return the commits from an offset, in order; see :meth:`Reader.commits`."""
        with self._lock:
            try:
                return super().commits(partition, offset, end, enough)
            finally:
                with self._cluster.translated():
                    self._forget(partition)
