"""What journals do with events: place and stamp what arrives, and find it again."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Sequence
from typing import Any, Literal, TypeVar, get_args

from belated.core.events import (
    ActionChanged,
    Configured,
    Decision,
    DecisionEvent,
    Erased,
    Event,
    KeyChanged,
    ModeChanged,
    ModelChosen,
    Opaque,
    Overwritten,
    Record,
    Retracted,
    Settled,
    SubjectDecision,
    SubjectEvent,
    Trimmed,
)
from belated.core.ids import ERASED_KEY_BYTES, erased_key_of, key_of, partition_of, subject_id
from belated.exceptions import InvalidInput
from belated.journals.log import Appended, Requests, Tail

T = TypeVar("T")
#: Gives the time in microseconds since 1970.
Clock = Callable[[], int]


def route(event: Event, partitions: int) -> int:
    """The partition an event belongs to.

    >>> from belated.core.events import Void
    >>> route(Void("018bcfe568007005ab1c2d3e4f506172", 0), 4)
    1
    >>> route(Settled(partition=3, until=0), 4)
    3
    """
    kind = type(event)
    if kind in _WITH_ID:
        return 0 if partitions == 1 else partition_of(key_of(event.id), partitions)  # type: ignore[union-attr]
    return _route_other(event, partitions)


def _route_other(event: Any, partitions: int) -> int:
    if isinstance(event, Erased | Overwritten):
        if len(event.key) != ERASED_KEY_BYTES:
            message = f"the key of {event!r} has {len(event.key)} bytes: use erased_key_of(id)"
            raise InvalidInput(message, event)
        return partition_of(event.key, partitions)
    if isinstance(event, Settled | Retracted | Trimmed):
        if event.partition not in range(partitions):
            message = f"{event!r} is of no partition here: there are {partitions}, from 0 on"
            raise InvalidInput(message, event)
        return event.partition
    if isinstance(event, ModeChanged | ActionChanged | ModelChosen | Configured | KeyChanged):
        return 0
    if isinstance(event, Opaque):
        message = (
            "an event this release cannot read does not tell its partition: "
            "bring it in with its record, by import_records()"
        )
        raise InvalidInput(message, event)
    raise InvalidInput(
        f"{event!r} is no event: see belated.core.events for the kinds there are", event
    )


def stamps_for(
    events: Sequence[object], recorded: Sequence[int] | None, clock: Clock
) -> Sequence[int]:
    """The time of each event: as given, or the clock's for all."""
    if recorded is None:
        return [clock()] * len(events)
    if len(recorded) != len(events):
        message = f"{len(recorded)} times were given for {len(events)} events: one each is needed"
        raise InvalidInput(message, recorded)
    return recorded


def check_requests(events: Sequence[object], requests: Requests | None) -> None:
    """Refuse requests that are of no decision among the events."""
    for place in requests or ():
        if place not in range(len(events)) or type(events[place]) is not Decision:
            message = f"a request for the event at index {place!r}, which is no decision"
            raise InvalidInput(f"{message}: name the index of the decision it is of", place)


def gather(
    calls: Iterable[tuple[Sequence[Event], Requests]],
) -> tuple[list[Event], dict[int, bytes]]:
    """The events of several calls as those of one, and the requests by their places there.

    >>> from belated.core.events import Void
    >>> gather([([Void("a", 0), Void("b", 0)], {}), ([Void("c", 0)], {0: b"of c"})])[1]
    {2: b'of c'}
    """
    events: list[Event] = []
    requests: dict[int, bytes] = {}
    for some, kept in calls:
        if kept:
            requests.update((len(events) + n, request) for n, request in kept.items())
        events += some
    return events, requests


def arrange(
    arrivals: Iterable[tuple[int, int, Event | Opaque]], tail_of: Callable[[int], Tail]
) -> list[Record]:
    """Records for what arrives, behind the tail of each partition.

    Args:
        arrivals: partition, time and event of each. A time before the last stamp of the partition
            is held at that stamp, so that stamps never decrease.
        tail_of: the tail of a partition.

    >>> from belated.core.events import Void
    >>> from belated.journals.log import EMPTY
    >>> [r.recorded for r in arrange([(0, 9, Void("a", 0)), (0, 7, Void("b", 0))], lambda _: EMPTY)]
    [9, 9]
    """
    tails: dict[int, Tail] = {}
    records = []
    for partition, now, event in arrivals:
        position, stamp = tails.get(partition) or tail_of(partition)
        tails[partition] = tail = Tail(position + 1, max(stamp, now))
        records.append(Record(partition, tail.position, tail.stamp, event))
    return records


def arrange_imported(
    records: Iterable[Record], partitions: int, tail_of: Callable[[int], Tail]
) -> list[Record]:
    """The same for records from another journal, which keep their stamps.

    Raises:
        InvalidInput: a stamp is before the one it would follow.
    """
    taken = list(records)
    arranged = arrange(
        (
            (
                record.partition % partitions
                if isinstance(record.event, Opaque)
                else route(record.event, partitions),
                record.recorded,
                record.event,
            )
            for record in taken
        ),
        tail_of,
    )
    for before, after in zip(taken, arranged, strict=True):
        if before.recorded != after.recorded:
            message = (
                f"the record at partition {before.partition}, position {before.position} was "
                f"recorded at {before.recorded}, but would follow one of {after.recorded} in "
                f"partition {after.partition}: sort the records by `recorded`, and import them "
                "into a journal that holds nothing newer"
            )
            raise InvalidInput(message, before)
    return arranged


def check_range(partition: int, after: int, limit: int, partitions: int) -> None:
    """Refuse to read what cannot be."""
    check_partition(partition, partitions)
    if after < 0:
        raise InvalidInput(f"after is {after!r}: a position, or 0 for the beginning", after)
    if limit < 0:
        raise InvalidInput(f"limit is {limit!r}: how many records at most was expected", limit)


def check_partition(partition: int, partitions: int) -> None:
    """Refuse a partition the journal does not have."""
    if partition not in range(partitions):
        message = f"the partition is {partition!r}: there are {partitions}, from 0 on"
        raise InvalidInput(message, partition)


_WITH_ID = frozenset(get_args(DecisionEvent | SubjectEvent))


#: How many of the last settlements of a partition are returned.
LAST_SETTLEMENTS = 50


#: What events without an id are found by.
Subject = Literal["settled", "mode", "action", "chosen", "configured", "undone", "other"]
_SUBJECTS: dict[type, Subject] = {
    Settled: "settled",
    ModeChanged: "mode",
    ActionChanged: "action",
    ModelChosen: "chosen",
    Configured: "configured",
    Erased: "undone",
    Retracted: "undone",
    Trimmed: "other",
    KeyChanged: "other",
}


def erased_key_in(event: Event | Opaque) -> bytes | None:
    """Return the erased key of an event's id, None if it has no id."""
    if isinstance(event, DecisionEvent | SubjectEvent):
        return erased_key_of(event.id)
    return event.key if isinstance(event, Overwritten) else None


def erasure_of_subject(
    records: Iterable[Record], subject: str, at: int, reason: str, actor: str
) -> list[Erased]:
    """Return what erases a subject: all decisions made for it, and all its rewards.

    Args:
        records: all records of the subject.
        subject: to be erased.
        at: when, in microseconds since 1970.
        reason: why.
        actor: who does it.
    """
    made = [one.event.decision for one in records if isinstance(one.event, SubjectDecision)]
    keys = map(erased_key_of, [subject_id(subject), *dict.fromkeys(made)])
    return [Erased(key, at, reason, actor) for key in keys]


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


class FirstDecisions:
    """Which events are to be appended: all but a second decision under an id that may have one.

    Nobody else may append from the time that the records were read to the time of the append.

    Args:
        events: That were given.
        ids: That may have one decision each.
        records: All records of these ids, in the order of their positions.

    Attributes:
        events: That are to be appended.

    >>> from belated.core.events import Void
    >>> first = FirstDecisions([Void("a", 0), Void("b", 0)], {"a"})
    >>> first.appended([7, 8])
    Appended(positions=[7, 8], standing={})
    """

    def __init__(
        self, events: Sequence[Event], ids: Collection[str], records: Iterable[Record] = ()
    ) -> None:
        self.events = self._given = events
        #: The places of the events that are to be appended; None if all are.
        self._places: list[int] | None = None
        if ids:
            self._known = _first_decisions(records)
            self._first: dict[str, tuple[Decision, int]] = {}  # and its place, by id
            self._places = [n for n, event in enumerate(events) if self._is_first(n, event, ids)]
            self.events = [events[n] for n in self._places]

    def _is_first(self, place: int, event: Event, ids: Collection[str]) -> bool:
        if not isinstance(event, Decision) or event.id not in ids:
            return True
        return (
            event.id not in self._known
            and self._first.setdefault(event.id, (event, place))[1] == place
        )

    def of_kept(self, given: Sequence[T]) -> Sequence[T]:
        """Return what is given for each event, of those that are to be appended."""
        return given if self._places is None else [given[n] for n in self._places]

    def requests(self, requests: Requests | None) -> Requests:
        """Return requests of events that are to be appended, by their places among these."""
        if not requests or self._places is None:
            return requests or {}
        return {place: requests[n] for place, n in enumerate(self._places) if n in requests}

    def appended(self, positions: list[int]) -> Appended:
        """Return what became of all events, given the positions of those that were appended."""
        if self._places is None:
            return Appended(positions, {})
        found = dict(zip(self._places, positions, strict=True))
        standing: dict[str, Decision] = {}
        for n, event in enumerate(self._given):
            if n not in found:
                assert isinstance(event, Decision)
                if event.id in self._known:
                    standing[event.id], found[n] = self._known[event.id]
                else:
                    standing[event.id], place = self._first[event.id]
                    found[n] = found[place]
        return Appended([found[n] for n in range(len(self._given))], standing)


def _first_decisions(records: Iterable[Record]) -> dict[str, tuple[Decision, int]]:
    """The first decision under each id, and its position."""
    found: dict[str, tuple[Decision, int]] = {}
    for record in records:
        if isinstance(record.event, Decision):
            found.setdefault(record.event.id, (record.event, record.position))
    return found
