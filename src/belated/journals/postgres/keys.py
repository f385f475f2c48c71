"""The API keys of a service in PostgreSQL."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from belated.journals.postgres import open_session
from belated.journals.shelf import KeyHistory, LiveKey

if TYPE_CHECKING:
    from belated.journals.postgres.session import PostgresSession


class PostgresKeyStore:
    """Stores the API keys of a service: hashes, never the keys.

    Args:
        dsn: where the database is; its tables are those of the journal.
        wait: how many seconds to wait for the server.
    """

    def __init__(self, dsn: str | PostgresSession, *, wait: float = 10.0) -> None:
        self._session = open_session(dsn, wait)

    def create(
        self,
        id: str,
        name: str,
        bandits: Sequence[str],
        scopes: Sequence[str],
        rate: float | None,
        hash: bytes,
    ) -> bool:
        """Add a key; False if two keys with this name work already."""
        made = self._session.transact(
            lambda talk: talk.run_query(
                "create_key",
                id=id,
                name=name,
                bandits=list(bandits),
                scopes=list(scopes),
                rate=rate,
                hash=hash,
            ),
            repeat=False,
        )
        return bool(made)

    def live(self) -> list[LiveKey]:
        """Return all keys that work."""
        return [
            LiveKey(id, name, tuple(bandits), tuple(scopes), rate, bytes(hash))
            for id, name, bandits, scopes, rate, hash in self._session.run_query("live_keys")
        ]

    def all(self) -> list[KeyHistory]:
        """Return all keys that ever worked, the newest first."""
        return [
            KeyHistory(id, name, tuple(bandits), tuple(scopes), rate, created, revoked)
            for id, name, bandits, scopes, rate, created, revoked in self._session.run_query(
                "all_keys"
            )
        ]

    def revoke(self, id: str) -> bool:
        """End a key for good; False if there is none with this id."""
        return bool(self._session.run_query("revoke_key", id=id))

    def close(self) -> None:
        """Close the connection."""
        self._session.close()
