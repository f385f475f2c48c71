"""Kafka journals, and changes of their topics that bypass them."""

from __future__ import annotations

import time

from confluent_kafka import Consumer, KafkaError, Producer
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ResourceType,
)

from belated.journals import KafkaJournal
from tests.integration.kafka_server import KafkaCluster


def open_kafka(
    kafka: KafkaCluster, dsn: str, bandit: str, partitions: int | None = None
) -> KafkaJournal:
    """Open a journal on the broker of the tests."""
    return KafkaJournal(kafka.address, shelf=dsn, bandit=bandit, partitions=partitions, copies=1)


def raw(kafka: KafkaCluster, journal: KafkaJournal, value: bytes, partition: int = 0) -> None:
    """Send a record that bypasses the journal."""
    producer = Producer({"bootstrap.servers": kafka.address})
    assert journal._topic is not None
    producer.produce(journal._topic, value, partition=partition)
    assert producer.flush(30) == 0


def change(kafka: KafkaCluster, topic: str, setting: str, value: str) -> None:
    """Change a setting of a topic, and wait until the broker has applied it."""
    admin = AdminClient({"bootstrap.servers": kafka.address})
    entry = ConfigEntry(setting, value, incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=[entry])
    (alteration,) = admin.incremental_alter_configs([resource]).values()
    alteration.result(30)
    while True:
        query = ConfigResource(ResourceType.TOPIC, topic)
        (description,) = admin.describe_configs([query]).values()
        if description.result(30)[setting].value == value:
            return
        time.sleep(0.05)


def read_outcomes(kafka: KafkaCluster, journal: KafkaJournal) -> list[tuple[str, bytes]]:
    """Return all messages in the topic of outcomes, with their keys."""
    settings = {
        "bootstrap.servers": kafka.address,
        "group.id": "test",
        "auto.offset.reset": "earliest",
        "enable.partition.eof": True,
        "enable.auto.commit": False,
    }
    consumer = Consumer(settings)
    consumer.subscribe([f"{journal._topic}.outcomes"])
    messages, partitions = [], set[int]()
    deadline = time.monotonic() + 60
    while len(partitions) < journal.partitions:
        assert time.monotonic() < deadline
        message = consumer.poll(1.0)
        if message is None:
            continue
        error = message.error()
        if error is None:
            key, value = message.key(), message.value()
            assert key is not None
            assert value is not None
            messages.append((key.decode(), value))
        elif error.code() == KafkaError._PARTITION_EOF:
            partitions.add(message.partition() or 0)
    consumer.close()
    return messages
