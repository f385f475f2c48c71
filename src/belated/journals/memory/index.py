"""Finds the records of an id in memory."""

from __future__ import annotations

from belated.core.events import Record
from belated.journals.lookups import Subject, half_in, subject_of

#: A partition, and half a key or a subject in it.
_Place = tuple[int, bytes | Subject | None]


class MemoryIndex:
    """The records by the first half of their keys, and those without one by their subject.

    A look-up first takes in what is new since the last one. So appending costs nothing, and whoever
    never looks anything up never pays.

    Args:
        streams: the records of each partition.
    """

    def __init__(self, streams: list[list[Record]]) -> None:
        self._streams = streams
        self._indexed = [0] * len(streams)
        self._found: dict[_Place, list[Record]] = {}

    def of(self, partition: int, whose: bytes | Subject) -> list[Record]:
        """All records whose keys begin so, or about a subject, in order."""
        stream, start = self._streams[partition], self._indexed[partition]
        for record in stream[start:]:
            found = self._found.setdefault(_place(record), [])
            if not found or found[-1] is not record:  # it is, if the last call was interrupted here
                found.append(record)
            self._indexed[partition] += 1
        return self._found.get((partition, whose), [])

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

    def replace(self, record: Record) -> None:
        """Put a record in place of the one at its position, under the same half of a key."""
        whose = half_in(record.event)
        assert whose is not None
        found = self.of(record.partition, whose)
        found[[one.position for one in found].index(record.position)] = record


def _place(record: Record) -> _Place:
    """What a record is found by."""
    return record.partition, half_in(record.event) or subject_of(record.event)
