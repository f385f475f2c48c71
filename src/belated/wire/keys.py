"""API keys: their format, scopes and rate limits.

A key consists of ``blt_``, its public id, ``_``, 32 random letters and digits (190 bits), and a
six-character checksum. The checksum lets secret scanners recognize keys in files and logs, and
distinguishes a mistyped key from an unknown one. Only the SHA-256 hash of a key is stored.
"""

from __future__ import annotations

import math
import secrets
import string
import zlib
from dataclasses import dataclass, field
from hashlib import sha256
from typing import Any, Literal, get_args

from belated.exceptions import InvalidInput

#: The permissions that a key can grant.
KeyScope = Literal["decide", "reward", "read", "admin"]
SCOPES: tuple[KeyScope, ...] = get_args(KeyScope)
#: Entry in a key's list of bandits that means all bandits.
ALL = "*"

_PREFIX = "blt_"
_ALPHABET = string.digits + string.ascii_uppercase + string.ascii_lowercase
_ID, _SECRET, _CHECK = 8, 32, 6
#: Length of a key, in characters.
LENGTH = len(_PREFIX) + _ID + 1 + _SECRET + _CHECK


def new_key() -> tuple[str, str]:
    """Return a new key and its public id.

    >>> key, id = new_key()
    >>> key.startswith(f"blt_{id}_"), len(key), looks_whole(key)
    (True, 51, True)
    """
    id, secret = _random(_ID), _random(_SECRET)
    text = f"{_PREFIX}{id}_{secret}"
    return text + _checksum(text), id


def looks_whole(text: str) -> bool:
    """Return whether a string has the format and checksum of a key. The key may still be unknown.

    >>> looks_whole("blt_00000000_000000000000000000000000000000001HyK7Z")
    True
    >>> looks_whole("blt_00000000_000000000000000000000000000000011HyK7Z")
    False
    """
    shaped = len(text) == LENGTH and text.startswith(_PREFIX) and text.isascii()
    return shaped and _checksum(text[:-_CHECK]) == text[-_CHECK:]


def id_in(text: str) -> str:
    """Return the public id of a key. The argument may also be a public id.

    >>> id_in("blt_k3J9xQ2a_000"), id_in("k3J9xQ2a")
    ('k3J9xQ2a', 'k3J9xQ2a')
    """
    return text.removeprefix(_PREFIX).partition("_")[0]


def hash_of(key: str) -> bytes:
    """Return the hash under which a key is stored.

    A fast hash is sufficient: slow password hashes protect guessable passwords, but 2¹⁹⁰ keys
    cannot be enumerated.
    """
    return sha256(key.encode()).digest()


def check_key(key: Any) -> str:
    """Return ``key`` unchanged; raise unless it is well-formed. The error omits the key."""
    if not isinstance(key, str) or not looks_whole(key):
        message = "this is not a belated API key: copy all of it, from blt_ to the last character"
        raise InvalidInput(message)
    return key


def check_scope(scope: Any) -> KeyScope:
    """Return ``scope`` unchanged; raise InvalidInput if it is unknown."""
    for candidate in SCOPES:
        if scope == candidate:
            return candidate
    raise InvalidInput(f"unknown scope {scope!r}: choose from {', '.join(SCOPES)}", scope)


def check_rate(rate: Any) -> float | None:
    """Return ``rate`` as a float (requests/s), or None for no limit; raise unless positive."""
    if rate is None:
        return None
    if isinstance(rate, bool) or not isinstance(rate, int | float) or not 0 < rate < math.inf:
        raise InvalidInput(f"the rate must be a number of requests/s above 0, got {rate!r}", rate)
    return float(rate)


@dataclass(slots=True)
class Key:
    """A valid key, as held in memory by a decider.

    Attributes:
        id: the public id.
        name: the name of the program that uses the key.
        bandits: the names of the bandits that the key may access.
        scopes: the scopes that the key grants.
        rate: limit on decisions, rewards and other requests per second. None means no limit.
        everywhere: whether the key may access all bandits.
    """

    id: str
    name: str
    bandits: frozenset[str]
    scopes: frozenset[str]
    rate: float | None = None
    everywhere: bool = False
    # The level of the leaky bucket, in requests, and the time of its last update.
    _level: float = field(default=0.0, repr=False)
    _at: float = field(default=-math.inf, repr=False)

    def may(self, scope: KeyScope, bandit: str | None) -> bool:
        """Return whether the key grants a scope for a bandit, or without a bandit (None)."""
        if scope not in self.scopes:
            return False
        return bandit is None or self.everywhere or bandit in self.bandits

    def wait(self, now: float) -> float:
        """Count a request and return 0, or return the seconds until the next one is allowed.

        Bursts of up to one second's worth of requests are allowed.
        >>> key = Key("k3J9xQ2a", "shop", frozenset(), frozenset(), rate=2.0)
        >>> [key.wait(now) for now in (7.0, 7.0, 7.0, 7.5, 7.5)]
        [0.0, 0.0, 0.5, 0.0, 0.5]
        """
        return self._count(now, 1, room=1)

    def charge(self, now: float, count: int) -> float:
        """Count ``count`` more items of a request; return 0 or the wait, like :meth:`wait`.

        A batch of any size is allowed whenever a single item would be. Items in excess of the rate
        delay the following requests.
        >>> key = Key("k3J9xQ2a", "shop", frozenset(), frozenset(), rate=2.0)
        >>> key.wait(7.0), key.charge(7.0, 9), key.wait(7.0), key.wait(11.5), key.charge(11.5, 1)
        (0.0, 0.0, 4.5, 0.0, 0.0)
        """
        return self._count(now, count, room=0)

    def _count(self, now: float, count: int, room: int) -> float:
        if self.rate is None:
            return 0.0
        level = max(0.0, self._level - (now - self._at) * self.rate)
        self._at = now
        self._level = level
        remaining = level + room - max(1.0, self.rate)
        if remaining > 1e-9:  # tolerate rounding errors
            return remaining / self.rate
        self._level = level + count
        return 0.0


def _random(size: int) -> str:
    return "".join(secrets.choice(_ALPHABET) for _ in range(size))


def _checksum(text: str) -> str:
    number, digits = zlib.crc32(text.encode()), ""
    for _ in range(_CHECK):  # six digits suffice: 62⁶ is more than 2³²
        number, digit = divmod(number, len(_ALPHABET))
        digits = _ALPHABET[digit] + digits
    return digits
