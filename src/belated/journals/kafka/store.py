"""Brokers of Kafka and a database of PostgreSQL as one store."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import cached_property
from typing import TYPE_CHECKING

from belated.journals.kafka.coordination import KafkaCoordinationStore
from belated.journals.postgres.keys import PostgresKeyStore
from belated.journals.postgres.store import PostgresStore
from belated.journals.sessions import LoopedSession, StoreSession
from belated.journals.store import StoredBandit

if TYPE_CHECKING:
    from belated.journals.kafka.journal import KafkaJournal


class KafkaStore:
    """Opens journals in Kafka, and leases and keys in PostgreSQL; see :class:`Store`.

    Args:
        brokers: ``host:port`` of some brokers, with commas between.
        shelf: Address of the database: ``postgresql://user@host/name``.
        copies: Brokers that must have a copy of each record.
        settings: Of librdkafka.
        snapshots: Where pieces of snapshots are, a folder or ``s3://…``; in PostgreSQL if None.

    >>> KafkaStore("k1:9092,k2:9092", shelf="postgresql://shop:secret@db.example/belated").place
    "Kafka at k1:9092,k2:9092 and database 'belated' on db.example"
    """

    name = "kafka"
    #: Its journals find nothing by id.
    finds_by_id = False

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
        self._database = PostgresStore(shelf)

    def __repr__(self) -> str:
        return f"<KafkaStore: {self.place}>"  # the address may hold a password

    @property
    def place(self) -> str:
        """The brokers, the database and its host."""
        return f"Kafka at {self._brokers} and {self._database.place}"

    def journal(
        self, bandit: str = "default", *, partitions: int | None = None, wait: float = 10.0
    ) -> KafkaJournal:
        """Open the journal of a bandit; make it if it is new."""
        from belated.journals.kafka.journal import KafkaJournal  # needs confluent-kafka

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

    def coordination(
        self, bandit: str = "default", *, wait: float = 10.0
    ) -> KafkaCoordinationStore:
        """Open the lease, the published model and the workers of a bandit whose journal exists."""
        return KafkaCoordinationStore(
            self._brokers, shelf=self._shelf, bandit=bandit, wait=wait, settings=self._settings
        )

    def keys(self, *, wait: float = 10.0) -> PostgresKeyStore:
        """Open the API keys."""
        return self._database.keys(wait=wait)

    def session(self, *, wait: float = 10.0) -> KafkaSession:
        """Open what any number of bandits use; each has its own clients of Kafka."""
        return KafkaSession(self, self._database, wait)

    @contextmanager
    def new_journal(self, bandit: str, *, partitions: int) -> Iterator[KafkaJournal]:
        """Make a journal that is there once the block has ended; see :meth:`Store.new_journal`."""
        with (
            self._database.renaming(bandit, self.place) as unfinished,
            self.journal(unfinished, partitions=partitions) as journal,
        ):
            yield journal

    def describe(self) -> list[StoredBandit]:
        """Return what is stored of each bandit, by name."""
        return self._database.describe()

    def create_tables(self) -> None:
        """Create the tables, or migrate those of an older release."""
        self._database.create_tables()


class KafkaSession(LoopedSession):
    """A session whose bandits have clients of their own; leases are renewed in the database.

    Args:
        store: the store.
        database: of leases.
        wait: seconds to wait for either.
    """

    def __init__(self, store: KafkaStore, database: PostgresStore, wait: float) -> None:
        super().__init__(store, wait)
        self._database = database

    @cached_property
    def _leases(self) -> StoreSession:
        return self._database.session(wait=self._wait)

    def renew_leases(self, held: Mapping[str, str], seconds: float) -> dict[str, int]:
        """Renew leases in one commit; see :meth:`StoreSession.renew_leases`."""
        return self._leases.renew_leases(held, seconds)

    def close(self) -> None:
        """Close what was opened to look, and the connection for leases."""
        super().close()
        if "_leases" in vars(self):
            self._leases.close()
