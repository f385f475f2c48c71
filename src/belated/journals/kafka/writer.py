"""The producer of a log in Kafka: a call ends when the brokers have all, or says what failed."""

from __future__ import annotations

import os
import secrets
import threading
import time
from collections.abc import Sequence
from typing import NamedTuple

from belated.exceptions import CommitTooLarge
from belated.journals.kafka.client import Cluster, KafkaError

from confluent_kafka import Message, Producer  # isort: skip

#: Bytes that Kafka adds to the value of a record that is sent alone.
_AROUND = 128
#: Milliseconds after which the brokers give up a transaction whose client is gone.
_TRANSACTION = 10_000


class Sent(NamedTuple):
    """A record that the brokers have.

    Attributes:
        offset: Of the record.
        stamp: The broker's, in milliseconds since 1970.
    """

    offset: int
    stamp: int


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

    def check(self, value: bytes) -> None:
        """Refuse a value that the brokers would refuse, before anything is sent."""
        if len(value) > self.room:
            raise CommitTooLarge(len(value), self.room)

    def send(self, values: Sequence[tuple[int, bytes]]) -> list[Sent]:
        """Send values to partitions, one record each; returns where they are.

        Raises:
            CommitTooLarge: One of them is too large; nothing was sent.
            JournalUnavailable: Some may not have been taken; send all again.
        """
        for _, value in values:
            self.check(value)
        producer = self._producer()
        delivery = _Delivery(len(values))
        with self._cluster.translated():
            for place, (partition, value) in enumerate(values):
                delivery.produce(producer, self._topic, partition, value, place)
            delivery.wait(producer, time.monotonic() + self._cluster.wait + 1.0)
        return self._delivered(delivery)

    def send_whole(self, values: Sequence[tuple[int, bytes]]) -> list[Sent]:
        """Send values to partitions, all or none: readers see them once all are there."""
        for _, value in values:
            self.check(value)
        producer = Producer(
            self._settings(
                transactional_id=f"belated.{secrets.token_hex(8)}",
                transaction_timeout_ms=max(_TRANSACTION, int(1000 * self._cluster.wait)),
            )
        )
        delivery = _Delivery(len(values))
        with self._cluster.translated():
            producer.init_transactions(self._cluster.wait)
            producer.begin_transaction()
            try:
                for place, (partition, value) in enumerate(values):
                    delivery.produce(producer, self._topic, partition, value, place)
                delivery.wait(producer, time.monotonic() + self._cluster.wait + 1.0)
                sent = self._delivered(delivery)
                producer.commit_transaction(self._cluster.wait)
            except BaseException:
                producer.abort_transaction(self._cluster.wait)
                raise
        return sent

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

    def _delivered(self, delivery: _Delivery) -> list[Sent]:
        if delivery.error is not None:
            if delivery.error.fatal():
                with self._lock:  # it sends nothing any more: the next call makes another
                    self._producers.pop(os.getpid(), None)
            raise self._cluster.translation(delivery.error)
        if delivery.left:
            raise self._cluster.silent()
        return delivery.sent


class _Delivery:
    """What became of the records of one call."""

    def __init__(self, count: int) -> None:
        self.sent = [Sent(-1, 0)] * count
        self.left = count
        self.error: KafkaError | None = None

    def produce(
        self, producer: Producer, topic: str, partition: int, value: bytes, place: int
    ) -> None:
        """Hand one over."""

        def told(error: KafkaError | None, message: Message) -> None:
            self.left -= 1
            if error is not None:
                self.error = error
            else:
                self.sent[place] = Sent(message.offset() or 0, message.timestamp()[1])

        while True:
            try:
                producer.produce(topic, value, partition=partition, on_delivery=told)
                return
            except BufferError:  # others have filled the queue: it empties
                producer.poll(0.01)

    def wait(self, producer: Producer, deadline: float) -> None:
        """Until all are there, or one is not."""
        while self.left and time.monotonic() < deadline:
            producer.poll(0.02)
