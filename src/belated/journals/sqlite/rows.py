"""A record as a row of SQLite: its place, the mark it is found by, and its checksum."""

from __future__ import annotations

import zlib

import numpy as np
from numpy.typing import NDArray

from belated.core.events import Decision, Event, Opaque, Settled
from belated.journals.columns import ColumnPage
from belated.journals.lookups import erased_key_in, index_key

# A place is one number: 11 bits of bandit, 12 of partition, 40 of position.
POSITIONS = 1 << 40
_PARTITIONS = 1 << 12
BANDITS = 1 << 11

#: The marks of events without an id. Those of ids are not negative, so that none can be mistaken.
SETTLED, _OTHER = -1, -2


def place_of(bandit: int, partition: int, position: int) -> int:
    """Where a record is.

    >>> place_of(1, 2, 3) == 1 << 52 | 2 << 40 | 3
    True
    """
    return (bandit * _PARTITIONS + partition) * POSITIONS + position


def split_place(place: int) -> tuple[int, int]:
    """The partition and the position of a place.

    >>> split_place(place_of(1, 2, 3))
    (2, 3)
    """
    return place // POSITIONS % _PARTITIONS, place % POSITIONS


def mark_of(event: Event | Opaque, secret: bytes) -> int:
    """The number by which the records of an id are found; other ids may share it.

    >>> from belated.core.events import Settled
    >>> mark_of(Settled(0, 5), b"secret")
    -1
    """
    key = erased_key_in(event)
    if key is not None:
        return mark_of_key(key, secret) | isinstance(event, Decision)
    return SETTLED if isinstance(event, Settled) else _OTHER


def mark_of_key(key: bytes, secret: bytes) -> int:
    """The same for an erased key: 4 bytes of the key, 30 bits of a keyed hash, and 0.

    The last bit is 1 for decisions, so that they are found whatever else there is.
    """
    whole = index_key(key, secret)
    return int.from_bytes(whole[:4]) << 31 | int.from_bytes(whole[-4:]) >> 2 << 1


def check_of(place: int, recorded: int, mark: int, data: bytes) -> int:
    """The checksum of a row: a changed bit in any of the four shows."""
    whole = place ^ recorded ^ mark
    return zlib.crc32(data, (whole ^ whole >> 32) & 0xFFFFFFFF)


def is_intact(place: int, recorded: int, mark: int, check: int, data: bytes) -> bool:
    """Whether a row is as it was written."""
    try:
        return check == check_of(place, recorded, mark, data)
    except TypeError:  # a changed bit can change the type of a value too
        return False


def is_sound(page: ColumnPage, marks: NDArray[np.int64], checks: NDArray[np.int64]) -> bool:
    """Whether all rows of a page are as they were written; its positions are places."""
    whole = page.positions ^ page.recorded ^ marks
    crcs = page.crcs((whole ^ whole >> 32) & 0xFFFFFFFF)
    return bool(np.array_equal(crcs, checks))
