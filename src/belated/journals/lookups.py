"""What look-ups by id have in common, wherever the records are."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Sequence
from hashlib import blake2b
from typing import Literal

from belated.core.events import (
    Activation,
    Configured,
    Decision,
    Erased,
    Event,
    KeyChanged,
    ModeChanged,
    Opaque,
    Overwritten,
    Record,
    Retracted,
    Reward,
    Settled,
    Trimmed,
    Void,
)
from belated.core.ids import erased_key_of
from belated.journals.log import Appended, Requests

#: How many of the last settlements of a partition are returned.
LAST_SETTLEMENTS = 50


#: What events without an id are found by.
Subject = Literal["settled", "mode", "configured", "undone", "other"]
_SUBJECTS: dict[type, Subject] = {
    Settled: "settled",
    ModeChanged: "mode",
    Configured: "configured",
    Erased: "undone",
    Retracted: "undone",
    Trimmed: "other",
    KeyChanged: "other",
}


def index_key(key: bytes, secret: bytes) -> bytes:
    """Return the 16 bytes by which the records of an id are found.

    The first 7 are those of the id's key: ids made here begin with the time, so that new entries of
    an index fall on pages that are in memory. The others are a keyed hash: nobody can choose ids
    that share them.

    Args:
        key: The erased key of the id.
        secret: Of the bandit.
    """
    return key[:7] + blake2b(key, key=secret, digest_size=9).digest()


def erased_key_in(event: Event | Opaque) -> bytes | None:
    """Return the erased key of an event's id, None if it has no id."""
    if isinstance(event, Decision | Activation | Reward | Void):
        return erased_key_of(event.id)
    return event.key if isinstance(event, Overwritten) else None


def to_overwrite(records: Iterable[Record]) -> list[tuple[Record, Overwritten]]:
    """What is to stand in place of the events of an erased decision, but for those that are gone.

    Args:
        records: all records of its id.
    """
    return [
        (record, Overwritten(key))
        for record in records
        if not isinstance(record.event, Overwritten)
        and (key := erased_key_in(record.event)) is not None
    ]


def subject_of(event: Event | Opaque) -> Subject | None:
    """What an event without an id is found by; None if it has an id, or cannot be read.

    >>> subject_of(ModeChanged(5, "off"))
    'mode'
    """
    return _SUBJECTS.get(type(event))


def standing(records: Iterable[Record]) -> dict[str, Decision]:
    """The decision that stands under each id: the first that was committed (rule 1).

    Args:
        records: all records of the ids, of any kind, in the order of their positions.
    """
    return {id: decision for id, (decision, _) in _first_decisions(records).items()}


def first_of_each(records: Iterable[Record], limit: int | None) -> list[Record]:
    """All decisions, and the first other records of each id; all of them if there is no limit."""
    if limit is None:
        return list(records)
    counts: Counter[bytes | None] = Counter()
    found = []
    for record in records:
        if isinstance(record.event, Decision):
            found.append(record)
            continue
        key = erased_key_in(record.event)
        counts[key] += 1
        if counts[key] <= limit:
            found.append(record)
    return found


def of_kept(requests: Requests | None, kept: Sequence[int]) -> Requests | None:
    """The requests of the events that are kept, by their places among these."""
    if not requests:
        return None
    return {place: requests[n] for place, n in enumerate(kept) if n in requests}


def append_first(
    events: Sequence[Event],
    ids: Collection[str],
    records: Iterable[Record],
    append: Callable[[list[int]], list[int]],
) -> Appended:
    """Append events but for decisions under ids that have one; nobody else may append meanwhile.

    Args:
        events: to append.
        ids: that may have one decision each.
        records: all records of these ids, in the order of their positions.
        append: appends the events at these places in ``events``; returns their positions.
    """
    known = _first_decisions(records)
    first: dict[str, int] = {}  # the place of the first decision under an id
    kept: list[int] = []
    stands: dict[str, Decision] = {}
    for n, event in enumerate(events):
        if isinstance(event, Decision) and event.id in ids:
            if event.id in known:
                stands[event.id] = known[event.id][0]
                continue
            if first.setdefault(event.id, n) != n:
                stands[event.id] = events[first[event.id]]  # type: ignore[assignment]
                continue
        kept.append(n)
    found = dict(zip(kept, append(kept), strict=True))
    positions = []
    for n, event in enumerate(events):
        if n not in found:
            id = event.id  # type: ignore[union-attr]
            positions.append(known[id][1] if id in known else found[first[id]])
        else:
            positions.append(found[n])
    return Appended(positions, stands)


def _first_decisions(records: Iterable[Record]) -> dict[str, tuple[Decision, int]]:
    """The first decision under each id, and its position."""
    found: dict[str, tuple[Decision, int]] = {}
    for record in records:
        if isinstance(record.event, Decision):
            found.setdefault(record.event.id, (record.event, record.position))
    return found
