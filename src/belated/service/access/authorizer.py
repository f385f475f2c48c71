"""Authorization by API keys, which are all in memory, so that no request queries the store."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass, field
from hashlib import sha256
from ipaddress import ip_address
from typing import Literal

from belated.exceptions import Forbidden, InvalidInput, RateLimited, Unauthenticated
from belated.journals import KeyStore, LiveKey
from belated.service.runtime import Runtime
from belated.wire.keys import ALL, LENGTH, Key, KeyScope, looks_whole

log = logging.getLogger("belated.service")

#: Whether requests need a key.
Auth = Literal["keys", "off"]
#: Seconds between two polls for changes: a revoked key stops working within two.
POLL_SECONDS = 1.0

_SCHEME = b"bearer "
_SIZE = len(_SCHEME) + LENGTH


@dataclass(eq=False)
class Authorizer:
    """Knows all API keys, and authorizes requests.

    A worker polls for changes. While the store is unavailable, the known keys go on working.

    Args:
        store: of the keys; used by that worker alone.
        runtime: time and threads.
        tokens: whether rewards may come with a token instead of a key.
        poll: seconds between two polls of the store.
    """

    store: KeyStore
    runtime: Runtime
    tokens: bool = field(default=False, kw_only=True)
    poll: float = field(default=POLL_SECONDS, kw_only=True)

    def __post_init__(self) -> None:
        self._monotonic = self.runtime.monotonic
        self._unavailable = False
        self._rows: list[LiveKey] = []
        self._keys: dict[bytes, Key] = {}
        self._take(self.store.live())
        if not self._keys:
            log.warning("no key works yet: make one with `belated keys create`")
        self._worker = self.runtime.start_worker("belated keys", self._poll)

    @property
    def known(self) -> int:
        """Number of valid keys."""
        return len(self._keys)

    @property
    def age(self) -> float:
        """Seconds since the store was last polled."""
        return self._monotonic() - self._looked

    def authorize(
        self, headers: Mapping[bytes, bytes], scope: KeyScope, bandit: str | None
    ) -> Key | None:
        """Return the key of a request, if it allows the request.

        Args:
            headers: of the request.
            scope: that is needed.
            bandit: it is about, ``"*"`` for all; None if it is about none.

        Returns:
            None if there is no key, and a token may replace it.

        Raises:
            Unauthenticated: there is no valid key.
            Forbidden: the key does not allow this, whether there is such a bandit or not.
            RateLimited: the key has exceeded its rate.
        """
        value = headers.get(b"authorization")
        if value is None:
            if self.tokens and scope == "reward":
                return None
            raise Unauthenticated("a key is needed: send it as Authorization: Bearer blt_…")
        # Anything of another length is no key, and not worth a hash.
        right = len(value) == _SIZE and value[: len(_SCHEME)].lower() == _SCHEME
        key = self._keys.get(sha256(value[len(_SCHEME) :]).digest()) if right else None
        if key is None:
            raise _not_a_key(value)
        if not key.may(scope, bandit):
            raise _not_for_this(scope, bandit, key)
        if key.rate is not None and (wait := key.wait(self._monotonic())):
            raise _too_often(key, wait)
        return key

    def charge(self, key: Key, more: int) -> None:
        """Count the items of a request besides the first.

        Raises:
            RateLimited: the key had exceeded its rate before.
        """
        if key.rate is not None and (wait := key.charge(self._monotonic(), more)):
            raise _too_often(key, wait)

    def close(self) -> None:
        """Stop polling for key changes."""
        self._worker.stop()
        self.store.close()

    def _poll(self) -> float:
        try:
            self._take(self.store.live())
            self._unavailable = False
        except Exception as error:  # go on polling in any case: a key may be revoked
            if not self._unavailable:  # once, while it stays so
                log.warning("the keys cannot be read", extra={"why": str(error)})
            self._unavailable = True
        return self.poll

    def _take(self, rows: list[LiveKey]) -> None:
        self._looked = self._monotonic()
        if rows == self._rows:
            return
        before = {row.hash: row for row in self._rows}
        # A key that has not changed keeps its object, which counts its use.
        self._keys = {
            row.hash: self._keys[row.hash] if before.get(row.hash) == row else _key(row)
            for row in rows
        }
        self._rows = rows


def _not_for_this(scope: KeyScope, bandit: str | None, key: Key) -> Forbidden:
    where, more = "on this bandit", ""
    if bandit is None:
        where = "here"
    elif bandit == ALL:  # the response is about all bandits
        where, more = "on all bandits", " --bandit '*'"
    elif not key.everywhere and bandit not in key.bandits:
        where = f"on this bandit, only on {', '.join(sorted(key.bandits))}"
    message = f'this API key does not grant scope "{scope}" {where}'
    return Forbidden(f"{message}; create one with --scope {scope}{more}")


def _too_often(key: Key, wait: float) -> RateLimited:
    return RateLimited(f"this key may have {key.rate:g} decisions and rewards a second", wait)


def _key(row: LiveKey) -> Key:
    bandits = frozenset(row.bandits)
    return Key(row.id, row.name, bandits, frozenset(row.scopes), row.rate, ALL in bandits)


def auth_at(host: str, auth: Auth | None) -> Auth:
    """Return whether requests to an address need a key; by default not on loopback.

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
