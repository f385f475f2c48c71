"""Erasures and retractions: affected records are treated as if they had never been appended."""

from __future__ import annotations

from collections.abc import Iterable
from hashlib import blake2b

from belated.core.events import (
    Erased,
    Event,
    Opaque,
    Record,
    Retracted,
    Reward,
    SubjectReward,
)
from belated.core.ids import erased_key_of
from belated.journals.arrivals import erasing_key


class Undone:
    """The erasures and retractions of one partition.

    Erasures and retractions are read before anything is folded. The fold can then skip the records
    to which they refer, so its state is the same as without those records.

    Args:
        records: erasures and retractions in order of position; other records are ignored.

    >>> undone = Undone([Record(0, 9, 50, Retracted(0, 50, 10, 20, "feed"))])
    >>> undone.status_of(Record(0, 3, 15, Reward("a1", 14, 1.0, reporter="feed")))
    'retracted'
    >>> undone.status_of(Record(0, 4, 15, Reward("a1", 14, 1.0))) is None
    True
    """

    def __init__(self, records: Iterable[Record] = ()) -> None:
        self._erased: set[bytes] = set()
        # Reporter, start and end of each retraction that has not been reversed.
        self._spans: set[tuple[str, int, int]] = set()
        # The same, including retractions that have been reversed.
        self._all_spans: set[tuple[str, int, int]] = set()
        self._known: set[Event] = set()
        #: The position of the last erasure or retraction.
        self.last = 0
        for record in records:
            if self._add(record.event):
                self.last = max(self.last, record.position)

    @classmethod
    def of(cls, records: Iterable[Record]) -> Undone | None:
        """Return the erasures and retractions among these records; None if there are none."""
        undone = cls(records)
        return undone if undone._known else None

    def _add(self, event: Event | Opaque) -> bool:
        """Add an erasure or a retraction; return False for any other event."""
        if isinstance(event, Erased):
            self._erased.add(event.key)
        elif isinstance(event, Retracted):
            span = event.reporter, event.start, event.end
            self._all_spans.add(span)
            if event.restored:
                self._spans.discard(span)
            else:
                self._spans.add(span)
        else:
            return False
        self._known.add(event)
        return True

    def knows(self, event: Erased | Retracted) -> bool:
        """Return whether an erasure or retraction was known before the fold began."""
        return event in self._known

    def erases(self, id: str) -> bool:
        """Return whether the decision with this id was erased."""
        return bool(self._erased) and erased_key_of(id) in self._erased

    def erased_key_of(self, event: Event | Opaque) -> bytes | None:
        """Return the erased key of the decision to which an event refers; None if not erased."""
        return erasing_key(event, self._erased)

    def status_of(self, record: Record) -> str | None:
        """Return "erased" or "retracted" for a record that no longer counts; None if it counts."""
        if self._erased and self.erased_key_of(record.event) is not None:
            return "erased"
        return "retracted" if _is_within(record, self._spans) else None

    def has_retracted(self, record: Record) -> bool:
        """Return whether a record was ever retracted, even if it counts again."""
        return _is_within(record, self._all_spans)

    @property
    def digest(self) -> str:
        """A digest of all erasures and retractions; empty if there are none."""
        if not self._erased and not self._spans:
            return ""
        text = repr((sorted(self._erased), sorted(self._spans)))
        return blake2b(text.encode(), digest_size=16).hexdigest()


def _is_within(record: Record, spans: Iterable[tuple[str, int, int]]) -> bool:
    """Return whether a record is a reward within one of these spans of its reporter."""
    event = record.event
    return isinstance(event, Reward | SubjectReward) and any(
        event.reporter == reporter and start <= record.recorded < end
        for reporter, start, end in spans
    )
