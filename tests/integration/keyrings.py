"""Keys for tests, created in the store as `belated keys create` does."""

from __future__ import annotations

from http.client import HTTPConnection
from itertools import count
from typing import NamedTuple

from belated.journals import Store
from belated.wire.keys import hash_of, new_key
from tests.waiting import eventually

_numbers = count()


class Made(NamedTuple):
    """A key, its id, and its header."""

    key: str
    id: str
    name: str

    @property
    def header(self) -> dict[str, str]:
        """The header with the key."""
        return {"authorization": f"Bearer {self.key}"}


def make(
    store: Store, *scopes: str, bandits: tuple[str, ...] = ("*",), rate: float | None = None
) -> Made:
    """Create a key with a new name."""
    keys = store.keys()
    key, id = new_key()
    name = f"test {next(_numbers)}"
    assert keys.create(id, name, bandits, scopes, rate, hash_of(key))
    keys.close()
    return Made(key, id, name)


def known(store: Store, url: str) -> Made:
    """Create a key with all scopes, and wait until a service knows it."""
    key = make(store, "decide", "reward", "read")
    eventually(lambda: answers(url, key, "/metrics") == 200)
    return key


def revoke(store: Store, id: str) -> None:
    """Revoke a key."""
    keys = store.keys()
    assert keys.revoke(id)
    keys.close()


def answers(url: str, made: Made, path: str) -> int:
    """Return the status of a plain GET with a key."""
    connection = HTTPConnection(url.removeprefix("http://"), timeout=10)
    try:
        connection.request("GET", path, headers=made.header)
        return connection.getresponse().status
    finally:
        connection.close()
