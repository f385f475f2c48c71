"""One record of Kafka is one commit: some events of one partition, in columns.

A broker's work is by the record far more than by the event, so all that is committed together goes
out as one. The value of a record, numbers being little-endian:

* 1 byte: the version, 177; 1 byte: which of the optional columns are there;
* 4 bytes: how many events, then 4 bytes for the length of each;
* optional: 8 bytes for the stamp of each; without them the broker's stamp is that of all;
* the events, one behind the other;
* optional: how many requests, the index and the length of each in 4 bytes, and the requests.

The position of an event is made of the offset of its record and its index there. So positions have
gaps, and a position alone tells which record to fetch.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from belated.exceptions import CorruptJournal

#: Bits of a position that are the index within a record: as many events fit into one.
INDEX_BITS = 16
MAX_EVENTS = 1 << INDEX_BITS

#: No version of the codec of events: what begins otherwise is carried unread.
VERSION = 177
_STAMPS, _REQUESTS = 1, 2
_HEAD = 6
_U4, _I8 = np.dtype("<u4"), np.dtype("<i8")


class Place(NamedTuple):
    """An event of a partition by the offset of its record, and its number there, from 0 on."""

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
        """Return the place of the event at a position; before the first one for 0.

        >>> Place.last(131078), Place.last(0).offset
        (Place(offset=2, number=5), -1)
        """
        return cls(position - 1 >> INDEX_BITS, position - 1 & (MAX_EVENTS - 1))

    @classmethod
    def behind(cls, position: int) -> Self:
        """Return the first place that can be beyond a position.

        >>> Place.behind(0), Place.behind(131078)
        (Place(offset=0, number=0), Place(offset=2, number=6))
        """
        return cls(position >> INDEX_BITS, position & (MAX_EVENTS - 1))


def pack(
    events: Sequence[bytes],
    stamps: Sequence[int] | None = None,
    requests: Mapping[int, bytes] | None = None,
) -> bytes:
    """Return the value of a record.

    Args:
        events: The bytes of each.
        stamps: Of each, in microseconds since 1970; None for the broker's.
        requests: What some of the decisions were chosen from, by their index.
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
    """What a record of Kafka holds.

    Attributes:
        offset: Of the record.
        recorded: The stamp of each event, in microseconds since 1970.
        value: Of the record.
        starts: Where each event begins in ``value``.
        ends: Where each event ends.
        is_read: False if only a newer release could read it: then all of it is one event.
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
        """The position of its last event."""
        return Place(self.offset, len(self) - 1).position

    def event(self, index: int) -> memoryview:
        """Return the bytes of an event."""
        return memoryview(self.value)[int(self.starts[index]) : int(self.ends[index])]

    def requests(self) -> dict[int, bytes]:
        """Return what some of the decisions were chosen from, by their index."""
        if not self.is_read or not self.value[1] & _REQUESTS:
            return {}
        rest = memoryview(self.value)[int(self.ends[-1]) :]
        count = int.from_bytes(rest[:4], "little")
        numbers = np.frombuffer(rest, _U4, 2 * count, 4).tolist()
        found, start = {}, 4 + 8 * count
        for index, size in zip(numbers[:count], numbers[count:], strict=True):
            found[index] = bytes(rest[start : start + size])
            start += size
        return found


def unpack(value: bytes, offset: int, recorded: int) -> Commit:
    """Return what a record holds.

    Args:
        value: Of the record.
        offset: Of the record.
        recorded: The stamp of its events, unless it has their stamps itself.

    Raises:
        CorruptJournal: It is damaged.
    """
    if not value or value[0] != VERSION:
        whole = np.array([len(value)], dtype=np.int64)
        stamps = np.array([recorded], dtype=np.int64)
        return Commit(offset, stamps, value, np.zeros(1, np.int64), whole, is_read=False)
    try:
        return _unpack(value, offset, recorded)
    except (ValueError, IndexError):
        message = f"the record of Kafka at offset {offset} is damaged"
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
