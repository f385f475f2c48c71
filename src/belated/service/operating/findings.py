"""What an examination finds: one line each, with what it means and how to mend it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Literal

import msgspec

State = Literal["ok", "warning", "wrong"]


class Finding(msgspec.Struct, frozen=True, omit_defaults=True):
    """One thing that was looked at.

    Attributes:
        check: what was looked at.
        state: ok; warning: it works, but not as it should; wrong: a promise does not hold.
        what: was found.
        mend: how to, where it is not ok.
    """

    check: str
    state: State
    what: str
    mend: str = ""


def ok(check: str, what: str) -> Finding:
    """All is well."""
    return Finding(check, "ok", what)


def wrong(check: str, what: str, mend: str) -> Finding:
    """A promise does not hold."""
    return Finding(check, "wrong", what, mend)


def warning(check: str, what: str, mend: str) -> Finding:
    """It works, but not as it should."""
    return Finding(check, "warning", what, mend)


def lines(findings: Sequence[Finding]) -> Iterator[str]:
    """Each as a line for people.

    >>> print(*lines([wrong("fsync", "it is off", "set fsync = on")]))
    wrong    fsync: it is off: set fsync = on
    """
    for one in findings:
        yield f"{one.state:8} {': '.join(filter(None, [one.check, one.what, one.mend]))}"
