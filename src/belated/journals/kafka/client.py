"""What all clients of Kafka here have in common: settings, and errors in the library's words."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, TypeVar

from belated.exceptions import InvalidInput, JournalError, JournalUnavailable, MissingExtra

try:
    from confluent_kafka import KafkaError, KafkaException
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

__all__ = ["REFUSED", "Cluster", "KafkaError", "KafkaException"]
