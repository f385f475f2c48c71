"""Authorization with API keys, which are cached so that no request queries the store."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass, field
from hashlib import sha256
from ipaddress import ip_address
from typing import Literal

from belated.exceptions import Forbidden, InvalidInput, RateLimited, Unauthenticated
from belated.journals.keys import KeyStore, LiveKey
from belated.service.runtime import Runtime
from belated.wire.keys import ALL, LENGTH, Key, KeyScope, looks_whole

log = logging.getLogger("belated.service")

#: Whether requests require an API key.
Auth = Literal["keys", "off"]
#: Interval between polls for key changes, in seconds. Revoked keys stop working within two seconds.
POLL_SECONDS = 1.0

_SCHEME = b"bearer "
_SIZE = len(_SCHEME) + LENGTH


@dataclass(eq=False)
class Authorizer:
    """Authorizes requests by their API keys.

    A worker polls the store for changes. While the store is unavailable, known keys remain valid.

    Args:
        store: Key store, used only by the worker.
        runtime: Clocks and threads.
        tokens: Whether callers may report rewards with a token instead of a key.
        poll: Interval between polls of the store, in seconds.
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
        self._update(self.store.live())
        if not self._keys:
            log.warning("there are no valid API keys: create one with `belated keys create`")
        self._worker = self.runtime.start_worker("belated keys", self._poll)

    @property
    def known(self) -> int:
        """The number of valid keys."""
        return len(self._keys)

    @property
    def age(self) -> float:
        """The number of seconds since the keys were last read from the store."""
        return self._monotonic() - self._looked

    def authorize(
        self, headers: Mapping[bytes, bytes], scope: KeyScope, bandit: str | None
    ) -> Key | None:
        """Check the API key of a request and return it.

        Args:
            headers: Request headers.
            scope: Required scope.
            bandit: Bandit that the request is for; ``"*"`` for all bandits, None for none.

        Returns:
            The key; None if the request has no key and may use a token instead.

        Raises:
            Unauthenticated: there is no valid key.
            Forbidden: the key does not grant the scope for the bandit. The error does not reveal
                whether the bandit exists.
            RateLimited: the key has exceeded its rate.
        """
        value = headers.get(b"authorization")
        if value is None:
            if self.tokens and scope == "reward":
                return None
            raise Unauthenticated("an API key is required: send Authorization: Bearer blt_…")
        # A value of a different length is not a key, so do not hash it.
        is_bearer = len(value) == _SIZE and value[: len(_SCHEME)].lower() == _SCHEME
        key = self._keys.get(sha256(value[len(_SCHEME) :]).digest()) if is_bearer else None
        if key is None:
            raise _invalid_key(value)
        if not key.may(scope, bandit):
            raise _missing_scope(scope, bandit, key)
        if key.rate is not None and (wait := key.wait(self._monotonic())):
            raise _rate_exceeded(key, wait)
        return key

    def charge(self, key: Key, items: int) -> None:
        """Count the items of a request after the first against the rate limit of its key.

        Raises:
            RateLimited: the key had already exceeded its rate.
        """
        if key.rate is not None and (wait := key.charge(self._monotonic(), items)):
            raise _rate_exceeded(key, wait)

    def close(self) -> None:
        """Stop polling for key changes."""
        self._worker.stop()
        self.store.close()

    def _poll(self) -> float:
        try:
            self._update(self.store.live())
            self._unavailable = False
        except Exception as error:  # keep polling after any error: a key may be revoked
            if not self._unavailable:  # log once per outage
                log.warning("the API keys cannot be read", extra={"why": str(error)})
            self._unavailable = True
        return self.poll

    def _update(self, rows: list[LiveKey]) -> None:
        self._looked = self._monotonic()
        if rows == self._rows:
            return
        before = {row.hash: row for row in self._rows}
        # Keep the objects of unchanged keys, because they count requests.
        self._keys = {
            row.hash: self._keys[row.hash] if before.get(row.hash) == row else _key(row)
            for row in rows
        }
        self._rows = rows


def _missing_scope(scope: KeyScope, bandit: str | None, key: Key) -> Forbidden:
    where, option = "on this bandit", ""
    if bandit is None:
        where = "here"
    elif bandit == ALL:  # the response covers all bandits
        where, option = "on all bandits", " --bandit '*'"
    elif not key.everywhere and bandit not in key.bandits:
        where = f"on this bandit, only on {', '.join(sorted(key.bandits))}"
    message = f'this API key does not grant scope "{scope}" {where}'
    return Forbidden(f"{message}: create a key with --scope {scope}{option}")


def _rate_exceeded(key: Key, wait: float) -> RateLimited:
    message = f"this API key is limited to {key.rate:g} decisions and rewards per second"
    return RateLimited(message, wait)


def _key(row: LiveKey) -> Key:
    bandits = frozenset(row.bandits)
    return Key(row.id, row.name, bandits, frozenset(row.scopes), row.rate, ALL in bandits)


def auth_at(host: str, auth: Auth | None) -> Auth:
    """Return ``auth``, or if it is None, the default for a service that listens on ``host``.

    The default for loopback addresses is ``"off"``. Other addresses have no default, and raise
    InvalidInput.

    >>> auth_at("127.0.0.1", None), auth_at("0.0.0.0", "keys")
    ('off', 'keys')
    """
    if auth is not None:
        return auth
    if not _is_loopback(host):
        message = (
            f'{host!r} is reachable from other machines: set auth = "keys" under [server] and '
            'create keys with `belated keys create`, or set auth = "off" if something else '
            "restricts access"
        )
        raise InvalidInput(message, host)
    return "off"


def _is_loopback(host: str) -> bool:
    try:
        return ip_address(host).is_loopback
    except ValueError:  # not an IP address, but a host name
        return host == "localhost"


def _invalid_key(value: bytes) -> Unauthenticated:
    scheme, _, text = value.decode("latin-1").partition(" ")
    if scheme.lower() != "bearer":
        return Unauthenticated("send the API key as Authorization: Bearer blt_…")
    if not looks_whole(text):
        return Unauthenticated("invalid API key: part of it is missing or mistyped")
    return Unauthenticated("unknown or revoked API key: create one with `belated keys create`")
