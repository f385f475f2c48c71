"""Routing, timestamps and index keys of events."""

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
from belated.core.inputs import must_be
from belated.exceptions import InvalidInput
from belated.journals.log import Appended, Requests, Tail

T = TypeVar("T")
#: A function that returns the time in microseconds since 1970.
Clock = Callable[[], int]


def route(event: Event, partitions: int) -> int:
    """Return the partition of an event.

    >>> from belated.core.events import Void
    >>> route(Void("018bcfe568007005ab1c2d3e4f506172", 0), 4)
    1
    >>> route(Settled(partition=3, until=0), 4)
    3
    """
    if type(event) in _WITH_ID:  # faster than isinstance
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
            message = f"{event!r} has no partition here: partitions are 0 to {partitions - 1}"
            raise InvalidInput(message, event)
        return event.partition
    if isinstance(event, ModeChanged | ActionChanged | ModelChosen | Configured | KeyChanged):
        return 0
    if isinstance(event, Opaque):
        message = (
            "the partition of an event this release cannot read is unknown: "
            "import its record with import_records()"
        )
        raise InvalidInput(message, event)
    raise InvalidInput(
        f"{event!r} is not an event: pass one of the classes in belated.core.events", event
    )


def stamps_for(
    events: Sequence[object], recorded: Sequence[int] | None, clock: Clock
) -> Sequence[int]:
    """Return the timestamp of each event: ``recorded``, or the current time for all events."""
    if recorded is None:
        return [clock()] * len(events)
    if len(recorded) != len(events):
        message = (
            f"`recorded` has {len(recorded)} times for {len(events)} events: pass a time per event"
        )
        raise InvalidInput(message, recorded)
    return recorded


def check_requests(events: Sequence[object], requests: Requests | None) -> None:
    """Raise InvalidInput if a request does not belong to a decision among the events."""
    for index in requests or ():
        if index not in range(len(events)) or type(events[index]) is not Decision:
            message = f"`requests` has the key {index!r}, but the event at that index is not a"
            raise InvalidInput(f"{message} decision: use the indexes of decisions", index)


def gather(
    calls: Iterable[tuple[Sequence[Event], Requests]],
) -> tuple[list[Event], dict[int, bytes]]:
    """Merge the events and requests of several calls into those of one call.

    >>> from belated.core.events import Void
    >>> gather([([Void("a", 0), Void("b", 0)], {}), ([Void("c", 0)], {0: b"of c"})])[1]
    {2: b'of c'}
    """
    events: list[Event] = []
    requests: dict[int, bytes] = {}
    for events_of_call, requests_of_call in calls:
        requests.update((len(events) + n, request) for n, request in requests_of_call.items())
        events += events_of_call
    return events, requests


def arrange(
    arrivals: Iterable[tuple[int, int, Event | Opaque]], tail_of: Callable[[int], Tail]
) -> list[Record]:
    """Return the records of new events, which follow the tails of their partitions.

    Args:
        arrivals: Partition, time and event of each record. The timestamp is the time, but at least
            the last timestamp of the partition, so that timestamps never decrease.
        tail_of: Returns the tail of a partition.

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
    """Return records from another journal, placed after this journal's, with their timestamps.

    Raises:
        InvalidInput: a timestamp is less than the timestamp of the preceding record.
    """

    def home_of(record: Record) -> int:
        if isinstance(record.event, Opaque):
            return record.partition % partitions
        return route(record.event, partitions)

    imported = list(records)
    arrivals = ((home_of(record), record.recorded, record.event) for record in imported)
    arranged = arrange(arrivals, tail_of)
    for before, after in zip(imported, arranged, strict=True):
        if before.recorded != after.recorded:
            message = (
                f"the record at partition {before.partition}, position {before.position} was "
                f"recorded at {before.recorded}, but would follow a record of {after.recorded} in "
                f"partition {after.partition}: sort the records by `recorded`, and import them "
                "into a journal without newer records"
            )
            raise InvalidInput(message, before)
    return arranged


def check_range(partition: int, after: int, limit: int, partitions: int) -> None:
    """Raise InvalidInput if the arguments of a read are out of range."""
    check_partition(partition, partitions)
    if after < 0:
        raise must_be("after", "a non-negative position", after)
    if limit < 0:
        raise must_be("limit", "a non-negative number of records", limit)


def check_partition(partition: int, partitions: int) -> None:
    """Raise InvalidInput if the journal has no such partition."""
    if partition not in range(partitions):
        message = f"partition {partition!r} does not exist: partitions are 0 to {partitions - 1}"
        raise InvalidInput(message, partition)


_WITH_ID = frozenset(get_args(DecisionEvent | SubjectEvent))


#: Maximum number of settlements that a lookup returns.
LAST_SETTLEMENTS = 50


#: Kinds of events without an id that lookups distinguish.
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
    """Return the erased key of an event's id; None if the event has no id."""
    if isinstance(event, DecisionEvent | SubjectEvent):
        return erased_key_of(event.id)
    return event.key if isinstance(event, Overwritten) else None


def erasure_of_subject(
    records: Iterable[Record], subject: str, at: int, reason: str, actor: str
) -> list[Erased]:
    """Return the events that erase a subject with all its decisions and rewards.

    Args:
        records: All records of the subject.
        subject: Subject to erase.
        at: Time of the erasure, in microseconds since 1970.
        reason: Reason to record in the journal.
        actor: Person or program that requested the erasure.
    """
    events = (record.event for record in records)
    decisions = [event.decision for event in events if isinstance(event, SubjectDecision)]
    keys = map(erased_key_of, [subject_id(subject), *dict.fromkeys(decisions)])
    return [Erased(key, at, reason, actor) for key in keys]


def erasing_key(event: Event | Opaque, erased: Collection[bytes]) -> bytes | None:
    """Return the erased key that applies to an event, or None.

    Events that assign a decision to a subject are erased together with the decision.
    """
    key = erased_key_in(event)
    if key not in erased and isinstance(event, SubjectDecision):
        key = erased_key_of(event.decision)
    return key if key in erased else None


def to_overwrite(
    records: Iterable[Record], erased: Collection[bytes]
) -> list[tuple[Record, Overwritten]]:
    """Return the records to overwrite for these erased keys, each with its replacement."""
    return [
        (record, Overwritten(key))
        for record in records
        if not isinstance(record.event, Overwritten)
        and (key := erasing_key(record.event, erased)) is not None
    ]


#: Maximum number of a call's events to search for an assignment; number of events read at a time.
MOST_OF_CALL, AT_ONCE = 2_000, 8


def assignment_of(read: Callable[[int, int, int], list[Record]], decision: Record) -> Record | None:
    """Return the record that assigns a decision to a subject, or None.

    This record follows the decisions appended by the same call.

    Args:
        read: :meth:`Log.read` of the journal.
        decision: Record of the decision.
    """
    assert isinstance(decision.event, Decision)
    count, position = 0, decision.position
    while count < MOST_OF_CALL and (records := read(decision.partition, position, AT_ONCE)):
        for record in records:
            event = record.event
            if not isinstance(event, Decision | SubjectDecision | Overwritten):
                return None
            if isinstance(event, SubjectDecision) and event.decision == decision.event.id:
                return record
        count, position = count + len(records), records[-1].position
    return None


def subject_of(event: Event | Opaque) -> Subject | None:
    """Return the kind of an event without an id; None if it has an id or cannot be read.

    >>> subject_of(ModeChanged(5, "off"))
    'mode'
    """
    return _SUBJECTS.get(type(event))


def standing(records: Iterable[Record]) -> dict[str, Decision]:
    """Return the decision that counts for each id, which is the one committed first.

    Args:
        records: All records of the ids, ordered by position.
    """
    return {id: decision for id, (decision, _) in _first_decisions(records).items()}


def first_of_each(records: Iterable[Record], limit: int | None) -> list[Record]:
    """Return all decisions, and the first ``limit`` other records of each id, or all if None."""
    if limit is None:
        return list(records)
    counts: Counter[bytes | None] = Counter()
    selected = []
    for record in records:
        if not isinstance(record.event, Decision):
            key = erased_key_in(record.event)
            counts[key] += 1
            if counts[key] > limit:
                continue
        selected.append(record)
    return selected


class FirstDecisions:
    """Selects the events to append: all except decisions whose id already has a decision.

    No other writer may append between reading the records and appending the events.

    Args:
        events: Events to select from.
        ids: Ids that may have only one decision each.
        records: All records of these ids, ordered by position.

    Attributes:
        events: Selected events.

    >>> from belated.core.events import Void
    >>> first = FirstDecisions([Void("a", 0), Void("b", 0)], {"a"})
    >>> first.appended([7, 8])
    Appended(positions=[7, 8], standing={})
    """

    def __init__(
        self, events: Sequence[Event], ids: Collection[str], records: Iterable[Record] = ()
    ) -> None:
        self.events = self._given = events
        #: Indexes of the selected events; None if all are selected.
        self._selected: list[int] | None = None
        if ids:
            self._known = _first_decisions(records)
            self._first: dict[str, tuple[Decision, int]] = {}  # by id, with its index
            self._selected = [n for n, event in enumerate(events) if self._is_first(n, event, ids)]
            self.events = [events[n] for n in self._selected]

    def _is_first(self, index: int, event: Event, ids: Collection[str]) -> bool:
        if not isinstance(event, Decision) or event.id not in ids:
            return True
        return (
            event.id not in self._known
            and self._first.setdefault(event.id, (event, index))[1] == index
        )

    def select(self, values: Sequence[T]) -> Sequence[T]:
        """Return the values for the selected events, given one value per event."""
        return values if self._selected is None else [values[n] for n in self._selected]

    def requests(self, requests: Requests | None) -> Requests:
        """Return the requests of the selected events, by index among the selected events."""
        if not requests or self._selected is None:
            return requests or {}
        return {index: requests[n] for index, n in enumerate(self._selected) if n in requests}

    def appended(self, positions: list[int]) -> Appended:
        """Return the result for all events, given the positions of the selected events."""
        if self._selected is None:
            return Appended(positions, {})
        position_of = dict(zip(self._selected, positions, strict=True))
        standing: dict[str, Decision] = {}
        for n, event in enumerate(self._given):
            if n not in position_of:
                assert isinstance(event, Decision)
                if event.id in self._known:
                    standing[event.id], position_of[n] = self._known[event.id]
                else:
                    standing[event.id], index = self._first[event.id]
                    position_of[n] = position_of[index]
        return Appended([position_of[n] for n in range(len(self._given))], standing)


def _first_decisions(records: Iterable[Record]) -> dict[str, tuple[Decision, int]]:
    """Return the first decision of each id with its position."""
    decisions: dict[str, tuple[Decision, int]] = {}
    for record in records:
        if isinstance(record.event, Decision):
            decisions.setdefault(record.event.id, (record.event, record.position))
    return decisions
