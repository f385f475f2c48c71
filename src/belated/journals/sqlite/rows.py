"""A record as a row of SQLite: its place, the mark it is found by, and its checksum."""

from __future__ import annotations

import zlib

import numpy as np
from numpy.typing import NDArray

from belated.core.events import Event, Opaque, Settled
from belated.journals.columns import ColumnPage
from belated.journals.lookups import half_in

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


def mark_of(event: Event | Opaque) -> int:
    """The number by which the records of an id are found; other ids may share it.

    >>> from belated.core.events import Settled
    >>> mark_of(Settled(0, 5))
    -1
    """
    half = half_in(event)
    if half is not None:
        return mark_of_key(half)
    return SETTLED if isinstance(event, Settled) else _OTHER


def mark_of_key(key: bytes) -> int:
    """The same for a key.

    >>> mark_of_key(bytes.fromhex("018bcfe568007005ab1c2d3e4f506172")) == 0x018BCFE568007005 >> 1
    True
    """
    return int.from_bytes(key[:8]) >> 1


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
