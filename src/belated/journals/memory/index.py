"""Finds the records of an id in memory."""

from __future__ import annotations

from bisect import insort
from operator import attrgetter

import msgspec

from belated.core.events import Decision, Overwritten, Record
from belated.journals.lookups import Subject, erased_key_in, subject_of

#: A partition, an erased key or a subject in it, and whether decisions are meant.
_Place = tuple[int, bytes | Subject | None, bool]


class MemoryIndex:
    """The decisions and other records of each id, and those without an id by their subject.

    A look-up first takes in what is new since the last one. So appending costs nothing, and whoever
    never looks anything up never pays.

    Args:
        streams: the records of each partition.
    """

    def __init__(self, streams: list[list[Record]]) -> None:
        self._streams = streams
        self._indexed = [0] * len(streams)
        self._found: dict[_Place, list[Record]] = {}

    def of(self, partition: int, whose: bytes | Subject, decisions: bool = False) -> list[Record]:
        """The decisions or the other records of an erased key, or about a subject, in order."""
        stream, start = self._streams[partition], self._indexed[partition]
        for record in stream[start:]:
            found = self._found.setdefault(_place(record), [])
            if not found or found[-1] is not record:  # it is, if the last call was interrupted here
                found.append(record)
            self._indexed[partition] += 1
        return self._found.get((partition, whose, decisions), [])

    def drop(self, partition: int, count: int) -> None:
        """Forget the first records of a partition."""
        self.of(partition, "settled")  # all of them are indexed now
        for record in self._streams[partition][:count]:
            place = _place(record)
            found = self._found[place]
            del found[0]
            if not found:
                del self._found[place]
        self._indexed[partition] -= count

    def replace(self, record: Record, event: Overwritten) -> Record:
        """Put another event in place of that of a record; returns the new record."""
        found = self.of(record.partition, event.key, isinstance(record.event, Decision))
        del found[[one.position for one in found].index(record.position)]
        new = msgspec.structs.replace(record, event=event)
        others = self._found.setdefault((record.partition, event.key, False), [])
        insort(others, new, key=attrgetter("position"))
        return new


def _place(record: Record) -> _Place:
    """What a record is found by."""
    event = record.event
    whose = erased_key_in(event) or subject_of(event)
    return record.partition, whose, isinstance(event, Decision)
