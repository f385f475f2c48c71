"""Which partitions a worker has, by Kafka's group protocol: brokers assign, and miss the dead."""

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

#: Signs of life in a session: the brokers tell of changes in answer to them.
_BEATS = 6
#: Seconds after which a worker that asks for nothing, or gives nothing back, is taken for stuck.
_PATIENCE = 300.0


class WorkerGroup:
    """The place of one worker among those that share the partitions of a topic.

    The brokers assign partitions (KIP-848, Kafka 4), and give those of a worker that has said
    nothing for a session to others. A thread of its own answers them, whatever else the worker is
    busy with. What they want back is the worker's until it has given it back. Nothing is read
    here, and no offset committed: a position belongs with the state it led to.

    A worker that was cut off learns of it with its next sign of life. So what it has found to be
    another's is not claimed again until then.

    Args:
        cluster: The brokers.
        topic: Name of the topic; the group has the same.
        seconds: For which a worker that says nothing is not missed: the session of the group.
    """

    def __init__(self, cluster: Cluster, topic: str, seconds: float) -> None:
        self._cluster = cluster
        self._topic = topic
        self._seconds = seconds
        self._changed = threading.Condition()
        self._held: set[int] = set()
        #: Of what is held: what the brokers want back; and until when others are believed to have
        #: it, by this machine's clock.
        self._surplus: set[int] = set()
        self._doubted: dict[int, float] = {}
        self._asked = 0.0
        self._left = False
        self._failure: Exception | None = None
        self._thread: threading.Thread | None = None

    def claim(self) -> Claim:
        """Return what the worker holds now; join the group first if it has not.

        Raises:
            JournalError: The brokers refuse, or do not know this protocol.
            JournalUnavailable: They cannot be reached.
        """
        self._asked = now = time.monotonic()
        failure, self._failure = self._failure, None
        if failure is not None:
            raise failure
        if self._thread is None or not self._thread.is_alive():
            self._join()
        with self._changed:
            self._doubted = {one: end for one, end in self._doubted.items() if now < end}
            held = self._held - self._doubted.keys()
            return Claim(tuple(sorted(held)), tuple(sorted(held & self._surplus)))

    def give_back(self, partitions: Collection[int]) -> None:
        """Leave partitions to others, which get them now."""
        with self._changed:
            self._held -= set(partitions)
            self._changed.notify_all()

    def doubt(self, partitions: Collection[int]) -> None:
        """Another has acquired them: do not claim them before the brokers have been heard."""
        until = time.monotonic() + 2 * self._seconds / _BEATS
        with self._changed:
            self._doubted |= dict.fromkeys(partitions, until)

    def close(self) -> None:
        """Leave the group: others get the partitions now."""
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
                auto_offset_reset="latest",  # of partitions that are paused: nothing is read
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
        """The brokers have it of the group, not of each worker."""
        wanted = {
            "consumer.session.timeout.ms": int(1000 * self._seconds),
            "consumer.heartbeat.interval.ms": int(1000 * self._seconds / _BEATS),
        }
        entries = [
            ConfigEntry(name, str(value), incremental_operation=AlterConfigOpType.SET)
            for name, value in wanted.items()
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
        """Speak to the brokers until the worker leaves."""
        try:
            while not self._left and self._failure is None:
                if time.monotonic() > self._asked + _PATIENCE:
                    time.sleep(0.1)  # the brokers miss it in time
                    continue
                message = consumer.poll(0.1)
                error = None if message is None else message.error()
                if error is not None and (error.fatal() or error.code() in _USELESS | REFUSED):
                    self._failure = self._translation(error)
        except KafkaException as error:
            self._failure = self._translation(error.args[0])
        finally:
            with self._changed:
                self._held.clear()
            consumer.close()

    def _assign(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        for one in partitions:
            one.offset = OFFSET_END
        consumer.incremental_assign(partitions)
        consumer.pause(partitions)
        with self._changed:
            assigned = {one.partition for one in partitions}
            self._held |= assigned
            self._doubted = {one: end for one, end in self._doubted.items() if one not in assigned}

    def _revoke(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        """Return once the worker has given them back: with that the brokers have them."""
        wanted = {one.partition for one in partitions}

        def is_done() -> bool:
            return self._left or not wanted & self._held

        with self._changed:
            self._surplus = wanted
            self._changed.wait_for(is_done, _PATIENCE)
            self._surplus = set()
            self._held -= wanted

    def _lose(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        with self._changed:
            self._held -= {one.partition for one in partitions}

    def _translation(self, error: Any) -> Exception:
        if error.code() in _USELESS:
            what = f"{self._cluster.place} cannot share out partitions"
            cure = 'learners = "many" needs Kafka 4.0 or later'
            return JournalError(f"{what}: {error.str()}: {cure}")
        if error.code() == KafkaError.INVALID_CONFIG:
            what = f"{self._cluster.place} refuses a session of {self._seconds:g} s"
            cure = "set another lease_ttl, or another limit on the brokers"
            return JournalError(f"{what}: {error.str()}: {cure}")
        return self._cluster.translation(error)


#: What brokers say that do not know of such groups.
_USELESS = frozenset({KafkaError.UNSUPPORTED_VERSION, KafkaError._UNSUPPORTED_FEATURE})
