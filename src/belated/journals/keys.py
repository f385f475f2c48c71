"""The API keys of a service, stored as hashes in one cell."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime

import msgspec

from belated.core.times import as_datetime
from belated.journals.cells import Cell, Cells

_CELL = "keys"


class _Key(msgspec.Struct, frozen=True):
    id: str
    name: str
    bandits: tuple[str, ...]
    scopes: tuple[str, ...]
    rate: float | None


class LiveKey(_Key, frozen=True):
    """A valid key, as a service needs it.

    Attributes:
        id: Public part of the key.
        name: Name of the program that uses the key.
        bandits: Bandits that the key may access; ``*`` for all.
        scopes: Scopes that the key grants.
        rate: Maximum number of requests per second. None means no limit.
        hash: SHA-256 of the whole key.
    """

    hash: bytes


class KeyHistory(_Key, frozen=True):
    """A key with its history, as commands list it.

    Attributes:
        id: Public part of the key.
        name: Name of the program that uses the key.
        bandits: Bandits that the key may access; ``*`` for all.
        scopes: Scopes that the key grants.
        rate: Maximum number of requests per second. None means no limit.
        created: When the key was created.
        revoked: When the key was revoked; None if it is valid.
    """

    created: datetime
    revoked: datetime | None


class _Stored(LiveKey, frozen=True):
    """A key with the times of its creation and revocation, in microseconds since 1970."""

    created: int
    revoked: int | None = None


_decoder = msgspec.json.Decoder(list[_Stored])


class KeyStore:
    """Stores the API keys of a service.

    Args:
        cells: Cells of the store; closed together with this object.
    """

    def __init__(self, cells: Cells) -> None:
        self._cells = cells

    def create(
        self,
        id: str,
        name: str,
        bandits: Sequence[str],
        scopes: Sequence[str],
        rate: float | None,
        hash: bytes,
    ) -> bool:
        """Add a key; return False if two valid keys have this name, or the id or hash exists."""
        now = self._cells.transact({}, {}).now
        new = _Stored(id, name, tuple(bandits), tuple(scopes), rate, hash, now)

        def add(keys: list[_Stored]) -> list[_Stored] | None:
            live = [key for key in keys if key.name == name and key.revoked is None]
            if len(live) >= 2 or any(key.id == id or key.hash == hash for key in keys):
                return None
            return [*keys, new]

        return self._change(add, done=lambda keys: new in keys)

    def live(self) -> list[LiveKey]:
        """Return all valid keys."""
        return [
            LiveKey(key.id, key.name, key.bandits, key.scopes, key.rate, key.hash)
            for key in sorted(self._read()[1], key=lambda key: key.id)
            if key.revoked is None
        ]

    def all(self) -> list[KeyHistory]:
        """Return all keys, including revoked keys, newest first."""
        return [
            KeyHistory(
                key.id, key.name, key.bandits, key.scopes, key.rate, as_datetime(key.created),
                None if key.revoked is None else as_datetime(key.revoked),
            )
            for key in sorted(self._read()[1], key=lambda key: (-key.created, key.id))
        ]  # fmt: skip

    def revoke(self, id: str) -> bool:
        """Revoke a key; return False if there is no key with this id."""
        now = self._cells.transact({}, {}).now

        def end(keys: list[_Stored]) -> list[_Stored] | None:
            if all(key.id != id for key in keys):
                return None
            return [
                msgspec.structs.replace(key, revoked=now)
                if key.id == id and key.revoked is None
                else key
                for key in keys
            ]

        return self._change(end)

    def close(self) -> None:
        """Close the cells."""
        self._cells.close()

    def _change(
        self,
        change: Callable[[list[_Stored]], list[_Stored] | None],
        done: Callable[[list[_Stored]], bool] = lambda keys: False,
    ) -> bool:
        """Update the keys; return False if ``change`` returns None, unless ``done`` is true."""
        while True:
            version, keys = self._read()
            if done(keys):
                return True
            new = change(keys)
            if new is None:
                return False
            if self._cells.transact({_CELL: version}, {_CELL: msgspec.json.encode(new)}).ok:
                return True

    def _read(self) -> tuple[int, list[_Stored]]:
        cell = self._cells.get([_CELL]).get(_CELL, Cell(0, 0, b"[]"))
        return cell.version, _decoder.decode(cell.value)
