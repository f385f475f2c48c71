"""The API keys of a service, in a file of SQLite."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence

from belated.core.times import as_datetime
from belated.journals.arrivals import Clock
from belated.journals.shelf import KeyHistory, LiveKey
from belated.journals.sqlite.file import SQLiteFile, open_file
from belated.journals.steady_clock import system_clock

_KEY = "id, name, bandits, scopes, rate"


class SQLiteKeyStore:
    """Stores the API keys of a service: hashes, never the keys.

    Args:
        path: The file; made if it is not there.
        clock: Gives the time in microseconds since 1970; None for the system's.
        wait: Seconds to wait for other processes before :class:`JournalUnavailable`.
    """

    def __init__(
        self,
        path: str | os.PathLike[str] | SQLiteFile,
        *,
        clock: Clock | None = None,
        wait: float = 10.0,
    ) -> None:
        self._clock = clock or system_clock
        self._file = open_file(path, wait)

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
        key = id, name, json.dumps(list(bandits)), json.dumps(list(scopes)), rate, hash
        with self._file.writing() as connection:
            (live,) = connection.execute(
                "SELECT count(*) FROM key WHERE name = ? AND revoked IS NULL", (name,)
            ).fetchone()
            if live >= 2:
                return False
            made = connection.execute(
                f"INSERT OR IGNORE INTO key ({_KEY}, hash, created) VALUES (?, ?, ?, ?, ?, ?, ?)",
                (*key, self._clock()),
            )
            return made.rowcount > 0

    def live(self) -> list[LiveKey]:
        """Return all keys that work."""
        with self._file.reading() as connection:
            rows = connection.execute(
                f"SELECT {_KEY}, hash FROM key WHERE revoked IS NULL ORDER BY id"
            ).fetchall()
        return [
            LiveKey(id, name, tuple(json.loads(bandits)), tuple(json.loads(scopes)), rate, hash)
            for id, name, bandits, scopes, rate, hash in rows
        ]

    def all(self) -> list[KeyHistory]:
        """Return all keys that ever worked, the newest first."""
        with self._file.reading() as connection:
            rows = connection.execute(
                f"SELECT {_KEY}, created, revoked FROM key ORDER BY created DESC, id"
            ).fetchall()
        return [
            KeyHistory(
                id,
                name,
                tuple(json.loads(bandits)),
                tuple(json.loads(scopes)),
                rate,
                as_datetime(created),
                None if revoked is None else as_datetime(revoked),
            )
            for id, name, bandits, scopes, rate, created, revoked in rows
        ]

    def revoke(self, id: str) -> bool:
        """End a key for good; False if there is none with this id."""
        with self._file.writing() as connection:
            ended = connection.execute(
                "UPDATE key SET revoked = coalesce(revoked, ?) WHERE id = ?", (self._clock(), id)
            )
            return ended.rowcount > 0

    def close(self) -> None:
        """Close the file; any later call raises :class:`JournalClosed`."""
        self._file.close()
