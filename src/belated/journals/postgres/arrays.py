"""Arrays as PostgreSQL takes them in its binary format, packed at once.

psycopg packs a list value by value, which takes as long as all else a client does for an append.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence

import numpy as np

from belated.exceptions import InvalidInput

# The element's type in PostgreSQL, and the letter of struct, by the bytes it has.
_INTEGERS = {2: (21, "h"), 4: (23, "i"), 8: (20, "q")}
_BYTEA = 17
_BIGINTS = np.dtype([("size", ">i4"), ("value", ">i8")])
_HEAD = 20


class Packed(bytes):
    """An array that needs nothing more to be sent."""


def pack_integers(values: Sequence[int], size: int) -> Packed:
    """An array of smallint (2 bytes), integer (4) or bigint (8).

    >>> pack_integers([7], 8).hex(" ", 4)
    '00000001 00000000 00000014 00000001 00000001 00000008 00000000 00000007'
    """
    kind, letter = _INTEGERS[size]
    fields: list[int] = [size] * (2 * len(values))
    fields[1::2] = values
    try:
        body = struct.pack(f">{f'i{letter}' * len(values)}", *fields)
    except struct.error as error:
        message = f"a whole number is out of range, or none: {error}"
        raise InvalidInput(message, values) from None
    return Packed(_head(len(values), kind) + body)


def pack_bytes(values: Sequence[bytes]) -> Packed:
    """An array of bytea.

    >>> pack_bytes([b"abcd"]).hex(" ", 4)
    '00000001 00000000 00000011 00000001 00000001 00000004 61626364'
    """
    parts = [_head(len(values), _BYTEA)]
    for one in values:
        parts += (len(one).to_bytes(4), one)
    return Packed(b"".join(parts))


def unpack_bigints(data: bytes) -> list[int]:
    """The whole numbers of a packed array.

    >>> unpack_bigints(pack_integers([7, -1], 8))
    [7, -1]
    """
    found: list[int] = np.frombuffer(data, _BIGINTS, offset=_HEAD)["value"].tolist()
    return found


def _head(length: int, kind: int) -> bytes:
    # One dimension, without NULLs, counted from 1.
    return struct.pack(">5i", 1, 0, kind, length, 1)
