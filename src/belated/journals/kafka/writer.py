"""The producer of a log in Kafka: a call ends when the brokers have all, or says what failed."""

from __future__ import annotations

import os
import secrets
import threading
import time
from collections.abc import Sequence

from belated.exceptions import CommitTooLarge
from belated.journals.kafka.client import Cluster, KafkaError

from confluent_kafka import Message, Producer  # isort: skip

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
