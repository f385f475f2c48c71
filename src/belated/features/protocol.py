"""The interface of features, and their fingerprints."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator
from typing import Protocol, runtime_checkable

from belated.core.inputs import Row
from belated.features.records import Actions, Context

#: Part of every fingerprint; increment it if the same arguments encode to different rows.
VERSION = 1


@runtime_checkable
class Features(Protocol):
    """Encodes a context and the offered actions as rows. The built-in classes are immutable."""

    @property
    def dim(self) -> int:
        """Number of coefficients."""

    @property
    def names(self) -> list[str] | None:
        """Names of the coefficients, or None if unknown."""

    @property
    def fingerprint(self) -> str:
        """Digest of the meaning of rows, the same in every process and version of Python."""

    def rows(self, context: Context, actions: Actions) -> Row:
        """Return a C-ordered float32 array with one row per action, in the given order."""

    def extends(self, older: Features | str) -> bool:
        """Return whether these rows are the rows of ``older``, padded with zeros at the end.

        Args:
            older: other features, or their fingerprint from a journal.

        Returns:
            True if this is certain; False if it is not the case or not known.
        """


def fingerprint_of(features: Features | str) -> str:
    """Return the fingerprint of features; a fingerprint is returned unchanged."""
    return features if isinstance(features, str) else features.fingerprint


def digest(*parts: object) -> str:
    """Return the fingerprint of names, numbers, booleans, and lists of such values."""
    return next(digests([parts]))


def digests(parts: Iterable[object]) -> Iterator[str]:
    """Yield the fingerprint of the first part, of the first two parts, and so on."""
    # ASCII-escaped JSON is identical in all Python versions.
    state = hashlib.blake2b(digest_size=16, person=b"belated.features")
    state.update(b"%d\n" % VERSION)
    for part in parts:
        state.update(json.dumps(part, separators=(",", ":")).encode("ascii") + b"\n")
        yield state.hexdigest()
