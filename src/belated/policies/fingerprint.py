"""Names a policy, or another value, by all it is made of."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import fields, is_dataclass
from hashlib import blake2b
from typing import Any

import numpy as np

#: Metadata of a field that is left out of a fingerprint while it has its default: one that came
#: later, so that what was made before it still has the name it had.
UNNAMED = {"unnamed": True}


def fingerprint(*values: Any) -> str:
    """A digest of values: two that differ anywhere have two, in this process and in any other.

    Make whatever stands in a policy a dataclass. Anything else counts by its ``repr``.

    >>> from belated import Bernoulli, DelayedUCB
    >>> one, other = DelayedUCB(2, Bernoulli()), DelayedUCB(2, Bernoulli(), alpha=0.5)
    >>> fingerprint(one) == fingerprint(other)
    False
    """
    text = " ".join(described(value) for value in values)
    return blake2b(text.encode(), digest_size=16).hexdigest()


def described(value: Any) -> str:
    """A value in full: like its ``repr``, which would shorten a large array.

    >>> from belated import Gaussian
    >>> described(Gaussian(0.25))
    'Gaussian(variance=0.25)'
    >>> described(np.zeros(2000))
    'array(<f8, (2000,), 6790d1ecc519b871db7a82b17006b659)'
    """
    if isinstance(value, np.ndarray):
        if value.dtype.hasobject:  # its bytes are addresses
            return described(value.tolist())
        digest = blake2b(value.tobytes(), digest_size=16).hexdigest()
        return f"array({value.dtype.str}, {value.shape}, {digest})"
    if is_dataclass(value) and not isinstance(value, type):
        named = ((one, getattr(value, one)) for one in _named(value))
        return f"{_name(type(value))}({_listed(named, '=')})"
    if isinstance(value, Mapping):
        return f"{{{_listed(((described(key), one) for key, one in value.items()), ': ')}}}"
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(described, value))}]"
    return repr(value)


def _named(value: Any) -> Iterator[str]:
    """The fields that count."""
    for one in fields(value):
        unnamed = one.metadata.get("unnamed") and getattr(value, one.name) == one.default
        if one.compare and not unnamed:
            yield one.name


def _listed(named: Any, sign: str) -> str:
    return ", ".join(f"{name}{sign}{described(value)}" for name, value in named)


def _name(kind: type) -> str:
    """Without its module where that is ours, so that a class may move."""
    ours = kind.__module__.partition(".")[0] == __package__.partition(".")[0]
    return kind.__qualname__ if ours else f"{kind.__module__}.{kind.__qualname__}"
