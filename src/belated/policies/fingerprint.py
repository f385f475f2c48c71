"""Fingerprints of policies and other values, computed from all of their fields."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import fields, is_dataclass
from hashlib import blake2b
from typing import Any

import numpy as np

#: Metadata for a field that fingerprints omit if it has its default value. Use it for fields added
#: later, so that existing fingerprints do not change.
UNNAMED = {"unnamed": True}


def fingerprint(*values: Any) -> str:
    """Return a digest of values that is the same in every process and changes with any value.

    The components of a policy should be dataclasses, because other values are identified by their
    ``repr``.

    >>> from belated import Bernoulli, DelayedUCB
    >>> first, second = DelayedUCB(2, Bernoulli()), DelayedUCB(2, Bernoulli(), alpha=0.5)
    >>> fingerprint(first) == fingerprint(second)
    False
    """
    text = " ".join(described(value) for value in values)
    return blake2b(text.encode(), digest_size=16).hexdigest()


def described(value: Any) -> str:
    """Return a value as text: its ``repr``, with arrays represented by a digest of all entries.

    >>> from belated import Gaussian
    >>> described(Gaussian(0.25))
    'Gaussian(variance=0.25)'
    >>> described(np.zeros(2000))
    'array(<f8, (2000,), 6790d1ecc519b871db7a82b17006b659)'
    """
    if isinstance(value, np.ndarray):
        if value.dtype.hasobject:  # the bytes would be addresses
            return described(value.tolist())
        digest = blake2b(value.tobytes(), digest_size=16).hexdigest()
        return f"array({value.dtype.str}, {value.shape}, {digest})"
    if is_dataclass(value) and not isinstance(value, type):
        named = ((name, getattr(value, name)) for name in _named(value))
        return f"{_name(type(value))}({_listed(named, '=')})"
    if isinstance(value, Mapping):
        return f"{{{_listed(((described(key), item) for key, item in value.items()), ': ')}}}"
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(described, value))}]"
    return repr(value)


def _named(value: Any) -> Iterator[str]:
    """Yield the names of the fields that are part of the fingerprint."""
    for field in fields(value):
        unnamed = field.metadata.get("unnamed") and getattr(value, field.name) == field.default
        if field.compare and not unnamed:
            yield field.name


def _listed(named: Any, sign: str) -> str:
    return ", ".join(f"{name}{sign}{described(value)}" for name, value in named)


def _name(kind: type) -> str:
    """Return the name of a class, with its module unless the class is part of belated."""
    is_ours = kind.__module__.partition(".")[0] == __package__.partition(".")[0]
    return kind.__qualname__ if is_ours else f"{kind.__module__}.{kind.__qualname__}"
