"""Kafka clients: their settings and errors, and the topics of bandits."""

from __future__ import annotations

import re
import secrets
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, TypeVar

from belated.exceptions import (
    InvalidInput,
    JournalError,
    JournalMismatch,
    JournalUnavailable,
    MissingExtra,
)

try:
    from confluent_kafka import (
        KafkaError as KafkaError,  # noqa: PLC0414
        KafkaException as KafkaException,  # noqa: PLC0414
        TopicPartition,
    )
    from confluent_kafka.admin import (
        AdminClient,
        ConfigResource,
        NewTopic,
        ResourceType,
        TopicMetadata,
    )
except ModuleNotFoundError:
    raise MissingExtra("Kafka", "kafka") from None

T = TypeVar("T")

#: Settings on which durability and ordering depend; users may not set them.
_FIXED = frozenset(
    {
        "acks",
        "auto.offset.reset",
        "bootstrap.servers",
        "check.crcs",
        "delivery.timeout.ms",
        "enable.auto.commit",
        "enable.idempotence",
        "enable.partition.eof",
        "group.id",
        "group.instance.id",  # brokers would fence a restarted worker
        "group.protocol",
        "isolation.level",
        "max.poll.interval.ms",
        "message.max.bytes",
        "message.timeout.ms",
        "request.required.acks",
        "transactional.id",
    }
)


class Cluster:
    """A Kafka cluster and the settings of its clients.

    Args:
        brokers: ``host:port`` of some brokers, separated by commas.
        settings: librdkafka settings, such as ``{"security.protocol": "SSL"}``.
        wait: Timeout of requests, in seconds.
    """

    def __init__(self, brokers: str, settings: Mapping[str, str], wait: float) -> None:
        refused = sorted(_FIXED & settings.keys())
        if refused:
            message = f"the setting {refused[0]!r} of the Kafka client cannot be changed: remove it"
            raise InvalidInput(message, refused)
        self.brokers = brokers
        self.wait = wait
        self._settings = dict(settings)

    @property
    def place(self) -> str:
        """Location of the cluster, for error messages."""
        return f"Kafka at {self.brokers}"

    def settings(self, **fixed: Any) -> dict[str, Any]:
        """Return the settings of a client; underscores in argument names become periods."""
        return {
            "socket.nagle.disable": True,
            "log_level": 0,  # errors are raised; librdkafka would log to stderr
            "reconnect.backoff.max.ms": 1_000,
            **self._settings,
            "bootstrap.servers": self.brokers,
            **{name.replace("_", "."): value for name, value in fixed.items()},
        }

    @contextmanager
    def translated(self) -> Iterator[None]:
        """Translate errors of the Kafka client."""
        try:
            yield
        except KafkaException as error:
            raise self.translation(error.args[0]) from error

    def repeated(self, ask: Callable[[], T]) -> T:
        """Retry a request until the timeout while a partition's leader is changing."""
        deadline = time.monotonic() + self.wait
        while True:
            try:
                return ask()
            except KafkaException as error:
                if error.args[0].code() not in _TRANSIENT or time.monotonic() > deadline:
                    raise
            time.sleep(0.05)

    def translation(self, error: KafkaError) -> Exception:
        """Translate a Kafka error."""
        reason = error.str() or error.name()
        if error.code() in REFUSED:
            message = f"{self.place} refused the request ({reason})"
            return JournalError(f"{message}: grant this client the permission")
        if error.code() in _MISSING:
            remedy = "the topic may have been deleted; restore it, or open another bandit"
            return JournalError(f"{self.place}: {reason}: {remedy}")
        outcome = "nothing was acknowledged, so it is safe to retry"
        return JournalUnavailable(f"{self.place} is unavailable: {reason}; {outcome}")

    def timed_out(self) -> JournalUnavailable:
        """Return the error for brokers that did not respond in time."""
        message = f"{self.place} has not responded for {self.wait:g} s"
        return JournalUnavailable(f"{message}; nothing was acknowledged, so it is safe to retry")


#: Errors due to missing permissions, which retries do not resolve.
REFUSED = frozenset(
    {
        KafkaError.TOPIC_AUTHORIZATION_FAILED,
        KafkaError.CLUSTER_AUTHORIZATION_FAILED,
        KafkaError.GROUP_AUTHORIZATION_FAILED,
        KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
        KafkaError.SASL_AUTHENTICATION_FAILED,
        KafkaError._AUTHENTICATION,
    }
)
#: Errors that retries resolve, for example while a partition's leader is changing.
_TRANSIENT = frozenset(
    {
        KafkaError.LEADER_NOT_AVAILABLE,
        KafkaError.NOT_LEADER_FOR_PARTITION,
        KafkaError.UNKNOWN_TOPIC_OR_PART,
        KafkaError.OFFSET_NOT_AVAILABLE,
        KafkaError.FENCED_LEADER_EPOCH,
        KafkaError.UNKNOWN_LEADER_EPOCH,
        KafkaError._TRANSPORT,
        KafkaError._TIMED_OUT,
        KafkaError._ALL_BROKERS_DOWN,
        KafkaError._UNKNOWN_PARTITION,  # from a broker that has just started
        KafkaError._DESTROY_BROKER,
    }
)
_MISSING = frozenset({KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError._UNKNOWN_TOPIC})


#: Maximum record size of a new topic in bytes, enough for 1,000 decisions with requests.
MAX_BYTES = 8 << 20


def new_name(bandit: str) -> str:
    """Return a unique name for the topic of a bandit.

    >>> new_name("best offers")[:20]
    'belated.best-offers.'
    """
    readable = re.sub(r"[^a-zA-Z0-9_-]+", "-", bandit)[:80].strip("-")
    return f"belated.{readable or 'bandit'}.{secrets.token_hex(4)}"


def settings_of(copies: int) -> dict[str, str]:
    """Return the topic settings that prevent loss of records and wrong timestamps.

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


#: Possible consequences of a different value, by setting.
_WHY = {
    "min.insync.replicas": "a record that only one broker has could be acknowledged",
    "unclean.leader.election.enable": "a lagging broker could discard acknowledged records",
    "message.timestamp.type": "records would have the client's time, which may be wrong",
    "cleanup.policy": "records could be replaced by later ones",
    "retention.ms": "records would be deleted before they are folded",
    "retention.bytes": "records would be deleted before they are folded",
}


class Topics:
    """Creates, checks and deletes topics.

    Args:
        cluster: Kafka cluster.
        copies: Number of replicas of each record.
    """

    def __init__(self, cluster: Cluster, copies: int) -> None:
        self._cluster = cluster
        self._copies = copies
        self._admin = AdminClient(cluster.settings())

    def exists(self, name: str) -> bool:
        """Return whether there is a topic with this name."""
        with self._cluster.translated():
            return name in self._admin.list_topics(timeout=self._cluster.wait).topics

    def make(self, name: str, partitions: int, **others: str) -> None:
        """Create a topic; ``others`` override the settings of a journal's topic."""
        settings = {**settings_of(self._copies), "max.message.bytes": str(MAX_BYTES), **others}
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
                message = f"a topic with {self._copies} replicas cannot be created"
                reason = error.args[0].str().rstrip(".")
                remedy = "set copies= to at most the number of brokers"
                place = self._cluster.place
                raise JournalError(f"{place}: {message} ({reason}): {remedy}") from error
            raise self._cluster.translation(error.args[0]) from error

    def remove(self, name: str) -> None:
        """Delete a topic with all its records."""
        with self._cluster.translated():
            self._result(self._admin.delete_topics([name], **self._timeouts()))

    def check(self, name: str, partitions: int) -> int:
        """Check the partitions, replicas and settings of a topic.

        Returns:
            The maximum record size in bytes.

        Raises:
            JournalMismatch: records in this topic could be lost or have wrong timestamps.
        """
        with self._cluster.translated():
            # Some brokers may not yet know a topic that was just created.
            topic = self._cluster.repeated(lambda: self._describe(name))
            settings = self._cluster.repeated(lambda: self._describe_settings(name))
        where = f"the topic {name!r} in {self._cluster.place}"
        if len(topic.partitions) != partitions:
            count = len(topic.partitions)
            message = (
                f"{where} has {count} partitions, but the bandit has {partitions}, so rewards would"
                " not be in the partitions of their decisions"
            )
            raise JournalMismatch(f"{message}: recreate the topic with {partitions} partitions")
        copies = min(len(partition.replicas) for partition in topic.partitions.values())
        if copies < self._copies:
            message = f"{where} has only {copies} of {self._copies} replicas"
            raise JournalMismatch(
                f"{message}: reassign its partitions, or open it with copies={copies}"
            )
        for setting, required in settings_of(self._copies).items():
            value = settings[setting]
            if not _is_enough(setting, value, required):
                message = f"{where} has {setting} = {value}"
                raise JournalMismatch(f"{message}, so {_WHY[setting]}: set {setting} = {required}")
        return int(settings["max.message.bytes"])

    def _describe(self, name: str) -> TopicMetadata:
        topic = self._admin.list_topics(name, timeout=self._cluster.wait).topics[name]
        for error in (topic.error, *(part.error for part in topic.partitions.values())):
            if error is not None:
                raise KafkaException(error)
        return topic

    def _describe_settings(self, name: str) -> dict[str, str]:
        resource = ConfigResource(ResourceType.TOPIC, name)
        described = self._admin.describe_configs([resource], request_timeout=self._cluster.wait)
        return {setting: entry.value for setting, entry in self._result(described).items()}

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


def _is_enough(setting: str, value: str, required: str) -> bool:
    if setting == "min.insync.replicas":
        return int(value) >= int(required)
    return value == required
