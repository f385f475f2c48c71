"""The API keys of a service, in the memory of this process."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from datetime import datetime

from belated.core.times import as_datetime
from belated.exceptions import JournalClosed
from belated.journals.arrivals import Clock
from belated.journals.shelf import KeyHistory, LiveKey


class Keys:
    """All keys with the times of their making and end: what the objects opened on them share."""

    def __init__(self) -> None:
        self.known: dict[str, tuple[LiveKey, datetime, datetime | None]] = {}
        self.lock = threading.Lock()


class MemoryKeyStore:
    """Stores the API keys of a service: hashes, never the keys.

    Opened by :meth:`MemoryStore.keys`.

    Args:
        keys: there are.
        clock: gives the time in microseconds since 1970.
    """

    def __init__(self, keys: Keys, clock: Clock) -> None:
        self._shared: Keys | None = keys
        self._clock = clock

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
        keys = self._keys
        with keys.lock:
            mine = [
                one for one, _, revoked in keys.known.values() if one.name == name and not revoked
            ]
            taken = any(hash == one.hash for one, _, _ in keys.known.values())
            if len(mine) >= 2 or id in keys.known or taken:
                return False
            key = LiveKey(id, name, tuple(bandits), tuple(scopes), rate, hash)
            keys.known[id] = key, as_datetime(self._clock()), None
            return True

    def live(self) -> list[LiveKey]:
        """Return all keys that work."""
        keys = self._keys
        with keys.lock:
            live = [key for key, _, revoked in keys.known.values() if revoked is None]
        return sorted(live, key=lambda key: key.id)

    def all(self) -> list[KeyHistory]:
        """Return all keys that ever worked, the newest first."""
        keys = self._keys
        with keys.lock:
            found = [
                KeyHistory(key.id, key.name, key.bandits, key.scopes, key.rate, created, revoked)
                for key, created, revoked in keys.known.values()
            ]
        return sorted(found, key=lambda one: (-one.created.timestamp(), one.id))

    def revoke(self, id: str) -> bool:
        """End a key for good; False if there is none with this id."""
        keys = self._keys
        with keys.lock:
            if id not in keys.known:
                return False
            key, created, revoked = keys.known[id]
            keys.known[id] = key, created, revoked or as_datetime(self._clock())
            return True

    def close(self) -> None:
        """Let go of them; any later call raises :class:`JournalClosed`."""
        self._shared = None

    @property
    def _keys(self) -> Keys:
        if self._shared is None:
            raise JournalClosed("this key store was closed: open it again")
        return self._shared
