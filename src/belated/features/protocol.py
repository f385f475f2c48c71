"""What a bandit needs of features, and how they are told apart."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator
from typing import Protocol, runtime_checkable

from belated.core.inputs import Row
from belated.features.records import Actions, Context

#: Written into every fingerprint: a new number where the same arguments give other rows.
VERSION = 1


@runtime_checkable
class Features(Protocol):
    """From one context and the offered actions to rows. The built-in ones are frozen values."""

    @property
    def dim(self) -> int:
        """The width of a row."""

    @property
    def names(self) -> list[str] | None:
        """What the columns hold, or None where that is not known."""

    @property
    def fingerprint(self) -> str:
        """A digest of what the rows mean, the same in every process and version of Python."""

    def rows(self, context: Context, actions: Actions) -> Row:
        """A table with one row for each action, in the order offered: float32, in C order."""

    def extends(self, older: Features | str) -> bool:
        """Whether every row of ``older``, with zeros put after it, is the row given here.

        Args:
            older: other features, or their fingerprint as a journal keeps it.

        Returns:
            True where that is certain; False where it is wrong or not known.
        """


def fingerprint_of(features: Features | str) -> str:
    """The fingerprint, also where it is already one."""
    return features if isinstance(features, str) else features.fingerprint


def digest(*parts: object) -> str:
    """The fingerprint of a description: names, numbers, booleans, and lists of them."""
    return next(digests([parts]))


def digests(parts: Iterable[object]) -> Iterator[str]:
    """The fingerprints of a description's first part, of its first two parts, and so on."""
    # JSON with escapes is one text for one value, in every version of Python.
    state = hashlib.blake2b(digest_size=16, person=b"belated.features")
    state.update(b"%d\n" % VERSION)
    for part in parts:
        state.update(json.dumps(part, separators=(",", ":")).encode("ascii") + b"\n")
        yield state.hexdigest()
