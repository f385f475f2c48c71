"""The format of a Kafka record, which holds one commit: events of one partition, in columns.

The cost for a broker depends more on the number of records than on the number of events, so all
events of a commit are sent in one record. The value of a record consists of these parts, with
little-endian numbers:

* 1 byte: the version, 177; 1 byte: flags of the optional columns;
* 4 bytes: the number of events, followed by the length of each event, 4 bytes each;
* optional: the timestamp of each event, 8 bytes each; the default is the broker's timestamp;
* the events, concatenated;
* optional: the number of requests, their event indexes, their lengths, 4 bytes each, and the
  requests.

The position of an event combines the offset of its record and its index within the record.
Positions therefore have gaps, and a position identifies the record to fetch.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from belated.exceptions import CorruptJournal

#: Number of bits in a position for the index within a record; limits the events per record.
INDEX_BITS = 16
MAX_EVENTS = 1 << INDEX_BITS

#: First byte of a record, distinct from event versions; records with other versions are opaque.
VERSION = 177
_STAMPS, _REQUESTS = 1, 2
_HEAD = 6
_U4, _I8 = np.dtype("<u4"), np.dtype("<i8")


class Place(NamedTuple):
    """The offset of an event's Kafka record, and the index of the event in that record."""

    offset: int
    number: int

    @property
    def position(self) -> int:
        """The position of the event.

        >>> Place(0, 0).position, Place(2, 5).position
        (1, 131078)
        """
        return (self.offset << INDEX_BITS) + self.number + 1

    @classmethod
    def last(cls, position: int) -> Self:
        """Return the place of the event at a position; for 0, a place before the first event.

        >>> Place.last(131078), Place.last(0).offset
        (Place(offset=2, number=5), -1)
        """
        return cls(position - 1 >> INDEX_BITS, position - 1 & (MAX_EVENTS - 1))

    @classmethod
    def behind(cls, position: int) -> Self:
        """Return the first possible place after a position.

        >>> Place.behind(0), Place.behind(131078)
        (Place(offset=0, number=0), Place(offset=2, number=6))
        """
        return cls(position >> INDEX_BITS, position & (MAX_EVENTS - 1))


def pack(
    events: Sequence[bytes],
    stamps: Sequence[int] | None = None,
    requests: Mapping[int, bytes] | None = None,
) -> bytes:
    """Encode a commit as the value of a Kafka record.

    Args:
        events: Encoded events.
        stamps: Timestamp of each event, in microseconds since 1970. None means the broker's
            timestamp.
        requests: Requests of decisions, by index in ``events``.
    """
    flags = (stamps is not None) * _STAMPS | bool(requests) * _REQUESTS
    parts = [bytes([VERSION, flags]), _numbers([len(events)]), _numbers(list(map(len, events)))]
    if stamps is not None:
        parts.append(np.array(stamps, dtype=_I8).tobytes())
    parts += events
    if requests:
        parts += [
            _numbers([len(requests)]),
            _numbers(list(requests)),
            _numbers(list(map(len, requests.values()))),
            *requests.values(),
        ]
    return b"".join(parts)


def _numbers(values: Sequence[int]) -> bytes:
    return np.array(values, dtype=_U4).tobytes()


@dataclass(frozen=True, eq=False)
class Commit:
    """The content of a Kafka record.

    Attributes:
        offset: Offset of the record.
        recorded: Timestamp of each event, in microseconds since 1970.
        value: Value of the record.
        starts: Start of each event in ``value``.
        ends: End of each event in ``value``.
        is_read: False if this release cannot read the record, so that it counts as one event.
    """

    offset: int
    recorded: NDArray[np.int64]
    value: bytes
    starts: NDArray[np.int64]
    ends: NDArray[np.int64]
    is_read: bool = True

    def __len__(self) -> int:
        return len(self.ends)

    @property
    def last(self) -> int:
        """The position of the last event."""
        return Place(self.offset, len(self) - 1).position

    def event(self, index: int) -> memoryview:
        """Return an encoded event."""
        return memoryview(self.value)[int(self.starts[index]) : int(self.ends[index])]

    def requests(self) -> dict[int, bytes]:
        """Return the requests of decisions, by index of the event."""
        if not self.is_read or not self.value[1] & _REQUESTS:
            return {}
        column = memoryview(self.value)[int(self.ends[-1]) :]
        count = int.from_bytes(column[:4], "little")
        numbers = np.frombuffer(column, _U4, 2 * count, 4).tolist()
        requests, start = {}, 4 + 8 * count
        for index, size in zip(numbers[:count], numbers[count:], strict=True):
            requests[index] = bytes(column[start : start + size])
            start += size
        return requests


def unpack(value: bytes, offset: int, recorded: int) -> Commit:
    """Decode the value of a Kafka record.

    Args:
        value: Value of the record.
        offset: Offset of the record.
        recorded: Timestamp of the events, unless the record contains timestamps.

    Raises:
        CorruptJournal: the record is damaged.
    """
    if not value or value[0] != VERSION:
        ends = np.array([len(value)], dtype=np.int64)
        stamps = np.array([recorded], dtype=np.int64)
        return Commit(offset, stamps, value, np.zeros(1, np.int64), ends, is_read=False)
    try:
        return _unpack(value, offset, recorded)
    except (ValueError, IndexError):
        message = f"the Kafka record at offset {offset} is damaged"
        raise CorruptJournal(f"{message}: its columns do not fit its {len(value)} bytes") from None


def _unpack(value: bytes, offset: int, recorded: int) -> Commit:
    flags, count = value[1], int.from_bytes(value[2:_HEAD], "little")
    lengths = np.frombuffer(value, _U4, count, _HEAD).astype(np.int64)
    start = _HEAD + 4 * count
    if flags & _STAMPS:
        stamps = np.frombuffer(value, _I8, count, start).astype(np.int64)
        start += 8 * count
    else:
        stamps = np.full(count, recorded, dtype=np.int64)
    ends = start + np.cumsum(lengths)
    commit = Commit(offset, stamps, value, ends - lengths, ends)
    size = int(ends[-1])
    if flags & _REQUESTS:
        many = int.from_bytes(value[size : size + 4], "little")
        sizes = np.frombuffer(value, _U4, many, size + 4 + 4 * many)
        size += 4 + 8 * many + int(sizes.sum(dtype=np.int64))
    if size != len(value):
        raise ValueError(size)
    return commit
