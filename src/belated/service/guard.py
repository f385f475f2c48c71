"""The guard at the door: who may do what, known in memory, so that no request asks a database."""

from __future__ import annotations

import logging
import math
import threading
import time
from collections.abc import Iterable
from hashlib import sha256
from ipaddress import ip_address
from typing import Literal

from belated.exceptions import InvalidInput
from belated.journals import LiveKey, PostgresKeyStore
from belated.service.keys import ALL, LENGTH, Key, KeyScope, looks_whole
from belated.service.problems import ProblemError

log = logging.getLogger("belated.service")

#: Who may ask: whoever has a key, or anyone.
Auth = Literal["keys", "off"]
#: Seconds between two looks at the keys: within two, one that was revoked works no more.
LOOK = 1.0

_SCHEME = b"bearer "
_SIZE = len(_SCHEME) + LENGTH


class Guard:
    """Holds what is known of all keys, and lets through who may.

    A thread looks for changes. While the database is away, the keys that were known go on working.

    Args:
        store: of the keys; used by that thread alone.
        tokens: whether rewards may come with a token instead of a key.
        look: seconds between two looks at the store.
    """

    def __init__(
        self, store: PostgresKeyStore, *, tokens: bool = False, look: float = LOOK
    ) -> None:
        self._store = store
        self._tokens = tokens
        self._look = look
        self._rows: list[LiveKey] = []
        self._keys: dict[bytes, Key] = {}
        self._looked = time.monotonic()
        self._stopped = threading.Event()
        self._take(store.live())
        if not self._keys:
            log.warning("no key works yet: make one with `belated keys create`")
        self._thread = threading.Thread(target=self._look_on, name="belated keys", daemon=True)
        self._thread.start()

    @property
    def known(self) -> int:
        """How many keys work."""
        return len(self._keys)

    @property
    def age(self) -> float:
        """Seconds since the store was looked at."""
        return time.monotonic() - self._looked

    def admits(
        self, headers: Iterable[tuple[bytes, bytes]], scope: KeyScope, bandit: str | None
    ) -> bool:
        """Whether a request comes with a key that may do this.

        Args:
            headers: of the request.
            scope: that is needed.
            bandit: it is about; None where it is about none.

        Returns:
            False if there is no key, and a token may stand in its place.

        Raises:
            ProblemError: 401 without a key that works, 403 if it may not do this, 429 if it asks
                too often. It is the same whether there is such a bandit or not.
        """
        value = _presented(headers)
        if value is None:
            if self._tokens and scope == "reward":
                return False
            raise unauthorized("a key is needed: send it as Authorization: Bearer blt_…")
        # What has another length is no key, and not worth a hash.
        right = len(value) == _SIZE and value[: len(_SCHEME)].lower() == _SCHEME
        key = self._keys.get(sha256(value[len(_SCHEME) :]).digest()) if right else None
        if key is None:
            raise _not_a_key(value)
        if not key.may(scope, bandit):
            raise ProblemError(403, "Not allowed", f"this key is not for this: it takes {scope}")
        if key.rate is not None and (wait := key.wait(time.monotonic())):
            raise _too_often(key.rate, wait)
        return True

    def close(self) -> None:
        """Look no more."""
        self._stopped.set()
        self._thread.join()
        self._store.close()

    def _look_on(self) -> None:
        away = False
        while not self._stopped.wait(self._look):
            try:
                rows = self._store.live()
            except Exception as error:  # whatever it is, it must go on: a key may be revoked
                if not away:  # once, while it stays so
                    log.warning("the keys cannot be looked at", extra={"why": str(error)})
                away = True
                continue
            away = False
            self._take(rows)

    def _take(self, rows: list[LiveKey]) -> None:
        self._looked = time.monotonic()
        if rows == self._rows:
            return
        before = {row.hash: row for row in self._rows}
        # One that has not changed stays as it is, with what it has used up of its rate.
        self._keys = {
            row.hash: self._keys[row.hash] if before.get(row.hash) == row else _key(row)
            for row in rows
        }
        self._rows = rows


def _presented(headers: Iterable[tuple[bytes, bytes]]) -> bytes | None:
    for name, value in headers:
        if name == b"authorization":
            return value
    return None


def _key(row: LiveKey) -> Key:
    bandits = frozenset(row.bandits)
    return Key(row.id, bandits, frozenset(row.scopes), row.rate, ALL in bandits)


def auth_at(host: str, auth: Auth | None) -> Auth:
    """Who may ask on an address: as it is written down, or anyone on this machine.

    >>> auth_at("127.0.0.1", None), auth_at("0.0.0.0", "keys")
    ('off', 'keys')
    """
    if auth is not None:
        return auth
    if not _is_loopback(host):
        message = (
            f'on {host!r} others can ask too: say who may, with auth = "keys" under [server], and '
            "make keys with `belated keys create`; or, where something else keeps strangers out, "
            'auth = "off"'
        )
        raise InvalidInput(message, host)
    return "off"


def _is_loopback(host: str) -> bool:
    try:
        return ip_address(host).is_loopback
    except ValueError:  # a name
        return host == "localhost"


def unauthorized(detail: str) -> ProblemError:
    """No key, or none that works."""
    return ProblemError(401, "Unauthorized", detail, headers={"www-authenticate": "Bearer"})


def _not_a_key(value: bytes) -> ProblemError:
    scheme, _, text = value.decode("latin-1").partition(" ")
    if scheme.lower() != "bearer":
        return unauthorized("send the key as Authorization: Bearer blt_…")
    if not looks_whole(text):
        return unauthorized("this is no key: something of it is missing or mistyped")
    return unauthorized("this key is not known, or it was revoked")


def _too_often(rate: float, wait: float) -> ProblemError:
    message = f"this key may ask {rate:g} times a second"
    seconds = str(math.ceil(wait))
    return ProblemError(429, "Too many requests", message, headers={"retry-after": seconds})
