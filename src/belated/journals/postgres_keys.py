"""The keys of the service in PostgreSQL: what each may do, and the hash it is known by."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import NamedTuple

from belated.journals.postgres import open_session


class LiveKey(NamedTuple):
    """What a service knows of a key that works.

    Attributes:
        id: the public part of the key.
        name: of whoever has it.
        bandits: it is for; ``*`` for all.
        scopes: what may be done with it.
        rate: requests a second; None for any number.
        hash: the SHA-256 of the whole key.
    """

    id: str
    name: str
    bandits: tuple[str, ...]
    scopes: tuple[str, ...]
    rate: float | None
    hash: bytes


class KeyHistory(NamedTuple):
    """What people are told of a key.

    Attributes:
        id: the public part of the key.
        name: of whoever has it.
        bandits: it is for; ``*`` for all.
        scopes: what may be done with it.
        rate: requests a second; None for any number.
        created: when it was made.
        revoked: when it ended; None if it works.
    """

    id: str
    name: str
    bandits: tuple[str, ...]
    scopes: tuple[str, ...]
    rate: float | None
    created: datetime
    revoked: datetime | None


class PostgresKeys:
    """Where the keys of a service are kept: hashes, never the keys.

    Args:
        dsn: where the database is; its tables are those of the journal.
        wait: how many seconds to wait for the server.
    """

    def __init__(self, dsn: str, *, wait: float = 10.0) -> None:
        self._session = open_session(dsn, wait)
        try:
            self._session.check_tables()
        except BaseException:
            self._session.close()
            raise

    def create(
        self,
        id: str,
        name: str,
        bandits: Sequence[str],
        scopes: Sequence[str],
        rate: float | None,
        hash: bytes,
    ) -> bool:
        """Let a key work; False if there are two under this name already."""
        made = self._session.transact(
            lambda talk: talk.ask(
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
        """All that work."""
        return [
            LiveKey(id, name, tuple(bandits), tuple(scopes), rate, bytes(hash))
            for id, name, bandits, scopes, rate, hash in self._session.ask("live_keys")
        ]

    def all(self) -> list[KeyHistory]:
        """All that there ever were, the newest first."""
        return [
            KeyHistory(id, name, tuple(bandits), tuple(scopes), rate, created, revoked)
            for id, name, bandits, scopes, rate, created, revoked in self._session.ask("all_keys")
        ]

    def revoke(self, id: str) -> bool:
        """End a key for good; False if none has this id."""
        return bool(self._session.ask("revoke_key", id=id))

    def close(self) -> None:
        """Close the connection."""
        self._session.close()
