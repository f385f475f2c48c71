"""Topics that a Kafka journal rejects: they could lose records, or belong to another bandit."""

from __future__ import annotations

import pytest
from confluent_kafka.admin import AdminClient, ConfigResource, NewPartitions, ResourceType

from belated.exceptions import JournalError, JournalMismatch
from belated.journals import KafkaJournal, PostgresJournal
from belated.journals.kafka.client import MAX_BYTES, Topics
from tests.integration.kafka_journals import change, open_kafka
from tests.integration.kafka_server import KafkaCluster


@pytest.mark.parametrize(
    ("setting", "value"),
    [
        ("unclean.leader.election.enable", "true"),
        ("message.timestamp.type", "CreateTime"),
        ("cleanup.policy", "compact"),
        ("retention.ms", "604800000"),
        ("retention.bytes", "1000000000"),
    ],
)
def test_settings_that_lose_records_are_refused(
    kafka: KafkaCluster, dsn: str, opened: KafkaJournal, setting: str, value: str
) -> None:
    """The error has the setting, its value, the consequence and the required value."""
    assert opened._topic is not None
    change(kafka, opened._topic, setting, value)
    with pytest.raises(JournalMismatch, match=rf"{setting} = {value}, so .*: set {setting} = "):
        open_kafka(kafka, dsn, opened.bandit)


def test_a_broker_that_does_not_know_a_new_topic_yet_is_asked_again(
    kafka: KafkaCluster, opened: KafkaJournal, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of three brokers, the one asked for the settings may be the last to know the topic."""
    assert opened._topic is not None
    describe = AdminClient.describe_configs
    answers: list[str] = []

    def late(self: AdminClient, resources: list[ConfigResource], **how: float) -> object:
        answers.append("unknown" if not answers else "known")
        missing = ConfigResource(ResourceType.TOPIC, "no-such-topic")
        return describe(self, [missing] if answers == ["unknown"] else resources, **how)

    monkeypatch.setattr(AdminClient, "describe_configs", late)
    assert Topics(opened._cluster, 1).check(opened._topic, 4) == MAX_BYTES
    assert answers == ["unknown", "known"]


def test_too_few_copies_are_refused(kafka: KafkaCluster, dsn: str, opened: KafkaJournal) -> None:
    """By default there must be three, which a cluster of one broker cannot provide."""
    with pytest.raises(JournalMismatch, match="has only 1 of 3 replicas"):
        KafkaJournal(kafka.address, shelf=dsn, bandit=opened.bandit)
    with pytest.raises(JournalError, match="a topic with 3 replicas"):
        KafkaJournal(kafka.address, shelf=dsn, bandit=f"{opened.bandit} new")


def test_one_name_has_one_log(kafka: KafkaCluster, dsn: str, opened: KafkaJournal) -> None:
    """A Kafka bandit cannot be opened in PostgreSQL, and vice versa."""
    with pytest.raises(JournalMismatch, match=r"in the Kafka topic 'belated"):
        PostgresJournal(dsn, bandit=opened.bandit)
    PostgresJournal(dsn, bandit=f"{opened.bandit} too").close()
    with pytest.raises(JournalMismatch, match="postgresql:"):
        open_kafka(kafka, dsn, f"{opened.bandit} too")


def test_the_number_of_partitions_is_fixed(
    kafka: KafkaCluster, dsn: str, opened: KafkaJournal
) -> None:
    """Another number is rejected, also after partitions were added to the topic."""
    with pytest.raises(JournalMismatch, match="partitions=4"):
        open_kafka(kafka, dsn, opened.bandit, partitions=8)
    assert opened._topic is not None
    admin = AdminClient({"bootstrap.servers": kafka.address})
    (addition,) = admin.create_partitions([NewPartitions(opened._topic, 6)]).values()
    addition.result(30)
    with pytest.raises(JournalMismatch, match="6 partitions, but the bandit has 4"):
        open_kafka(kafka, dsn, opened.bandit)
