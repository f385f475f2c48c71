"""A database of PostgreSQL as a store."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING
from urllib.parse import unquote, urlsplit

from belated.journals.postgres.cells import PostgresCells
from belated.journals.postgres.journal import PostgresJournal
from belated.journals.postgres.store_session import PostgresStoreSession
from belated.journals.store import Store

if TYPE_CHECKING:
    from belated.journals.postgres.look import PostgresLook


class PostgresStore(Store):
    """Opens journals, leases and keys in one database; see :class:`~belated.journals.Store`.

    Args:
        dsn: Address of the database: ``postgresql://user@host/name``.

    >>> PostgresStore("postgresql://shop:secret@db.example:5432/belated").place
    "database 'belated' on db.example:5432"
    """

    name = "postgresql"

    def __init__(self, dsn: str) -> None:
        self._dsn = dsn
        parts = urlsplit(dsn)
        name = unquote(parts.path.lstrip("/")) or os.environ.get("PGDATABASE", "")
        host = unquote(parts.netloc.rpartition("@")[2]) or os.environ.get("PGHOST", "this machine")
        self.place = f"database {name!r} on {host}"

    @property
    def address(self) -> str:
        """With which another process opens the same store; it may hold a password."""
        return self._dsn

    def __repr__(self) -> str:
        return f"<PostgresStore: {self.place}>"  # the address may hold a password

    def journal(
        self, bandit: str = "default", *, partitions: int | None = None, wait: float = 10.0
    ) -> PostgresJournal:
        """Open the journal of a bandit; make it if it is new."""
        return PostgresJournal(self._dsn, bandit=bandit, partitions=partitions, wait=wait)

    def cells(self, *, wait: float = 10.0) -> PostgresCells:
        """Open the cells."""
        return PostgresCells(self._dsn, wait=wait)

    def session(self, *, wait: float = 10.0) -> PostgresStoreSession:
        """Open one connection for any number of bandits; see :meth:`Store.session`."""
        return PostgresStoreSession(self, self._dsn, wait)

    def look(self) -> PostgresLook:
        """Connect whatever the server's settings are, to say what is wrong with it."""
        from belated.journals.postgres.look import PostgresLook  # needs psycopg

        return PostgresLook(self._dsn)

    def create_tables(self) -> None:
        """Create the tables, or migrate those of an older release."""
        PostgresJournal.create_tables(self._dsn)
