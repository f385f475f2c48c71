"""How it stands with a spool."""

from __future__ import annotations

import msgspec


class SpoolStatus(msgspec.Struct, frozen=True):
    """How it stands with a spool.

    Attributes:
        journal_down: whether the journal behind it failed when it was last asked.
        queued: events that wait to be handed over.
        size: bytes they take.
        oldest: when the oldest of them came, in microseconds since 1970; None if none waits.
        error: what the journal last failed with; None if it never did.
        forwarded: events handed over since this spool was opened.
    """

    journal_down: bool
    queued: int
    size: int
    oldest: int | None
    error: str | None
    forwarded: int
