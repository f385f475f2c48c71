"""Finds the records of an id in memory."""

from __future__ import annotations

from belated.events import Record
from belated.journals.lookups import key_in


class MemoryIndex:
    """The records of each key, and those without one by their kind.

    A look-up first takes in what is new since the last one. So appending costs nothing, and whoever
    never looks anything up never pays.

    Args:
        streams: the records of each partition, which only grow.
    """

    def __init__(self, streams: list[list[Record]]) -> None:
        self._streams = streams
        self._indexed = [0] * len(streams)
        self._found: dict[tuple[int, bytes | type], list[Record]] = {}

    def of(self, partition: int, whose: bytes | type) -> list[Record]:
        """All records of a key, or of a kind of event that has no id, in order."""
        stream, start = self._streams[partition], self._indexed[partition]
        for record in stream[start:]:
            place = partition, key_in(record.event) or type(record.event)
            self._found.setdefault(place, []).append(record)
            self._indexed[partition] += 1
        return self._found.get((partition, whose), [])
