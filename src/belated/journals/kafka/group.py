"""The consumer group in which workers share the partitions of a topic."""

from __future__ import annotations

import threading
import time
from collections.abc import Collection
from typing import Any

from belated.exceptions import JournalError
from belated.journals.coordination import Claim
from belated.journals.kafka.client import REFUSED, Cluster, KafkaError, KafkaException

from confluent_kafka import OFFSET_END, Consumer, TopicPartition  # isort: skip
from confluent_kafka.admin import (  # isort: skip
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ResourceType,
)

#: Number of heartbeats per session timeout; the brokers' responses report changes.
_BEATS = 6
#: Seconds after which a worker counts as stuck if it makes no calls or keeps revoked partitions.
_PATIENCE = 300.0


class WorkerGroup:
    """The membership of a worker in the group that shares a topic's partitions.

    The brokers assign partitions (KIP-848, Kafka 4), and reassign the partitions of a worker that
    sends no heartbeat within the session timeout. A separate thread sends heartbeats, even while
    the worker is busy. Revoked partitions belong to the worker until it gives them back. The
    consumer reads nothing and commits no offsets; positions are stored with the folded state.

    A worker that was disconnected learns from its next heartbeat that it has been replaced. Until
    then, it does not claim partitions that it has found to be owned by another worker.

    Args:
        cluster: Kafka cluster.
        topic: Name of the topic and of the group.
        seconds: Session timeout of the group.
    """

    def __init__(self, cluster: Cluster, topic: str, seconds: float) -> None:
        self._cluster = cluster
        self._topic = topic
        self._seconds = seconds
        self._changed = threading.Condition()
        self._held: set[int] = set()
        #: Held partitions that the brokers have revoked.
        self._surplus: set[int] = set()
        #: Held partitions that another worker seems to own, and until when each is not claimed.
        self._doubted: dict[int, float] = {}
        self._called_at = 0.0
        self._left = False
        self._failure: Exception | None = None
        self._thread: threading.Thread | None = None

    def claim(self) -> Claim:
        """Return the partitions assigned to the worker; join the group first if necessary.

        Raises:
            JournalError: the brokers refuse, or do not support the group protocol.
            JournalUnavailable: the brokers cannot be reached.
        """
        self._called_at = now = time.monotonic()
        failure, self._failure = self._failure, None
        if failure is not None:
            raise failure
        if self._thread is None or not self._thread.is_alive():
            self._join()
        with self._changed:
            self._doubted = {number: end for number, end in self._doubted.items() if now < end}
            partitions = self._held - self._doubted.keys()
            return Claim(tuple(sorted(partitions)), tuple(sorted(partitions & self._surplus)))

    def give_back(self, partitions: Collection[int]) -> None:
        """Release partitions to other workers immediately."""
        with self._changed:
            self._held -= set(partitions)
            self._changed.notify_all()

    def doubt(self, partitions: Collection[int]) -> None:
        """Stop claiming partitions that another worker seems to own, until the next heartbeat."""
        until = time.monotonic() + 2 * self._seconds / _BEATS
        with self._changed:
            self._doubted |= dict.fromkeys(partitions, until)

    def close(self) -> None:
        """Leave the group, and release all partitions immediately."""
        with self._changed:
            self._left = True
            self._changed.notify_all()
        if self._thread is not None:
            self._thread.join(self._cluster.wait)

    # --- the thread ------------------------------------------------------------------------------

    def _join(self) -> None:
        self._set_session()
        self._held, self._surplus = set(), set()
        consumer = Consumer(
            self._cluster.settings(
                group_id=self._topic,
                group_protocol="consumer",
                enable_auto_commit=False,
                auto_offset_reset="latest",  # unused, since all partitions are paused
                max_poll_interval_ms=int(1000 * _PATIENCE),
            )
        )
        consumer.subscribe(
            [self._topic], on_assign=self._assign, on_revoke=self._revoke, on_lost=self._lose
        )
        self._thread = threading.Thread(
            target=self._run, args=(consumer,), name="belated group", daemon=True
        )
        self._thread.start()

    def _set_session(self) -> None:
        """Set the session timeout, which is a setting of the group and not of a worker."""
        config = {
            "consumer.session.timeout.ms": int(1000 * self._seconds),
            "consumer.heartbeat.interval.ms": int(1000 * self._seconds / _BEATS),
        }
        entries = [
            ConfigEntry(name, str(value), incremental_operation=AlterConfigOpType.SET)
            for name, value in config.items()
        ]
        resource = ConfigResource(ResourceType.GROUP, self._topic, incremental_configs=entries)
        admin = AdminClient(self._cluster.settings())
        try:
            (future,) = admin.incremental_alter_configs(
                [resource], request_timeout=self._cluster.wait
            ).values()
            future.result(self._cluster.wait + 1.0)
        except KafkaException as error:
            raise self._translation(error.args[0]) from error

    def _run(self, consumer: Consumer) -> None:
        """Poll the brokers until the worker leaves."""
        try:
            while not self._left and self._failure is None:
                if time.monotonic() > self._called_at + _PATIENCE:
                    time.sleep(0.1)  # the brokers replace the worker after the session timeout
                    continue
                message = consumer.poll(0.1)
                error = None if message is None else message.error()
                if error is not None and (error.fatal() or error.code() in _UNSUPPORTED | REFUSED):
                    self._failure = self._translation(error)
        except KafkaException as error:
            self._failure = self._translation(error.args[0])
        finally:
            with self._changed:
                self._held.clear()
            consumer.close()

    def _assign(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        for place in partitions:
            place.offset = OFFSET_END
        consumer.incremental_assign(partitions)
        consumer.pause(partitions)
        with self._changed:
            assigned = {place.partition for place in partitions}
            self._held |= assigned
            for number in assigned:
                self._doubted.pop(number, None)

    def _revoke(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        """Wait until the worker has given back partitions; returning releases the partitions."""
        revoked = {place.partition for place in partitions}

        def is_done() -> bool:
            return self._left or not revoked & self._held

        with self._changed:
            self._surplus = revoked
            self._changed.wait_for(is_done, _PATIENCE)
            self._surplus = set()
            self._held -= revoked

    def _lose(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        with self._changed:
            self._held -= {place.partition for place in partitions}

    def _translation(self, error: Any) -> Exception:
        if error.code() in _UNSUPPORTED:
            message = f"{self._cluster.place} cannot assign partitions"
            remedy = 'learners = "many" needs Kafka 4.0 or later'
            return JournalError(f"{message}: {error.str()}: {remedy}")
        if error.code() == KafkaError.INVALID_CONFIG:
            message = f"{self._cluster.place} rejected a session timeout of {self._seconds:g} s"
            remedy = "change lease_ttl, or the limit on the brokers"
            return JournalError(f"{message}: {error.str()}: {remedy}")
        return self._cluster.translation(error)


#: Errors from brokers that do not support the group protocol.
_UNSUPPORTED = frozenset({KafkaError.UNSUPPORTED_VERSION, KafkaError._UNSUPPORTED_FEATURE})
