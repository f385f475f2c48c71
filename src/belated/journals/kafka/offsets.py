"""Where the partitions of a topic begin and end, asked over connections that fetch nothing.

A broker answers the requests of a connection in order, and a request for news waits until there are
some: questions on the same connection would wait with it.
"""

from __future__ import annotations

import os
import secrets
import threading
from collections.abc import Iterable, Mapping

import msgspec

from belated.journals.kafka.client import Cluster, KafkaException

from confluent_kafka import OFFSET_BEGINNING, OFFSET_END, Consumer, TopicPartition  # isort: skip


#: Seconds after which a question is asked anew, for a broker that has just died does not answer.
_PATIENCE = 1.0


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
        wait = min(_PATIENCE, self._cluster.wait)

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
