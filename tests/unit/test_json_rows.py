"""Rows that a kernel reads from JSON are those that a decoder and Python's own numbers make."""

from __future__ import annotations

import json
import struct

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from belated.kernels import RowReader, compiled_row_reader
from belated.kernels.json_rows import read_rows

#: Numbers as programs write them: as short as can be, rounded, whole, with an exponent.
numbers = st.one_of(
    st.floats(-1e8, 1e8).map(repr),
    st.floats(width=32, allow_nan=False, allow_infinity=False).map(repr),
    st.floats(-10, 10).map(lambda one: f"{one:.2f}"),
    st.floats(-10, 10).map(lambda one: f"{one:.17f}"),
    st.floats(-1e30, 1e30).map(lambda one: f"{one:.9E}"),
    st.integers(-(10**19), 10**19).map(str),
    st.sampled_from(
        ["0", "-0", "-0.0", "0e5", "1e22", "1e23", "1E-22", "1e-23", "3.5e38", "1e400"]
    ),
)
gaps = st.sampled_from(["", " ", "\n  ", "\t", "\r\n"])


@pytest.fixture(scope="module", params=["plain", "compiled"])
def reader(request: pytest.FixtureRequest) -> RowReader:
    """The kernel, as it is written and as it is used."""
    if request.param == "plain":
        return read_rows
    pytest.importorskip("numba")
    return compiled_row_reader()


def read(reader: RowReader, text: bytes, width: int) -> bytes | None:
    """What the kernel finds; None if it leaves that to others."""
    found = np.full(len(text) // 2 + 1, np.nan, np.float32)
    count = reader(np.frombuffer(text, np.uint8), width, found[:-1])
    assert np.isnan(found[-1])
    return found[: count * width].tobytes() if count else None


def decoded(text: bytes, width: int) -> bytes | None:
    """The same by way of Python's numbers; None if they are no rows of float32 numbers."""
    try:
        rows = msgspec.json.decode(text, type=list[list[float]])
        if not rows or {len(row) for row in rows} != {width}:
            return None
        return b"".join(struct.pack(f"<{width}f", *row) for row in rows)
    except (msgspec.DecodeError, OverflowError):
        return None


@given(
    rows=st.lists(st.lists(numbers, min_size=1, max_size=4), min_size=1, max_size=4),
    gap=gaps,
    width=st.integers(1, 4),
)
def test_it_reads_the_same_or_nothing(
    reader: RowReader, rows: list[list[str]], gap: str, width: int
) -> None:
    """Bit by bit, the sign of a zero too."""
    inner = [f"[{gap}{f'{gap},{gap}'.join(row)}{gap}]" for row in rows]
    text = f"[{gap}{f'{gap},{gap}'.join(inner)}{gap}]".encode()
    assert read(reader, text, width) in (None, decoded(text, width))


@pytest.mark.parametrize("digits", [2, 8, 17])
def test_it_reads_what_is_usually_sent(reader: RowReader, digits: int) -> None:
    """Every number of a table, however many digits it has, with blanks and without."""
    rows = np.random.default_rng(digits).normal(0, 3, (50, 20)).round(digits).tolist()
    for text in (
        json.dumps(rows),
        json.dumps(rows, separators=(",", ":")),
        json.dumps(rows, indent=1),
    ):
        found = read(reader, text.encode(), 20)
        assert found is not None
        assert found == decoded(text.encode(), 20)


def test_a_number_between_two_is_left_to_others(reader: RowReader) -> None:
    """Halfway between two float32 numbers, its last digits decide."""
    assert read(reader, b"[[1.00000005960464477]]", 1) is None
    assert read(reader, b"[[1.0000000596046448]]", 1) is None
    assert read(reader, b"[[1.00000006]]", 1) == struct.pack("<f", 1.00000006)


@pytest.mark.parametrize(
    "text",
    [
        "[]", "[[]]", "[1,2]", "[[1,2],[]]", "[[1],[2]]", "[[1,2,3]]", "[[1,2],3]",
        "[[1,2]],[[3,4]]",
        "[[1,null]]", '[["1",2]]', "[[true,2]]", "[[[1,2]]]", '[[1,2],{"a":1}]', "null", '"AAAA"',
        "[[123456789012345678901,2]]", "[[0.1234567890123456789,2]]", "[[1e999999999999999999,2]]",
    ],
)  # fmt: skip
def test_all_else_is_left_to_others(reader: RowReader, text: str) -> None:
    """What is no table of that width, and numbers that are too long to be sure of."""
    assert read(reader, text.encode(), 2) is None


@given(inside=st.binary(max_size=30), width=st.integers(1, 3))
def test_it_stays_within_its_bounds(inside: bytes, width: int) -> None:
    """Plain Python would raise an error beyond the end."""
    for text in (inside, b"[" + inside + b"]", b"[[" + inside + b"]]"):
        read(read_rows, text, width)


@given(
    inside=st.text(alphabet="[],.-+0159eE \n", max_size=40),
    width=st.integers(1, 3),
)
def test_it_stays_within_its_bounds_on_what_looks_like_rows(inside: str, width: int) -> None:
    """So it does where the text is nearly one that it reads."""
    read(read_rows, f"[[{inside}]]".encode(), width)
