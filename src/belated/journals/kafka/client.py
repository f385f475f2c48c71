"""The brokers of Kafka: settings and errors of their clients, and the topics of bandits."""

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

#: What promises rest on: given otherwise, it is refused.
_OURS = frozenset(
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
        "group.instance.id",  # brokers fence a worker that starts again under the same one
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
    """Some brokers, and how to speak to them.

    Args:
        brokers: ``host:port`` of some of them, with commas between.
        settings: Of librdkafka, such as ``{"security.protocol": "SSL"}``.
        wait: Seconds to wait for an answer.
    """

    def __init__(self, brokers: str, settings: Mapping[str, str], wait: float) -> None:
        refused = sorted(_OURS & settings.keys())
        if refused:
            message = f"the setting {refused[0]!r} of Kafka's client is fixed: leave it out"
            raise InvalidInput(message, refused)
        self.brokers = brokers
        self.wait = wait
        self._settings = dict(settings)

    @property
    def place(self) -> str:
        """Where it is, for messages."""
        return f"Kafka at {self.brokers}"

    def settings(self, **ours: Any) -> dict[str, Any]:
        """Return the settings of a client; an underscore in a name stands for a full stop."""
        return {
            "socket.nagle.disable": True,
            "log_level": 0,  # what a call meets is raised; the rest would go to stderr
            "reconnect.backoff.max.ms": 1_000,
            **self._settings,
            "bootstrap.servers": self.brokers,
            **{name.replace("_", "."): value for name, value in ours.items()},
        }

    @contextmanager
    def translated(self) -> Iterator[None]:
        """Raise what Kafka's client raises as errors of a journal."""
        try:
            yield
        except KafkaException as error:
            raise self.translation(error.args[0]) from error

    def repeated(self, ask: Callable[[], T]) -> T:
        """Ask again while a partition changes its leader, as long as there is time."""
        deadline = time.monotonic() + self.wait
        while True:
            try:
                return ask()
            except KafkaException as error:
                if error.args[0].code() not in _PASSING or time.monotonic() > deadline:
                    raise
            time.sleep(0.05)

    def translation(self, error: KafkaError) -> Exception:
        """Return an error of a journal for one of Kafka."""
        what = error.str() or error.name()
        if error.code() in REFUSED:
            return JournalError(f"{self.place} refuses: {what}: grant this client the right to it")
        if error.code() in _MISSING:
            message = "the topic may have been deleted; restore it, or open another bandit"
            return JournalError(f"{self.place}: {what}: {message}")
        doubt = "nothing was acknowledged, and trying again is safe"
        return JournalUnavailable(f"{self.place} cannot be used now: {what}; {doubt}")

    def silent(self) -> JournalUnavailable:
        """Return the error for brokers that have not answered in time."""
        message = f"{self.place} has not answered for {self.wait:g} s"
        return JournalUnavailable(f"{message}: nothing was acknowledged, and trying again is safe")


#: What brokers say to a client that lacks a right: it says so until someone grants it.
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
#: What a broker says while it does not know yet what another one does.
_PASSING = frozenset(
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
        KafkaError._UNKNOWN_PARTITION,  # a broker that has just started knows none, or none leads
        KafkaError._DESTROY_BROKER,
    }
)
_MISSING = frozenset(
    {
        KafkaError.UNKNOWN_TOPIC_OR_PART,
        KafkaError._UNKNOWN_TOPIC,
    }
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
