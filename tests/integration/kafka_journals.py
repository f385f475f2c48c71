"""Kafka journals, and changes of their topics that bypass them."""

from __future__ import annotations

import time

from confluent_kafka import Producer
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
    (altered,) = admin.incremental_alter_configs([resource]).values()
    altered.result(30)
    while True:
        asked = ConfigResource(ResourceType.TOPIC, topic)
        (described,) = admin.describe_configs([asked]).values()
        if described.result(30)[setting].value == value:
            return
        time.sleep(0.05)
