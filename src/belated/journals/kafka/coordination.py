"""The lease, the published model and the sums of a bandit in PostgreSQL; its workers in Kafka."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from belated.journals.postgres.coordination import PostgresCoordinationStore

if TYPE_CHECKING:
    from belated.journals.kafka.group import WorkerGroup


class KafkaCoordinationStore(PostgresCoordinationStore):
    """Where learners agree on who leads; which partitions each has, the brokers say.

    Args:
        brokers: ``host:port`` of some brokers, with commas between.
        shelf: Address of the database: ``postgresql://user@host/name``.
        bandit: Name of the bandit, which a journal has opened before.
        wait: Seconds to wait for brokers and the database.
        settings: Of librdkafka.
    """

    def __init__(
        self,
        brokers: str,
        *,
        shelf: str,
        bandit: str,
        wait: float = 10.0,
        settings: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(shelf, bandit=bandit, wait=wait)
        self._brokers = brokers
        self._wait = wait
        self._settings = dict(settings or {})

    def join_group(self, seconds: float) -> WorkerGroup:
        """Be one of the workers; see :class:`GroupStore`."""
        from belated.journals.kafka.client import Cluster  # needs confluent-kafka
        from belated.journals.kafka.group import WorkerGroup

        assert self._topic is not None
        return WorkerGroup(Cluster(self._brokers, self._settings, self._wait), self._topic, seconds)
