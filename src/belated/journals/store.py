"""Where journals are: an address, opened on demand."""

from __future__ import annotations

from typing import Protocol, runtime_checkable

from belated.journals.journal import Journal
from belated.journals.shelf import CoordinationStore, KeyStore


@runtime_checkable
class Store(Protocol):
    """A database, a file or the memory of this process.

    Nothing is opened until you ask. Every call gives an object with a connection of its own, so
    that a look-up never waits for an append; close each when you are done with it.
    """

    @property
    def name(self) -> str:
        """The kind of store: ``memory``, ``sqlite`` or ``postgresql``."""

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

    def bandits(self) -> list[str]:
        """Return the names of all bandits, sorted; makes nothing."""

    def create_tables(self) -> None:
        """Create the tables, or migrate those of an older release, if the store needs any."""
