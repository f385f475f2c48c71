"""Where journals are: an address, opened on demand."""

from __future__ import annotations

from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from belated.journals.journal import Journal
from belated.journals.sessions import StoreSession
from belated.journals.shelf import CoordinationStore, KeyStore


@dataclass(frozen=True)
class StoredSnapshot:
    """A snapshot without its pieces.

    Attributes:
        partition: It is of.
        position: The last record it covers.
        fingerprint: Of the fold that saved it.
        bytes: Size of its pieces.
    """

    partition: int
    position: int
    fingerprint: str
    bytes: int


@dataclass(frozen=True)
class StoredBandit:
    """What a store holds of a bandit, but for its records.

    Attributes:
        name: Name of the bandit.
        partitions: Number of partitions.
        identity: What the bandit is; None if none has used the journal yet.
        snapshots: At most one for each partition, by partition.
    """

    name: str
    partitions: int
    identity: dict[str, str] | None
    snapshots: list[StoredSnapshot]


@runtime_checkable
class Store(Protocol):
    """A database, a file or the memory of this process.

    Nothing is opened until you ask. Every call gives an object with a connection of its own, so
    that a look-up never waits for an append; close each when you are done with it. What is opened
    by one :meth:`session` shares its connection.
    """

    @property
    def name(self) -> str:
        """The kind of store: ``memory``, ``sqlite``, ``postgresql`` or ``kafka``."""

    @property
    def place(self) -> str:
        """Where it is, for messages; never with a password."""

    def journal(
        self, bandit: str = "default", *, partitions: int | None = None, wait: float = 10.0
    ) -> Journal:
        """Open the journal of a bandit; make it if it is new.

        Args:
            bandit: Name of the bandit.
            partitions: A power of two, fixed when the journal is made; None for as many as there
                are, and 1 in a new one.
            wait: Seconds to wait for the store before :class:`JournalUnavailable`.
        """

    def coordination(self, bandit: str = "default", *, wait: float = 10.0) -> CoordinationStore:
        """Open the lease and the published model of a bandit whose journal exists.

        Raises:
            JournalError: there is no such bandit yet.
        """

    def keys(self, *, wait: float = 10.0) -> KeyStore:
        """Open the API keys."""

    def session(self, *, wait: float = 10.0) -> StoreSession:
        """Open one connection for any number of bandits.

        Args:
            wait: Seconds to wait for the store before :class:`JournalUnavailable`.
        """

    def new_journal(self, bandit: str, *, partitions: int) -> AbstractContextManager[Journal]:
        """Make a journal that is there once the block has ended, and not if it raises.

        For imports, which are taken whole or not at all.

        Args:
            bandit: Name of the bandit, which must be new.
            partitions: A power of two.

        Raises:
            InvalidInput: there is such a bandit already, or for SQLite such a file.
        """

    def describe(self) -> list[StoredBandit]:
        """Return what is stored of each bandit, by name; changes nothing."""

    def create_tables(self) -> None:
        """Create the tables, or migrate those of an older release, if the store needs any."""
