import math
from decimal import Decimal
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from belated.core.inputs import (
    as_dim,
    as_nonnegative,
    as_positive,
    as_probability,
    as_reward,
    as_rewards,
    as_row,
    as_rows,
)
from belated.exceptions import InvalidInput

NOT_BOUNDED = [math.nan, math.inf, -math.inf, 1e9, -1e9, 1.1e8, 1e38, 1e300, -1e300]


@pytest.mark.parametrize("value", NOT_BOUNDED)
@pytest.mark.parametrize("at", [0, 2])
def test_a_row_with_an_unbounded_entry_is_refused_by_index(value: float, at: int) -> None:
    """The message names the entry, wherever it stands."""
    x = [0.5, 0.25, -1.0]
    x[at] = value
    with pytest.raises(InvalidInput, match=rf"^x\[{at}\] is "):
        as_row(x, dim=3)


@pytest.mark.parametrize("value", NOT_BOUNDED)
def test_a_table_with_an_unbounded_entry_is_refused_by_place(value: float) -> None:
    """The message names row and column."""
    rows = np.zeros((4, 3))
    rows[2, 1] = value
    with pytest.raises(InvalidInput, match=r"^rows\[2, 1\] is "):
        as_rows(rows, dim=3)


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf, 1e9, 1e30, 1e300, 123_456_789.0])
def test_the_error_carries_the_value_that_was_given(value: float) -> None:
    """It is the caller's number, not what float32 made of it: 1e300 is not inf."""
    with pytest.raises(InvalidInput) as error:
        as_row([0.0, value], dim=2)
    assert error.value.value == value or (math.isnan(value) and math.isnan(error.value.value))
    assert str(value) in str(error.value)


def test_the_first_offender_is_the_one_named() -> None:
    """With several bad entries the error points at the first in reading order."""
    rows = np.zeros((3, 2))
    rows[1, 1], rows[2, 0] = np.nan, np.inf
    with pytest.raises(InvalidInput, match=r"rows\[1, 1\] is nan"):
        as_rows(rows, dim=2)


@pytest.mark.parametrize("value", [1e8, -1e8, 99_999_992.0, 3e7, 0.0, -0.0, 1e-300])
def test_entries_up_to_the_bound_are_taken(value: float) -> None:
    """1e8 itself is allowed, and what underflows float32 becomes zero."""
    row = as_row([value, value], dim=2)
    assert row.dtype == np.float32
    assert row.tolist() == [float(np.float32(value))] * 2


def test_many_entries_near_the_bound_are_taken() -> None:
    """The bound is on each entry, not on the length of the row."""
    assert (as_row(np.full(1000, 1e8), dim=1000) == np.float32(1e8)).all()


@pytest.mark.parametrize(
    "x", [[1.0], [1.0, 2.0, 3.0], [[1.0, 2.0]], [[1.0], [2.0]], 1.0, [], [[[1.0, 2.0]]]]
)
def test_a_row_of_the_wrong_shape_is_refused_with_its_shape(x: Any) -> None:
    """The message says what was expected, and the error carries what came."""
    with pytest.raises(InvalidInput, match=r"`x` must be a row of 2 numbers") as error:
        as_row(x, dim=2)
    assert error.value.value is x


def test_a_single_number_is_no_row() -> None:
    """A scalar is refused even where rows have one entry."""
    with pytest.raises(InvalidInput, match=r"`x` must be a row of 1 numbers"):
        as_row(0.5, dim=1)


@pytest.mark.parametrize("rows", [[1.0, 2.0], [[1.0]], [[[1.0, 2.0]]], 5.0, [], [[1.0, 2.0, 3.0]]])
def test_a_table_of_the_wrong_shape_is_refused(rows: Any) -> None:
    """A table has two axes and the right number of columns."""
    with pytest.raises(InvalidInput, match=r"^`rows` ") as error:
        as_rows(rows, dim=2)
    assert error.value.value is rows


NOT_NUMBERS: list[Any] = [
    [[1.0], [1.0, 2.0]],
    ["0.5", "1.0"],
    "01",
    b"01",
    np.array([0.5, 1.0], dtype=object),
    [Decimal("0.5"), Decimal(1)],
    [1.0 + 0j, 2.0 + 0j],
    None,
    [1.0, None],
    [10**30, 1],
    np.array(["2020-01-01", "2020-01-02"], dtype="datetime64[D]"),
    {"a": 1.0, "b": 2.0},
]


@pytest.mark.parametrize("value", NOT_NUMBERS, ids=repr)
def test_what_is_not_real_numbers_is_refused(value: Any) -> None:
    """Ragged lists, text, objects, complex numbers and None are refused, never converted."""
    with pytest.raises(InvalidInput) as error:
        as_row(value, dim=2)
    assert error.value.value is value
    with pytest.raises(InvalidInput):
        as_rows(value, dim=2)
    with pytest.raises(InvalidInput):
        as_rewards(value, 2)


@pytest.mark.parametrize(
    ("x", "expected"),
    [
        ([True, False], [1.0, 0.0]),
        ([1, -3], [1.0, -3.0]),
        (np.array([1, 2], dtype=np.uint8), [1.0, 2.0]),
        (np.array([0.5, 2.0], dtype=np.float16), [0.5, 2.0]),
        (np.array([0.5, 2.0], dtype=">f8"), [0.5, 2.0]),
        ((0.1, 0.2), [float(np.float32(0.1)), float(np.float32(0.2))]),
        (np.arange(4.0)[::-2], [3.0, 1.0]),
    ],
)
def test_real_numbers_of_any_type_become_float32(x: Any, expected: list[float]) -> None:
    """Booleans, integers and other floats are numbers, rounded to float32."""
    row = as_row(x, dim=2)
    assert row.dtype == np.float32
    assert row.flags.c_contiguous
    assert row.tolist() == expected


def test_a_table_is_laid_out_row_by_row() -> None:
    """A Fortran-ordered table keeps its numbers and becomes C-ordered; no rows is a table too."""
    rows = np.asfortranarray(np.arange(6.0).reshape(3, 2))
    table = as_rows(rows, dim=2)
    assert table.flags.c_contiguous
    assert table.tolist() == [[0.0, 1.0], [2.0, 3.0], [4.0, 5.0]]
    assert as_rows(np.empty((0, 2)), dim=2).shape == (0, 2)


REFUSED_REWARDS: list[Any] = [
    *(math.nan, math.inf, -math.inf, 1e10, -1e10, 10**400, np.float32("nan")),
    *("NaN", "inf", "much", None, [], [1.0], np.ones(2), 1j, np.complex128(1 + 1j), object()),
]


@pytest.mark.parametrize("y", REFUSED_REWARDS, ids=lambda y: repr(y)[:20])
def test_a_reward_that_is_no_bounded_number_is_refused(y: Any) -> None:
    """The error carries what was given; text that parses as NaN is refused like NaN."""
    with pytest.raises(InvalidInput, match="the reward") as error:
        as_reward(y)
    assert error.value.value is y


@pytest.mark.parametrize(
    ("y", "expected"),
    [
        *((1, 1.0), (True, 1.0), (-1e9, -1e9), (1e9, 1e9), (np.float32(0.5), 0.5)),
        *((np.int64(3), 3.0), (np.array(2.5), 2.5), (Fraction(1, 4), 0.25), (5e-324, 5e-324)),
    ],
)
def test_a_bounded_number_is_a_reward(y: Any, expected: float) -> None:
    """Any real scalar up to 1e9 becomes a float, exactly."""
    reward = as_reward(y)
    assert type(reward) is float
    assert reward == expected


@pytest.mark.parametrize("value", [math.nan, math.inf, 1e10, -2e9])
def test_rewards_are_refused_by_index(value: float) -> None:
    """The first bad reward of many is named with its place."""
    with pytest.raises(InvalidInput, match=r"^y\[1\] must be ") as error:
        as_rewards([0.0, value, math.nan], 3)
    assert error.value.value == value or math.isnan(value)


@pytest.mark.parametrize("y", [[1.0], [1.0, 2.0, 3.0], [[1.0, 2.0]], 1.0, []])
def test_different_numbers_of_rewards_and_rows_are_refused(y: Any) -> None:
    """There is one reward for each row."""
    with pytest.raises(InvalidInput, match="must be a list of 2 rewards"):
        as_rewards(y, 2)


def test_rewards_are_a_copy_in_float64() -> None:
    """Changing the caller's array later does not change what was taken."""
    source = np.array([1.0, 2.0])
    rewards = as_rewards(source, 2)
    source[0] = 9.0
    assert rewards.dtype == np.float64
    assert rewards.tolist() == [1.0, 2.0]


@pytest.mark.parametrize(
    "value", [0, -1.0, math.nan, math.inf, "a", None, [], 1j, 10**400], ids=lambda v: repr(v)[:20]
)
def test_what_must_be_positive_is_refused_by_name(value: Any) -> None:
    """The message names the argument; a number too large for a float is refused too."""
    with pytest.raises(InvalidInput, match=r"^`ridge` must be") as error:
        as_positive(value, "ridge")
    assert error.value.value is value


def test_a_positive_number_becomes_a_float() -> None:
    """The smallest positive float is positive."""
    assert as_positive(np.float32(0.5), "ridge") == 0.5
    assert as_positive(5e-324, "ridge") == 5e-324


@pytest.mark.parametrize("dim", [0, -1, 1.0, 2.5, "2", None, True, np.float64(2)])
def test_a_width_is_a_whole_number_from_one(dim: Any) -> None:
    """Booleans and floats are no widths, even where their value is whole."""
    with pytest.raises(InvalidInput, match=r"^`dim` must be"):
        as_dim(dim)


def test_a_numpy_integer_is_a_width() -> None:
    """It comes back as an int."""
    assert type(as_dim(np.int32(3))) is int


@pytest.mark.parametrize("value", [0, 0.0, 2, np.float32(0.5), Fraction(1, 2), 1e308])
def test_zero_is_not_negative(value: Any) -> None:
    """Numbers of any type are taken, as floats."""
    assert as_nonnegative(value, "mu") == float(value)
    assert type(as_nonnegative(value, "mu")) is float


@pytest.mark.parametrize("value", [-1e-300, -1, math.nan, math.inf, 10**400, "1", b"1", None, [1]])
def test_what_is_negative_or_no_number_is_refused(value: Any) -> None:
    """The error names and carries it."""
    with pytest.raises(InvalidInput, match=r"^`mu` must be a finite number of at least 0") as error:
        as_nonnegative(value, "mu")
    assert error.value.value is value


@pytest.mark.parametrize("value", [0.5, 1e-300, 1.0 - 2.0**-53, Fraction(1, 20), np.float64(0.05)])
def test_a_probability_is_between_its_ends(value: Any) -> None:
    """However close."""
    assert as_probability(value, "delta") == float(value)


@pytest.mark.parametrize("value", [0, 1, 0.0, 1.0, -0.1, 5, math.nan, math.inf, "0.5", None, []])
def test_what_is_no_probability_is_refused(value: Any) -> None:
    """Nor are the ends, nor a text."""
    with pytest.raises(InvalidInput, match=r"^`delta` must be a probability between 0 and 1"):
        as_probability(value, "delta")
