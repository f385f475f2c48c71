"""Finds the records of an id in memory."""

from __future__ import annotations

from belated.events import Record
from belated.journals.lookups import Subject, key_in, subject_of


class MemoryIndex:
    """The records of each key, and those without one by their subject.

    A look-up first takes in what is new since the last one. So appending costs nothing, and whoever
    never looks anything up never pays.

    Args:
        streams: the records of each partition, which only grow.
    """

    def __init__(self, streams: list[list[Record]]) -> None:
        self._streams = streams
        self._indexed = [0] * len(streams)
        self._found: dict[tuple[int, bytes | Subject | None], list[Record]] = {}

    def of(self, partition: int, whose: bytes | Subject) -> list[Record]:
        """All records of a key, or about a subject, in order."""
        stream, start = self._streams[partition], self._indexed[partition]
        for record in stream[start:]:
            place = partition, key_in(record.event) or subject_of(record.event)
            self._found.setdefault(place, []).append(record)
            self._indexed[partition] += 1
        return self._found.get((partition, whose), [])

    def replace(self, record: Record) -> None:
        """Put a record in place of the one at its position, under the same key."""
        whose = key_in(record.event)
        assert whose is not None
        found = self.of(record.partition, whose)
        found[[one.position for one in found].index(record.position)] = record
