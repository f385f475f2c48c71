"""A database of PostgreSQL as a store."""

from __future__ import annotations

import json
import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING
from urllib.parse import unquote, urlsplit

from belated.core.ids import check_id
from belated.journals.postgres import open_session
from belated.journals.postgres.coordination import PostgresCoordinationStore
from belated.journals.postgres.journal import PostgresJournal
from belated.journals.postgres.keys import PostgresKeyStore
from belated.journals.postgres.store_session import PostgresStoreSession
from belated.journals.store import StoredBandit, StoredSnapshot
from belated.journals.stored import already_there

if TYPE_CHECKING:
    from belated.journals.postgres.look import PostgresLook


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

    @property
    def address(self) -> str:
        """With which another process opens the same store; it may hold a password."""
        return self._dsn

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

    def session(self, *, wait: float = 10.0) -> PostgresStoreSession:
        """Open one connection for any number of bandits; see :meth:`Store.session`."""
        return PostgresStoreSession(self._dsn, wait=wait)

    @contextmanager
    def new_journal(self, bandit: str, *, partitions: int) -> Iterator[PostgresJournal]:
        """Make a journal that is there once the block has ended; see :meth:`Store.new_journal`.

        Until then its records stand under another name, and stay there if the block raises.
        """
        with (
            self.renaming(bandit, self.place) as unfinished,
            self.journal(unfinished, partitions=partitions) as journal,
        ):
            yield journal

    @contextmanager
    def renaming(self, bandit: str, place: str) -> Iterator[str]:
        """Give a name for a journal that has this name once the block has ended.

        Args:
            bandit: Name of the bandit, which must be new.
            place: Where the journal is, for messages.
        """
        check_id(bandit, "the bandit's name")
        session = open_session(self._dsn, 10.0)
        try:
            if session.run_query("find", name=bandit):
                raise already_there(bandit, place)
            unfinished = f"unfinished import {secrets.token_hex(4)}"
            yield unfinished
            if not session.run_query("rename", name=unfinished, new=bandit):
                raise already_there(bandit, place)
        finally:
            session.close()

    def describe(self) -> list[StoredBandit]:
        """Return what is stored of each bandit, by name."""
        session = open_session(self._dsn, 10.0)
        try:
            snapshots: dict[str, list[StoredSnapshot]] = {}
            for name, *one in session.run_query("snapshots"):
                snapshots.setdefault(name, []).append(StoredSnapshot(*one))
            return [
                StoredBandit(
                    name,
                    partitions,
                    None if identity is None else json.loads(identity),
                    snapshots.get(name, []),
                )
                for name, partitions, identity in session.run_query("bandits")
            ]
        finally:
            session.close()

    def look(self) -> PostgresLook:
        """Connect whatever the server's settings are, to say what is wrong with it."""
        from belated.journals.postgres.look import PostgresLook  # needs psycopg

        return PostgresLook(self._dsn)

    def create_tables(self) -> None:
        """Create the tables, or migrate those of an older release."""
        PostgresJournal.create_tables(self._dsn)
