"""The SQL of the PostgreSQL journal, from the files in ``sql/``, and packed array parameters."""

from __future__ import annotations

import itertools
import re
import struct
from collections.abc import Collection, Sequence
from functools import cache
from pathlib import Path

import numpy as np

from belated.exceptions import InvalidInput, JournalError

#: Version of the tables that this release requires.
VERSION = 12

_FOLDER = Path(__file__).with_name("sql")


@cache
def query(name: str) -> bytes:
    """Return the query with this name in queries.sql.

    >>> query("has_tables")
    b"SELECT to_regclass('belated.migration') IS NOT NULL"
    """
    return _queries()[name]


@cache
def numbered(name: str) -> bytes:
    """Return a query with numbered parameters, in order of appearance.

    >>> numbered("make_partitions")[-46:]
    b'SELECT $1, generate_series(0, $2::integer - 1)'
    """
    count = itertools.count(1)
    return re.sub(rb"%\(\w+\)[bs]", lambda _: b"$%d" % next(count), query(name))


def schema() -> str:
    """Return the statements that create the tables in an empty database."""
    return (_FOLDER / "schema.sql").read_text(encoding="utf-8")


def migrations(after: int = 0) -> list[str]:
    """Return the scripts that migrate the tables from a version to the current version.

    Version 0 means that there are no tables.

    Raises:
        JournalError: there is no migration from that version.
    """
    if after == 0:
        return [schema()]
    steps = {int(step.name[:4]): step for step in (_FOLDER / "migrations").glob("*.sql")}
    versions = range(after + 1, VERSION + 1)
    if not steps.keys() >= set(versions):
        raise JournalError(
            f"there is no migration of the tables from version {after} to {VERSION}: export the "
            "journals with the release that created them, and import them into a new database"
        )
    return [steps[version].read_text(encoding="utf-8") for version in versions]


@cache
def _queries() -> dict[str, bytes]:
    text = (_FOLDER / "queries.sql").read_text(encoding="utf-8")
    queries = re.findall(r"^-- (\w+): .+\n((?:(?!--).*\n)+)", text, re.MULTILINE)
    return {name: body.strip().rstrip(";").encode() for name, body in queries}


# Arrays are packed as a whole in PostgreSQL's binary format. psycopg would pack lists value by
# value, which would double the client's time for an append.

# PostgreSQL type and struct format character of integers, by size in bytes.
_INTEGERS = {2: (21, "h"), 4: (23, "i"), 8: (20, "q")}
_BYTEA, _TEXT = 17, 25
_BIGINTS = np.dtype([("size", ">i4"), ("value", ">i8")])
_HEAD = 20


class Packed(bytes):
    """An array in PostgreSQL's binary format."""


def pack_integers(values: Sequence[int], size: int) -> Packed:
    """Pack an array of smallint (size 2), integer (4) or bigint (8).

    >>> pack_integers([7], 8).hex(" ", 4)
    '00000001 00000000 00000014 00000001 00000001 00000008 00000000 00000007'
    """
    kind, letter = _INTEGERS[size]
    fields: list[int] = [size] * (2 * len(values))
    fields[1::2] = values
    try:
        body = struct.pack(f">{f'i{letter}' * len(values)}", *fields)
    except struct.error as error:
        message = f"a number is out of range ({error}): pass integers of at most {size} bytes"
        raise InvalidInput(message, values) from None
    return Packed(_head(len(values), kind) + body)


def pack_bytes(values: Collection[bytes], kind: int = _BYTEA) -> Packed:
    """Pack an array of bytea.

    >>> pack_bytes([b"abcd"]).hex(" ", 4)
    '00000001 00000000 00000011 00000001 00000001 00000004 61626364'
    """
    head, sizes = _head(len(values), kind), {*map(len, values)}
    if len(sizes) == 1:  # true for digests and marks, often also for events
        size = sizes.pop().to_bytes(4)
        return Packed(head + size + size.join(values))
    return Packed(head + b"".join([len(value).to_bytes(4) + value for value in values]))


def pack_texts(values: Collection[str]) -> Packed:
    """Pack an array of text."""
    return pack_bytes([text.encode() for text in values], _TEXT)


def unpack_bigints(data: bytes) -> list[int]:
    """Unpack an array of bigint.

    >>> unpack_bigints(pack_integers([7, -1], 8))
    [7, -1]
    """
    values: list[int] = np.frombuffer(data, _BIGINTS, offset=_HEAD)["value"].tolist()
    return values


def _head(length: int, kind: int) -> bytes:
    # One dimension, no NULLs, indexes from 1.
    return struct.pack(">5i", 1, 0, kind, length, 1)
