"""The producer and the consumers of a topic: commits are sent whole, and read from any offset."""

from __future__ import annotations

import os
import secrets
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import msgspec

from belated.exceptions import CommitTooLarge, HistoryChanged
from belated.journals.kafka.client import Cluster, KafkaError, KafkaException
from belated.journals.kafka.commits import Commit, Place, unpack

# Behind the lines above, which say what to install if it is missing.
from confluent_kafka import (  # isort: skip
    OFFSET_BEGINNING,
    OFFSET_END,
    Consumer,
    Message,
    Producer,
    TopicPartition,
)

#: Bytes that Kafka adds to the value of a record that is sent alone.
_AROUND = 128
#: Milliseconds after which the brokers give up a transaction whose client is gone.
_TRANSACTION = 10_000


class Writer:
    """Sends records, each whole, and waits until enough brokers have them.

    Threads may share it: what they send at the same time is on its way at the same time.

    Args:
        cluster: The brokers.
        topic: Name of the topic.
        limit: Bytes of the largest record that the topic takes.
    """

    def __init__(self, cluster: Cluster, topic: str, limit: int) -> None:
        self._cluster = cluster
        self._topic = topic
        self._limit = limit
        self._lock = threading.Lock()
        # Clients do not survive a fork: each process makes its own.
        self._producers: dict[int, Producer] = {}

    @property
    def room(self) -> int:
        """Bytes of the largest value that can be sent."""
        return self._limit - _AROUND

    def send(self, values: Sequence[tuple[int, bytes]]) -> list[int]:
        """Send values to partitions, one record each; returns their offsets.

        Raises:
            CommitTooLarge: One of them is too large; nothing was sent.
            JournalUnavailable: Some may not have been taken; send all again.
        """
        self._check(values)
        with self._cluster.translated():
            return self._deliver(self._producer(), values)

    def send_whole(self, values: Sequence[tuple[int, bytes]]) -> list[int]:
        """Send values to partitions, all or none: readers see them once all are there."""
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
        """Refuse a value that the brokers would refuse, before anything is sent."""
        for _, value in values:
            if len(value) > self.room:
                raise CommitTooLarge(len(value), self.room)

    def _deliver(self, producer: Producer, values: Sequence[tuple[int, bytes]]) -> list[int]:
        """Produce records, and wait until the brokers have all of them, or one fails."""
        offsets: dict[int, int] = {}
        errors: list[KafkaError] = []
        for place, (partition, value) in enumerate(values):

            def note(error: KafkaError | None, message: Message, place: int = place) -> None:
                if error is not None:
                    errors.append(error)
                else:
                    offsets[place] = message.offset() or 0

            while True:
                try:
                    producer.produce(self._topic, value, partition=partition, on_delivery=note)
                    break
                except BufferError:  # others have filled the queue: it empties
                    producer.poll(0.01)
        deadline = time.monotonic() + self._cluster.wait + 1.0
        while len(offsets) + len(errors) < len(values) and time.monotonic() < deadline:
            producer.poll(0.02)
        if errors:
            if errors[-1].fatal():
                with self._lock:  # it sends nothing any more: the next call makes another
                    self._producers.pop(os.getpid(), None)
            raise self._cluster.translation(errors[-1])
        if len(offsets) < len(values):
            raise self._cluster.silent()
        return [offsets[place] for place in range(len(values))]

    def close(self) -> None:
        """Let go of the connections; every call has waited for what it sent."""
        with self._lock:
            self._producers.clear()

    def _producer(self) -> Producer:
        with self._lock:
            found = self._producers.get(os.getpid())
            if found is None:
                found = self._producers[os.getpid()] = Producer(self._settings())
            return found

    def _settings(self, **more: object) -> dict[str, object]:
        wait = int(1000 * self._cluster.wait)
        return self._cluster.settings(
            acks="all",
            enable_idempotence=True,
            linger_ms=0,
            message_max_bytes=self._limit,
            delivery_timeout_ms=wait,
            request_timeout_ms=min(wait, 5_000),
            **more,
        )


#: Seconds after which a question is asked anew, for a broker that has just died does not answer.
_ANSWER = 1.0


class Span(msgspec.Struct, frozen=True):
    """The offsets that a partition has.

    Attributes:
        first: The first that was not deleted.
        end: Beyond the last that readers see: what a transaction under way has sent they do not.
    """

    first: int
    end: int


class Offsets:
    """Asks the brokers; threads may share it.

    Args:
        cluster: The brokers.
        topic: Name of the topic.
    """

    def __init__(self, cluster: Cluster, topic: str) -> None:
        self._cluster = cluster
        self._topic = topic
        self._lock = threading.Lock()
        # Clients do not survive a fork: each process makes its own.
        self._consumers: dict[int, Consumer] = {}

    def span(self, partition: int) -> Span:
        """Return the offsets that a partition has now."""
        return Span(self._ask({partition: OFFSET_BEGINNING})[partition], self.end(partition))

    def end(self, partition: int) -> int:
        """Return the offset beyond the last that readers see."""
        return self.ends([partition])[partition]

    def ends(self, partitions: Iterable[int]) -> dict[int, int]:
        """Return it of several partitions, in one question."""
        return self._ask(dict.fromkeys(partitions, OFFSET_END))

    def first_from(self, partition: int, stamp: int) -> int:
        """Return the offset of the first record that is not older than a time."""
        found = self._ask({partition: stamp})[partition]
        return found if found >= 0 else 1 << 62

    def _ask(self, times: Mapping[int, int]) -> dict[int, int]:
        """Return offsets by partition, for times or for what stands for the begin and the end.

        The client has a call for both ends of a partition, which takes ten times as long.
        """
        asked = [TopicPartition(self._topic, one, time) for one, time in times.items()]
        wait = min(_ANSWER, self._cluster.wait)

        def ask() -> dict[int, int]:
            consumer = self._consumer()
            try:
                found = consumer.offsets_for_times(asked, timeout=wait)
                for one in found:
                    if one.error is not None:
                        raise KafkaException(one.error)
            except KafkaException:
                self._forget(consumer)
                raise
            return {one.partition: one.offset for one in found}

        with self._cluster.translated():
            return self._cluster.repeated(ask)

    def _forget(self, consumer: Consumer) -> None:
        """Have the next question asked by another client.

        One that reads nothing goes on asking the broker that led a partition when it began.
        """
        with self._lock:
            if self._consumers.get(os.getpid()) is consumer:
                del self._consumers[os.getpid()]

    def close(self) -> None:
        """Let go of the connections."""
        with self._lock:
            consumer = self._consumers.pop(os.getpid(), None)
        if consumer is not None:
            consumer.close()

    def _consumer(self) -> Consumer:
        with self._lock:
            found = self._consumers.get(os.getpid())
            if found is None:
                found = self._consumers[os.getpid()] = Consumer(reading(self._cluster))
            return found


def reading(cluster: Cluster, **more: object) -> dict[str, object]:
    """Return the settings of a consumer that sees what is committed, and is in no group."""
    return cluster.settings(
        group_id=f"belated.{secrets.token_hex(8)}",  # of nobody else: none assigns here
        enable_auto_commit=False,
        enable_auto_offset_store=False,
        auto_offset_reset="error",
        isolation_level="read_committed",
        **more,
    )


#: Bytes that wait here of a partition nobody reads now; the brokers keep the rest.
_AHEAD = 2 << 20
#: Milliseconds that a broker waits for news before it says that there are none.
_PATIENCE = 20

#: What is said instead of a record: there is none yet, or none any more.
_ENDS = (
    KafkaError._PARTITION_EOF,
    KafkaError._AUTO_OFFSET_RESET,
    KafkaError.OFFSET_OUT_OF_RANGE,
)


@dataclass
class _Stream:
    """What was read of a partition and is kept: what the next call is likely to want."""

    offset: int  # of the next record
    greatest: int | None = None  # of the brokers' stamps so far, in milliseconds; None: not known
    commits: deque[Commit] = field(default_factory=deque)
    bytes: int = 0
    paused: bool = False


class Reader:
    """Reads commits; of calls that go on where the last ended, most are in memory already.

    The stamp of a commit is its broker's, and after a failover another broker's, whose clock may
    be behind: it is held at the greatest stamp so far. That is the same wherever reading began.

    Args:
        cluster: The brokers.
        topic: Name of the topic.
        offsets: Asks where its partitions begin and end.
        floor: Gives the stamp of the last record of a partition that was deleted, in milliseconds.
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
        """Return once readers see a record that was sent.

        A transaction is committed before all partitions know of it.
        """
        deadline = time.monotonic() + self._cluster.wait
        while self._offsets.end(partition) <= offset:
            if time.monotonic() > deadline:
                raise self._cluster.silent()
            time.sleep(0.005)

    def commits(self, partition: int, offset: int, end: int, enough: int) -> list[Commit]:
        """Return commits from an offset on, in order.

        Args:
            partition: To read.
            offset: Where to begin; a record there that is no commit is passed over.
            end: Where to stop; from :meth:`Offsets.span`.
            enough: Events after which no more commits are wanted.
        """
        with self._lock, self._cluster.translated():
            stream = self._stream_at(partition, offset, end)
            while stream.commits and stream.commits[0].offset < offset:
                stream.bytes -= len(stream.commits.popleft().value)
            deadline = time.monotonic() + self._cluster.wait
            while stream.offset < end and sum(map(len, stream.commits)) < enough:
                if time.monotonic() > deadline:
                    raise self._cluster.silent()
                if self._take():
                    deadline = time.monotonic() + self._cluster.wait
                if self._streams.get(partition) is not stream:
                    raise HistoryChanged(partition, Place(offset, 0).position)
            return [one for one in stream.commits if one.offset < end]

    def close(self) -> None:
        """Let go of the connections."""
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
        """Return the stream of a partition, from an offset on."""
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
        """Have the consumer fetch no more of other partitions than memory is for."""
        consumer = self._connected()
        for number, stream in self._streams.items():
            pause = number != partition and stream.bytes > _AHEAD
            if pause != stream.paused:
                (consumer.pause if pause else consumer.resume)(
                    [TopicPartition(self._topic, number)]
                )
                stream.paused = pause

    def _take(self) -> bool:
        """Take what has come of any partition; returns whether anything has."""
        consumer = self._connected()
        found = consumer.consume(500, timeout=0.0)  # it would wait until there are as many
        if not found:
            first = consumer.poll(0.05)
            found = [] if first is None else [first, *consumer.consume(500, timeout=0.0)]
        try:
            for message in found:
                self._sort(message)
        except BaseException:
            # The consumer is past what was not taken: all is fetched anew, or some would be missed.
            self._streams.clear()
            self._connected().unassign()
            raise
        return bool(found)

    def _sort(self, message: Message) -> None:
        partition, error = message.partition(), message.error()
        stream = None if partition is None else self._streams.get(partition)
        if error is not None and error.code() not in _ENDS:
            if not error.retriable() and error.code() != KafkaError._ALL_BROKERS_DOWN:
                raise self._cluster.translation(error)
        elif stream is not None and partition is not None:
            if error is None:
                self._add(stream, partition, message)
            elif error.code() == KafkaError._PARTITION_EOF:
                # Beyond the last commit may be the ends of transactions, which take offsets too.
                stream.offset = max(stream.offset, message.offset() or 0)
            else:  # deleted between two questions, or the topic is another one
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
        """Have nothing more fetched of a partition, and keep nothing of it."""
        if self._streams.pop(partition, None) is not None:
            self._connected().incremental_unassign([TopicPartition(self._topic, partition)])

    def _greatest_before(self, partition: int, offset: int, stamp: int) -> int:
        """Return the greatest stamp of a broker before an offset, if it is beyond a stamp.

        Brokers tell the first record that is not older than a time: so one question shows that no
        clock was ahead, and where one was, the time is searched for.
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
    """Looks single commits up, and follows nothing.

    What is followed is fetched whole, whether anyone reads it or not: the next look-up in another
    partition would take all of it into memory.
    """

    def commits(self, partition: int, offset: int, end: int, enough: int) -> list[Commit]:
        """Return commits from an offset on, in order; see :meth:`Reader.commits`."""
        with self._lock:
            try:
                return super().commits(partition, offset, end, enough)
            finally:
                with self._cluster.translated():
                    self._forget(partition)
