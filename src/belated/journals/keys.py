"""The API keys of a service: hashes, never the keys, all in one cell."""

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
    """What a service knows of a key that works.

    Attributes:
        id: Public part of the key.
        name: Program that uses it.
        bandits: Bandits it may access; ``*`` for all.
        scopes: What it may do.
        rate: Requests per second; None for any number.
        hash: SHA-256 of the whole key.
    """

    hash: bytes


class KeyHistory(_Key, frozen=True):
    """What people are told of a key.

    Attributes:
        id: Public part of the key.
        name: Program that uses it.
        bandits: Bandits it may access; ``*`` for all.
        scopes: What it may do.
        rate: Requests per second; None for any number.
        created: When it was made.
        revoked: When it was revoked; None if it works.
    """

    created: datetime
    revoked: datetime | None


class _Stored(LiveKey, frozen=True):
    """A key, with when it was made and revoked, in microseconds since 1970."""

    created: int
    revoked: int | None = None


_decoder = msgspec.json.Decoder(list[_Stored])


class KeyStore:
    """Where the API keys of a service are stored.

    Args:
        cells: Cells of the store; closed together with this.
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
        """Add a key; False if two keys with this name work already, or its id or hash is known."""
        now = self._cells.transact({}, {}).now
        key = _Stored(id, name, tuple(bandits), tuple(scopes), rate, hash, now)

        def add(keys: list[_Stored]) -> list[_Stored] | None:
            live = [one for one in keys if one.name == name and one.revoked is None]
            if len(live) >= 2 or any(one.id == id or one.hash == hash for one in keys):
                return None
            return [*keys, key]

        return self._change(add, done=lambda keys: key in keys)

    def live(self) -> list[LiveKey]:
        """Return all keys that work."""
        return [
            LiveKey(one.id, one.name, one.bandits, one.scopes, one.rate, one.hash)
            for one in sorted(self._read()[1], key=lambda one: one.id)
            if one.revoked is None
        ]

    def all(self) -> list[KeyHistory]:
        """Return all keys that ever worked, the newest first."""
        return [
            KeyHistory(
                one.id, one.name, one.bandits, one.scopes, one.rate, as_datetime(one.created),
                None if one.revoked is None else as_datetime(one.revoked),
            )
            for one in sorted(self._read()[1], key=lambda one: (-one.created, one.id))
        ]  # fmt: skip

    def revoke(self, id: str) -> bool:
        """End a key for good; False if there is none with this id."""
        now = self._cells.transact({}, {}).now

        def end(keys: list[_Stored]) -> list[_Stored] | None:
            if all(one.id != id for one in keys):
                return None
            return [
                msgspec.structs.replace(one, revoked=now)
                if one.id == id and one.revoked is None
                else one
                for one in keys
            ]

        return self._change(end)

    def close(self) -> None:
        """Release whatever is held."""
        self._cells.close()

    def _change(
        self,
        change: Callable[[list[_Stored]], list[_Stored] | None],
        done: Callable[[list[_Stored]], bool] = lambda keys: False,
    ) -> bool:
        """Replace the keys; False if ``change`` refuses, unless it is done already."""
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
