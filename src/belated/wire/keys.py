"""Keys that programs show when they ask: how one looks, and what it may do.

A key is ``blt_``, its public id, ``_``, 32 random letters and digits (190 bits), and 6 more that
are a checksum of all before: so a scanner for secrets recognises one in a file or a log, and a
mistyped one is told apart from one that is unknown. Only its SHA-256 is kept.
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

#: What a key may be for.
KeyScope = Literal["decide", "reward", "read", "admin"]
SCOPES: tuple[KeyScope, ...] = get_args(KeyScope)
#: Stands for all bandits.
ALL = "*"

_PREFIX = "blt_"
_ALPHABET = string.digits + string.ascii_uppercase + string.ascii_lowercase
_ID, _SECRET, _CHECK = 8, 32, 6
#: Characters of a key.
LENGTH = len(_PREFIX) + _ID + 1 + _SECRET + _CHECK


def new_key() -> tuple[str, str]:
    """A key, and its public id.

    >>> key, id = new_key()
    >>> key.startswith(f"blt_{id}_"), len(key), looks_whole(key)
    (True, 51, True)
    """
    id, secret = _random(_ID), _random(_SECRET)
    text = f"{_PREFIX}{id}_{secret}"
    return text + _checksum(text), id


def looks_whole(text: str) -> bool:
    """Whether this is a key as it was made; not whether it works.

    >>> looks_whole("blt_00000000_000000000000000000000000000000001HyK7Z")
    True
    >>> looks_whole("blt_00000000_000000000000000000000000000000011HyK7Z")
    False
    """
    shaped = len(text) == LENGTH and text.startswith(_PREFIX) and text.isascii()
    return shaped and _checksum(text[:-_CHECK]) == text[-_CHECK:]


def id_in(text: str) -> str:
    """The public id, in a whole key or by itself.

    >>> id_in("blt_k3J9xQ2a_000"), id_in("k3J9xQ2a")
    ('k3J9xQ2a', 'k3J9xQ2a')
    """
    return text.removeprefix(_PREFIX).partition("_")[0]


def hash_of(key: str) -> bytes:
    """What is kept of a key.

    A plain hash will do: what makes hashes of passwords slow to compute is there because people
    choose passwords, and nobody can try 2¹⁹⁰ keys.
    """
    return sha256(key.encode()).digest()


def check_key(key: Any) -> str:
    """The key itself, where it can be one; it is never shown in an error."""
    if not isinstance(key, str) or not looks_whole(key):
        message = "the key is no key of belated: copy all of it, from blt_ to the last letter"
        raise InvalidInput(message)
    return key


def check_scope(scope: Any) -> KeyScope:
    """A scope that there is."""
    for known in SCOPES:
        if scope == known:
            return known
    raise InvalidInput(f"there is no scope {scope!r}: {', '.join(SCOPES)} are known", scope)


def check_rate(rate: Any) -> float | None:
    """Decisions and rewards a second; None for any number."""
    if rate is None:
        return None
    if isinstance(rate, bool) or not isinstance(rate, int | float) or not 0 < rate < math.inf:
        raise InvalidInput(
            f"the rate is {rate!r}: decisions and rewards a second, more than 0", rate
        )
    return float(rate)


@dataclass(slots=True)
class Key:
    """A key that works, as a decider holds it.

    Attributes:
        id: its public part.
        name: of the program that uses it.
        bandits: it is for.
        scopes: what may be done with it.
        rate: decisions, rewards and other requests a second; None for any number.
        everywhere: whether it is for all bandits.
    """

    id: str
    name: str
    bandits: frozenset[str]
    scopes: frozenset[str]
    rate: float | None = None
    everywhere: bool = False
    # As much as came beyond its rate and were not worked off yet, and when that was so.
    _level: float = field(default=0.0, repr=False)
    _at: float = field(default=-math.inf, repr=False)

    def may(self, scope: KeyScope, bandit: str | None) -> bool:
        """Whether it is for this; None where it is about no bandit."""
        if scope not in self.scopes:
            return False
        return bandit is None or self.everywhere or bandit in self.bandits

    def wait(self, now: float) -> float:
        """Seconds until it may ask again; 0 if it may now, and then that is counted.

        A second's worth may come at once.

        >>> key = Key("k3J9xQ2a", "shop", frozenset(), frozenset(), rate=2.0)
        >>> [key.wait(now) for now in (7.0, 7.0, 7.0, 7.5, 7.5)]
        [0.0, 0.0, 0.5, 0.0, 0.5]
        """
        return self._count(now, 1, room=1)

    def charge(self, now: float, more: int) -> float:
        """Count what a request asks for besides the first; as :meth:`wait` if it may not.

        A batch is taken whole where one would be, however large: what it is beyond the rate is
        worked off before anything else.

        >>> key = Key("k3J9xQ2a", "shop", frozenset(), frozenset(), rate=2.0)
        >>> key.wait(7.0), key.charge(7.0, 9), key.wait(7.0), key.wait(11.5), key.charge(11.5, 1)
        (0.0, 0.0, 4.5, 0.0, 0.0)
        """
        return self._count(now, more, room=0)

    def _count(self, now: float, more: int, room: int) -> float:
        if self.rate is None:
            return 0.0
        level = max(0.0, self._level - (now - self._at) * self.rate)
        self._at = now
        self._level = level
        beyond = level + room - max(1.0, self.rate)
        if beyond > 1e-9:  # what is less is rounding
            return beyond / self.rate
        self._level = level + more
        return 0.0


def _random(size: int) -> str:
    return "".join(secrets.choice(_ALPHABET) for _ in range(size))


def _checksum(text: str) -> str:
    number, found = zlib.crc32(text.encode()), ""
    for _ in range(_CHECK):  # 62⁶ is more than 2³²
        number, digit = divmod(number, len(_ALPHABET))
        found = _ALPHABET[digit] + found
    return found
