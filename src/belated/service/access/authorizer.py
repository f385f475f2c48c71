"""Who may do what: all API keys are in memory, so that no request asks a store."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from hashlib import sha256
from ipaddress import ip_address
from typing import Literal

from belated.exceptions import Forbidden, InvalidInput, RateLimited, Unauthenticated
from belated.journals import KeyStore, LiveKey
from belated.service.runtime import Runtime
from belated.wire.keys import ALL, LENGTH, Key, KeyScope, looks_whole

log = logging.getLogger("belated.service")

#: Who may ask: whoever has a key, or anyone.
Auth = Literal["keys", "off"]
#: Seconds between two looks at the keys: within two, one that was revoked works no more.
POLL_SECONDS = 1.0

_SCHEME = b"bearer "
_SIZE = len(_SCHEME) + LENGTH


class Authorizer:
    """Knows all API keys, and lets through who may.

    A worker polls for changes. While the store is unavailable, the known keys go on working.

    Args:
        store: of the keys; used by that worker alone.
        runtime: time and threads.
        tokens: whether rewards may come with a token instead of a key.
        poll: seconds between two looks at the store.
    """

    def __init__(
        self, store: KeyStore, runtime: Runtime, *, tokens: bool = False, poll: float = POLL_SECONDS
    ) -> None:
        self._store = store
        self._tokens = tokens
        self._poll_seconds = poll
        self._monotonic = runtime.monotonic
        self._unavailable = False
        self._rows: list[LiveKey] = []
        self._keys: dict[bytes, Key] = {}
        self._looked = runtime.monotonic()
        self._take(store.live())
        if not self._keys:
            log.warning("no key works yet: make one with `belated keys create`")
        self._worker = runtime.start_worker("belated keys", self._poll)

    @property
    def known(self) -> int:
        """How many keys work."""
        return len(self._keys)

    @property
    def age(self) -> float:
        """Seconds since the store was looked at."""
        return self._monotonic() - self._looked

    def authorize(
        self, headers: Mapping[bytes, bytes], scope: KeyScope, bandit: str | None
    ) -> Key | None:
        """The key with which a request comes, if it may do this.

        Args:
            headers: of the request.
            scope: that is needed.
            bandit: it is about, ``"*"`` for all; None where it is about none.

        Returns:
            None if there is no key, and a token may stand in its place.

        Raises:
            Unauthenticated: there is no key that works.
            Forbidden: the key does not allow this, whether there is such a bandit or not.
            RateLimited: the key asks too often.
        """
        value = headers.get(b"authorization")
        if value is None:
            if self._tokens and scope == "reward":
                return None
            raise Unauthenticated("a key is needed: send it as Authorization: Bearer blt_…")
        # What has another length is no key, and not worth a hash.
        right = len(value) == _SIZE and value[: len(_SCHEME)].lower() == _SCHEME
        key = self._keys.get(sha256(value[len(_SCHEME) :]).digest()) if right else None
        if key is None:
            raise _not_a_key(value)
        if not key.may(scope, bandit):
            raise _not_for_this(scope, bandit)
        if key.rate is not None and (wait := key.wait(self._monotonic())):
            raise _too_often(key, wait)
        return key

    def charge(self, key: Key, more: int) -> None:
        """Count what a request asks for besides the first.

        Raises:
            RateLimited: the key has asked for too much before.
        """
        if key.rate is not None and (wait := key.charge(self._monotonic(), more)):
            raise _too_often(key, wait)

    def close(self) -> None:
        """Look no more."""
        self._worker.stop()
        self._store.close()

    def _poll(self) -> float:
        try:
            self._take(self._store.live())
            self._unavailable = False
        except Exception as error:  # whatever it is, it must go on: a key may be revoked
            if not self._unavailable:  # once, while it stays so
                log.warning("the keys cannot be read", extra={"why": str(error)})
            self._unavailable = True
        return self._poll_seconds

    def _take(self, rows: list[LiveKey]) -> None:
        self._looked = self._monotonic()
        if rows == self._rows:
            return
        before = {row.hash: row for row in self._rows}
        # One that has not changed stays as it is, with what it has used up of its rate.
        self._keys = {
            row.hash: self._keys[row.hash] if before.get(row.hash) == row else _key(row)
            for row in rows
        }
        self._rows = rows


def _not_for_this(scope: KeyScope, bandit: str | None) -> Forbidden:
    where, more = "on this bandit", ""
    if bandit is None:
        where = "here"
    elif bandit == ALL:  # what is told is of all bandits
        where, more = "on all bandits", " --bandit '*'"
    message = f'this API key does not grant scope "{scope}" {where}'
    return Forbidden(f"{message}; create one with --scope {scope}{more}")


def _too_often(key: Key, wait: float) -> RateLimited:
    return RateLimited(f"this key may have {key.rate:g} decisions and rewards a second", wait)


def _key(row: LiveKey) -> Key:
    bandits = frozenset(row.bandits)
    return Key(row.id, row.name, bandits, frozenset(row.scopes), row.rate, ALL in bandits)


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


def _not_a_key(value: bytes) -> Unauthenticated:
    scheme, _, text = value.decode("latin-1").partition(" ")
    if scheme.lower() != "bearer":
        return Unauthenticated("send the key as Authorization: Bearer blt_…")
    if not looks_whole(text):
        return Unauthenticated("this is no key: something of it is missing or mistyped")
    return Unauthenticated("this key is not known, or it was revoked")
