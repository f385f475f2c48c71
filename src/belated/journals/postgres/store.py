"""A database of PostgreSQL as a store."""

from __future__ import annotations

import os
from urllib.parse import unquote, urlsplit

from belated.journals.postgres import open_session
from belated.journals.postgres.coordination import PostgresCoordinationStore
from belated.journals.postgres.journal import PostgresJournal
from belated.journals.postgres.keys import PostgresKeyStore


class PostgresStore:
    """Opens journals, leases and keys in one database; see :class:`~belated.journals.Store`.

    Args:
        dsn: Address of the database: ``postgresql://user@host/name``.

    >>> PostgresStore("postgresql://shop:secret@db.example:5432/belated").place
    "database 'belated' on db.example:5432"
    """

    name = "postgresql"

    def __init__(self, dsn: str) -> None:
        self._dsn = dsn

    def __repr__(self) -> str:
        return f"<PostgresStore: {self.place}>"  # the address may hold a password

    @property
    def place(self) -> str:
        """The database and its host."""
        parts = urlsplit(self._dsn)
        name = unquote(parts.path.lstrip("/")) or os.environ.get("PGDATABASE", "")
        host = unquote(parts.netloc.rpartition("@")[2]) or os.environ.get("PGHOST", "this machine")
        return f"database {name!r} on {host}"

    def journal(
        self, bandit: str = "default", *, partitions: int | None = None, wait: float = 10.0
    ) -> PostgresJournal:
        """Open the journal of a bandit; make it if it is new."""
        return PostgresJournal(self._dsn, bandit=bandit, partitions=partitions, wait=wait)

    def coordination(
        self, bandit: str = "default", *, wait: float = 10.0
    ) -> PostgresCoordinationStore:
        """Open the lease and the published model of a bandit whose journal exists."""
        return PostgresCoordinationStore(self._dsn, bandit=bandit, wait=wait)

    def keys(self, *, wait: float = 10.0) -> PostgresKeyStore:
        """Open the API keys."""
        return PostgresKeyStore(self._dsn, wait=wait)

    def bandits(self) -> list[str]:
        """Return the names of all bandits, sorted."""
        session = open_session(self._dsn, 10.0)
        try:
            return sorted(name for (name,) in session.ask("bandits"))
        finally:
            session.close()

    def create_tables(self) -> None:
        """Create the tables, or migrate those of an older release."""
        PostgresJournal.create_tables(self._dsn)
