"""What look-ups by id have in common, wherever the records are."""

from __future__ import annotations

import zlib
from collections.abc import Iterable

from belated.events import Decision, Event, ModeChanged, Opaque, Record, Settled, encode
from belated.ids import key_of

#: How many of the last settlements of a partition are returned.
LAST_SETTLEMENTS = 50


def key_in(event: Event | Opaque) -> bytes | None:
    """The key of the id of an event, None if it has no id."""
    return None if isinstance(event, Settled | ModeChanged | Opaque) else key_of(event.id)


def standing(records: Iterable[Record]) -> dict[str, Decision]:
    """The decision that stands under each id, as the ledger compares them (rule 1).

    Args:
        records: all records of the ids, of any kind.
    """
    found: dict[str, tuple[int, int, Decision]] = {}
    for record in records:
        event = record.event
        if isinstance(event, Decision):
            one = event.at, zlib.crc32(encode(event)), event
            found[event.id] = min(one, found.get(event.id, one), key=lambda it: it[:2])
    return {id: event for id, (_, _, event) in found.items()}
