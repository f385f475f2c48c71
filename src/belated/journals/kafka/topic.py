"""The topic of a bandit: made with the settings on which every promise rests, and read back."""

from __future__ import annotations

import re
import secrets
from typing import Any

from belated.exceptions import JournalError, JournalMismatch
from belated.journals.kafka.client import Cluster, KafkaError, KafkaException

# Behind the lines above, which say what to install if it is missing.
from confluent_kafka import TopicPartition  # isort: skip
from confluent_kafka.admin import (  # isort: skip
    AdminClient,
    ConfigResource,
    NewTopic,
    ResourceType,
    TopicMetadata,
)

#: Bytes of the largest record that a new topic takes: a commit of 1,000 decisions with requests.
MAX_BYTES = 8 << 20


def new_name(bandit: str) -> str:
    """Return a name for the topic of a bandit that no other topic has.

    >>> new_name("best offers")[:20]
    'belated.best-offers.'
    """
    readable = re.sub(r"[^a-zA-Z0-9_-]+", "-", bandit)[:80].strip("-")
    return f"belated.{readable or 'bandit'}.{secrets.token_hex(4)}"


def settings_of(copies: int) -> dict[str, str]:
    """Return the settings of a topic without which records could be lost, or misdated.

    >>> settings_of(3)["min.insync.replicas"]
    '2'
    """
    return {
        "min.insync.replicas": str(copies // 2 + 1),
        "unclean.leader.election.enable": "false",
        "message.timestamp.type": "LogAppendTime",
        "cleanup.policy": "delete",
        "retention.ms": "-1",
        "retention.bytes": "-1",
    }


#: What goes wrong where a setting is another.
_WHY = {
    "min.insync.replicas": "a record could be acknowledged that one broker alone has",
    "unclean.leader.election.enable": "a broker that lags behind could drop what was acknowledged",
    "message.timestamp.type": "records would have the time of the client, which may be wrong",
    "cleanup.policy": "records could be replaced by later ones",
    "retention.ms": "records would be deleted before they are folded",
    "retention.bytes": "records would be deleted before they are folded",
}


class Topics:
    """Makes, checks and removes topics.

    Args:
        cluster: The brokers.
        copies: Brokers that must have a copy of each record.
    """

    def __init__(self, cluster: Cluster, copies: int) -> None:
        self._cluster = cluster
        self._copies = copies
        self._admin = AdminClient(cluster.settings())

    def make(self, name: str, partitions: int) -> None:
        """Make a topic."""
        settings = {**settings_of(self._copies), "max.message.bytes": str(MAX_BYTES)}
        new = NewTopic(
            name, num_partitions=partitions, replication_factor=self._copies, config=settings
        )
        try:
            self._result(self._admin.create_topics([new], **self._timeouts()))
        except KafkaException as error:
            if error.args[0].code() in (
                KafkaError.INVALID_REPLICATION_FACTOR,
                KafkaError.POLICY_VIOLATION,
            ):
                message = f"a topic with {self._copies} copies of each record cannot be made"
                what = f"{message}: {error.args[0].str()}"
                raise JournalError(f"{self._cluster.place}: {what}") from error
            raise self._cluster.translation(error.args[0]) from error

    def remove(self, name: str) -> None:
        """Remove a topic with all its records."""
        with self._cluster.translated():
            self._result(self._admin.delete_topics([name], **self._timeouts()))

    def check(self, name: str, partitions: int) -> int:
        """Refuse a topic in which records could be lost, or misdated.

        Returns:
            Bytes of the largest record that it takes.

        Raises:
            JournalMismatch: It has other settings, partitions or copies than it must have.
        """
        with self._cluster.translated():
            # For a while, some brokers may not know a topic that was just made.
            found = self._cluster.repeated(lambda: self._describe(name))
            settings = self._cluster.repeated(lambda: self._describe_settings(name))
        where = f"the topic {name!r} in {self._cluster.place}"
        if len(found.partitions) != partitions:
            have = f"{where} has {len(found.partitions)} partitions, and the bandit {partitions}"
            raise JournalMismatch(
                f"{have}: make it anew, for events would not find their decisions"
            )
        copies = min(len(one.replicas) for one in found.partitions.values())
        if copies < self._copies:
            have = f"{where} has {copies} copies of a record, not {self._copies}"
            raise JournalMismatch(
                f"{have}: reassign its partitions, or open it with copies={copies}"
            )
        for setting, wanted in settings_of(self._copies).items():
            value = settings[setting]
            if not _is_enough(setting, value, wanted):
                have = f"{where} has {setting} = {value}"
                raise JournalMismatch(f"{have}: then {_WHY[setting]}; set {setting} = {wanted}")
        return int(settings["max.message.bytes"])

    def _describe(self, name: str) -> TopicMetadata:
        found = self._admin.list_topics(name, timeout=self._cluster.wait).topics[name]
        for error in (found.error, *(one.error for one in found.partitions.values())):
            if error is not None:
                raise KafkaException(error)
        return found

    def _describe_settings(self, name: str) -> dict[str, str]:
        resource = ConfigResource(ResourceType.TOPIC, name)
        described = self._admin.describe_configs([resource], request_timeout=self._cluster.wait)
        return {setting: one.value for setting, one in self._result(described).items()}

    def drop(self, name: str, partition: int, before: int) -> None:
        """Delete the records of a partition before an offset."""
        where = TopicPartition(name, partition, before)
        with self._cluster.translated():
            self._result(self._admin.delete_records([where], **self._timeouts()))

    def _timeouts(self) -> dict[str, float]:
        return {"request_timeout": self._cluster.wait, "operation_timeout": self._cluster.wait}

    def _result(self, futures: dict[Any, Any]) -> Any:
        (future,) = futures.values()
        return future.result(self._cluster.wait + 1.0)


def _is_enough(setting: str, value: str, wanted: str) -> bool:
    if setting == "min.insync.replicas":
        return int(value) >= int(wanted)
    return value == wanted
