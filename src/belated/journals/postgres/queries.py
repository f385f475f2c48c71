"""The SQL of the journal in PostgreSQL, from the files of ``sql/``, and arrays as it takes them."""

from __future__ import annotations

import itertools
import re
import struct
from collections.abc import Collection, Sequence
from functools import cache
from pathlib import Path

import numpy as np

from belated.exceptions import InvalidInput, JournalError

#: The version of the tables this release needs.
VERSION = 11

_FOLDER = Path(__file__).with_name("sql")


@cache
def query(name: str) -> bytes:
    """A query by its name in queries.sql.

    >>> query("has_tables")
    b"SELECT to_regclass('belated.migration') IS NOT NULL"
    """
    return _queries()[name]


@cache
def numbered(name: str) -> bytes:
    """The same with numbers for its values, in the order in which they stand.

    >>> numbered("make_partitions")[-46:]
    b'SELECT $1, generate_series(0, $2::integer - 1)'
    """
    count = itertools.count(1)
    return re.sub(rb"%\(\w+\)[bs]", lambda _: b"$%d" % next(count), query(name))


def schema() -> str:
    """All tables of the present version, for a database that has none."""
    return (_FOLDER / "schema.sql").read_text(encoding="utf-8")


def migrations(after: int = 0) -> list[str]:
    """What leads from a version of the tables to the present one, a step each.

    From none it is one step. Later versions have files in ``sql/migrations``, by their numbers.

    Raises:
        JournalError: no release had tables of that version.
    """
    if after == 0:
        return [schema()]
    steps = {int(step.name[:4]): step for step in (_FOLDER / "migrations").glob("*.sql")}
    wanted = range(after + 1, VERSION + 1)
    if not steps.keys() >= set(wanted):
        message = f"tables of version {after} are of no release, and nothing leads from there"
        raise JournalError(
            f"{message} to {VERSION}: export the journals with the belated that made them, and "
            "import them into a new database"
        )
    return [steps[version].read_text(encoding="utf-8") for version in wanted]


@cache
def _queries() -> dict[str, bytes]:
    text = (_FOLDER / "queries.sql").read_text(encoding="utf-8")
    found = re.findall(r"^-- (\w+): .+\n((?:(?!--).*\n)+)", text, re.MULTILINE)
    return {name: body.strip().rstrip(";").encode() for name, body in found}


# Arrays are packed here, in PostgreSQL's binary format, at once: psycopg packs a list value by
# value, which takes as long as all else a client does for an append.

# The element's type in PostgreSQL, and the letter of struct, by the bytes it has.
_INTEGERS = {2: (21, "h"), 4: (23, "i"), 8: (20, "q")}
_BYTEA, _TEXT = 17, 25
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


def pack_bytes(values: Collection[bytes], kind: int = _BYTEA) -> Packed:
    """An array of bytea.

    >>> pack_bytes([b"abcd"]).hex(" ", 4)
    '00000001 00000000 00000011 00000001 00000001 00000004 61626364'
    """
    head, sizes = _head(len(values), kind), {*map(len, values)}
    if len(sizes) == 1:  # digests, marks, and often events
        size = sizes.pop().to_bytes(4)
        return Packed(head + size + size.join(values))
    return Packed(head + b"".join([len(one).to_bytes(4) + one for one in values]))


def pack_texts(values: Collection[str]) -> Packed:
    """An array of text."""
    return pack_bytes([text.encode() for text in values], _TEXT)


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
