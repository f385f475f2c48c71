"""A store that combines logs in Kafka with cells in another store."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from belated.journals.addresses import open_store
from belated.journals.bandits import find_bandit
from belated.journals.cells import Cells
from belated.journals.coordination import CoordinationStore
from belated.journals.store import Store

if TYPE_CHECKING:
    from belated.journals.kafka.group import WorkerGroup
    from belated.journals.kafka.log import KafkaJournal

#: Timeout of requests about group membership, in seconds.
WAIT = 10.0


class KafkaStore(Store):
    """A store with logs in Kafka and everything else in another store; see :class:`Store`.

    Args:
        brokers: ``host:port`` of some brokers, separated by commas.
        shelf: Address of the store of cells: ``postgresql://user@host/name``, or
            ``sqlite:///offers.db`` if all processes are on one machine.
        copies: Number of replicas of each record.
        settings: librdkafka settings.
        snapshots: Folder for snapshot pieces, or ``s3://…``; by default, pieces are stored in
            cells.

    >>> KafkaStore("k1:9092,k2:9092", shelf="postgresql://shop:secret@db.example/belated").place
    "Kafka at k1:9092,k2:9092 and database 'belated' on db.example"
    """

    name = "kafka"
    #: Journals of this store cannot look up records by id.
    finds_by_id = False
    assigns_partitions = True

    def __init__(
        self,
        brokers: str,
        *,
        shelf: str,
        copies: int = 3,
        settings: Mapping[str, str] | None = None,
        snapshots: str | None = None,
    ) -> None:
        self._brokers = brokers
        self._shelf = shelf
        self._copies = copies
        self._settings = dict(settings or {})
        self._snapshots = snapshots
        self._database = open_store(shelf)
        self.place = f"Kafka at {brokers} and {self._database.place}"

    def __repr__(self) -> str:
        return f"<KafkaStore: {self.place}>"  # the address may contain a password

    def journal(
        self, bandit: str = "default", *, partitions: int | None = None, wait: float = 10.0
    ) -> KafkaJournal:
        """Open the journal of a bandit; create it if it does not exist."""
        from belated.journals.kafka.log import KafkaJournal  # needs confluent-kafka

        return KafkaJournal(
            self._brokers,
            shelf=self._shelf,
            bandit=bandit,
            partitions=partitions,
            wait=wait,
            copies=self._copies,
            settings=self._settings,
            snapshots=self._snapshots,
        )

    def cells(self, *, wait: float = 10.0) -> Cells:
        """Open the cells."""
        return self._database.cells(wait=wait)

    def coordination_in(self, cells: Cells, bandit: str) -> KafkaCoordinationStore:
        """Open the lease, the published model and the worker group of a bandit."""
        super().coordination_in(cells, bandit)
        return KafkaCoordinationStore(cells, bandit, self._brokers, self._settings)

    def create_tables(self) -> None:
        """Create the tables in the store of cells."""
        self._database.create_tables()


class KafkaCoordinationStore(CoordinationStore):
    """Coordination in cells, with partitions assigned by the brokers.

    Args:
        cells: Cells of the store; closed together with this object.
        bandit: Name of the bandit.
        brokers: ``host:port`` of some brokers, separated by commas.
        settings: librdkafka settings.
    """

    def __init__(
        self, cells: Cells, bandit: str, brokers: str, settings: Mapping[str, str]
    ) -> None:
        super().__init__(cells, bandit)
        self._brokers = brokers
        self._settings = settings

    def join_group(self, seconds: float) -> WorkerGroup:
        """Join the workers; see :meth:`CoordinationStore.join_group`."""
        from belated.journals.kafka.client import Cluster  # needs confluent-kafka
        from belated.journals.kafka.group import WorkerGroup

        _, entry = find_bandit(self.cells, self._bandit)
        assert entry is not None
        assert entry.topic is not None
        return WorkerGroup(Cluster(self._brokers, self._settings, WAIT), entry.topic, seconds)
