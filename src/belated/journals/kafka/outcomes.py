"""The topic with the outcomes of a bandit's decisions."""

from __future__ import annotations

from collections.abc import Sequence

from belated.exceptions import OwnerFenced
from belated.journals.kafka.client import (
    MAX_BYTES,
    Cluster,
    KafkaError,
    KafkaException,
    Topics,
)
from belated.journals.outcomes import OutcomeMessage

# Import after the modules above, which raise MissingExtra if confluent-kafka is not installed.
from confluent_kafka import Producer  # isort: skip


class OutcomeTopic:
    """Sends the outcomes of decisions to a compacted topic, in one transaction per call.

    Compaction keeps the last message with each key. To ensure that this is the newest outcome, each
    partition has a transactional id, with which the brokers fence a learner that was replaced.

    Args:
        cluster: Kafka cluster.
        journal: Name of the journal's topic.
        partitions: Number of partitions.
        copies: Number of replicas of each message.
    """

    def __init__(self, cluster: Cluster, journal: str, partitions: int, copies: int) -> None:
        self._cluster = cluster
        self.name = f"{journal}.outcomes"
        self._partitions, self._copies = partitions, copies
        self._producers: dict[int, Producer] = {}

    def send(self, partition: int, outcomes: Sequence[OutcomeMessage]) -> None:
        """Send outcomes, with the ids of the decisions as keys."""
        wait = self._cluster.wait
        try:
            producer = self._producers.get(partition) or self._open(partition)
            producer.begin_transaction()
            for outcome in outcomes:
                while True:
                    try:
                        producer.produce(self.name, outcome.data, outcome.id, partition)
                        break
                    except BufferError:  # the queue is full
                        producer.poll(0.01)
            producer.commit_transaction(wait)
        except KafkaException as error:
            # A new producer with the same id aborts the transaction.
            self._producers.pop(partition, None)
            if error.args[0].fatal() or error.args[0].code() == KafkaError._FATAL:
                raise OwnerFenced(partition) from error
            raise self._cluster.translation(error.args[0]) from error

    def close(self) -> None:
        """Close the connections."""
        self._producers.clear()

    def _open(self, partition: int) -> Producer:
        """Return a new producer for a partition; fence earlier producers."""
        if not self._producers:
            topics = Topics(self._cluster, self._copies)
            if not topics.exists(self.name):
                topics.make(self.name, self._partitions, **{"cleanup.policy": "compact"})
        wait = int(1000 * self._cluster.wait)
        settings = self._cluster.settings(
            transactional_id=f"{self.name}.{partition}",
            transaction_timeout_ms=max(10_000, wait),
            acks="all",
            message_max_bytes=MAX_BYTES,
            delivery_timeout_ms=wait,
            compression_type="lz4",
        )
        self._producers[partition] = producer = Producer(settings)
        producer.init_transactions(self._cluster.wait)
        return producer
