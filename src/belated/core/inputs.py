"""Input validation.

Rows are converted to float32 here, before anything is scored, so that a live process and a replay
of its journal see the same numbers. Invalid input is rejected before any state has changed, with
an error that names the offending value.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from belated.exceptions import InvalidInput

Row = NDArray[np.float32]
Vector = NDArray[np.float64]
Matrix = NDArray[np.float64]

#: NumPy handles a dtype object faster than a scalar type.
_SINGLE = np.dtype(np.float32)

#: The largest absolute value in a row, so that squares can be summed in float64.
MAX_ENTRY = 1e8
#: The largest absolute value of a reward.
MAX_REWARD = 1e9


def as_row(x: Any, dim: int) -> Row:
    """Return ``x`` as a float32 row; raise unless it has ``dim`` finite numbers.

    >>> as_row([0.5, 1], dim=2)
    array([0.5, 1. ], dtype=float32)
    >>> as_row([0.5, float("nan")], dim=2)
    Traceback (most recent call last):
    belated.exceptions.InvalidInput: x[1] is nan: row values must be from -1e+08 to 1e+08
    """
    row = as_numbers(x, "x")
    if row.shape != (dim,):
        raise InvalidInput(f"`x` must be a row of {dim} numbers, got shape {row.shape}", x)
    return _bounded(row, "x")


def as_rows(rows: Any, dim: int) -> Row:
    """Return ``rows`` as a float32 matrix in C order; raise unless rows have ``dim`` numbers.

    >>> as_rows([[0.5, 1], [2, 3]], dim=2).shape
    (2, 2)
    """
    table = as_numbers(rows, "rows")
    if table.ndim != 2 or table.shape[1] != dim:
        raise InvalidInput(_wrong_shape(table.shape, dim), rows)
    return _bounded(table, "rows")


def _wrong_shape(shape: tuple[int, ...], dim: int) -> str:
    if 0 in shape:
        return f"`rows` is empty: pass at least one row of {dim} numbers, one per action"
    if len(shape) == 2:
        return f"`rows` must have {dim} numbers per row (policy.dim), got {shape[1]}"
    if shape == (dim,):
        return f"`rows` is a single row of {dim} numbers: pass a list of rows, one per action"
    return f"`rows` must be a list of rows of {dim} numbers, one per action; got shape {shape}"


def as_reward(y: Any) -> float:
    """Return ``y`` as a float; raise unless it is finite and at most 1e9 in absolute value.

    >>> as_reward(1)
    1.0
    """
    if type(y) is float and abs(y) <= MAX_REWARD:
        return y
    try:
        value = math.nan if isinstance(y, str | bytes | np.complexfloating) else float(y)
    except (TypeError, ValueError, OverflowError):
        raise InvalidInput(f"the reward must be a number, got {y!r}", y) from None
    if not abs(value) <= MAX_REWARD:
        message = f"the reward must be a number from {-MAX_REWARD:g} to {MAX_REWARD:g}, got {y!r}"
        raise InvalidInput(message, y)
    return value


def outside(value: float, least: float, most: float) -> InvalidInput:
    """Return the error for a reward outside these bounds.

    >>> str(outside(19.99, 0.0, 1.0))[:34]
    'the reward 19.99 is outside [0, 1]'
    """
    remedy = "report a reward within these bounds, or widen the bounds"
    if (least, most) == (0.0, 1.0):
        remedy = "report 1 or 0 for yes or no; for amounts, pass family=Gaussian() to the bandit"
    elif (least, most) == (0.0, MAX_REWARD):
        remedy = "report counts of at least 0; for amounts, pass family=Gaussian() to the bandit"
    error = InvalidInput(f"the reward {value} is outside [{least:g}, {most:g}]: {remedy}", value)
    error.issue = "invalid"
    return error


def as_rewards(y: Any, count: int) -> Vector:
    """Return ``y`` as float64; raise unless it contains ``count`` valid rewards."""
    rewards = as_numbers(y, "y").astype(np.float64)
    if rewards.shape != (count,):
        raise InvalidInput(f"`y` must be a list of {count} rewards, got shape {rewards.shape}", y)
    bad = ~(np.abs(rewards) <= MAX_REWARD)
    if bad.any():
        at = int(bad.argmax())
        message = f"y[{at}] must be from {-MAX_REWARD:g} to {MAX_REWARD:g}, got {rewards[at]}"
        raise InvalidInput(message, float(rewards[at]))
    return rewards


def check_made(
    value: Any, name: str, *, needs: str, example: str, names: Iterable[str] = ()
) -> None:
    """Reject an argument that is not an instance of the required kind, such as a class or a name.

    Args:
        value: the argument.
        name: the name of the argument.
        needs: a method that every object of this kind has.
        example: what to pass instead.
        names: calls such as ``Gaussian()``; if the argument is the name of one, the error suggests
            that call.
    """
    if isinstance(value, type):
        message = f"`{name}` is the class {value.__name__}: pass an instance, such as {example}"
        raise InvalidInput(message, value)
    if not hasattr(value, needs):
        if isinstance(value, str):  # suggest Gaussian() for "gaussian"
            calls = {call.partition("(")[0].lower(): call for call in names}
            example = calls.get(value.lower(), example)
        raise InvalidInput(f"`{name}` is {value!r}: pass {example}", value)


def must_be(name: str, needed: str, value: Any) -> InvalidInput:
    """Return the error for an invalid argument.

    >>> str(must_be("others", "a whole number above 0", 0))
    '`others` must be a whole number above 0, got 0'
    """
    return InvalidInput(f"`{name}` must be {needed}, got {value!r}", value)


def as_positive(value: Any, name: str) -> float:
    """Return ``value`` as a float; raise unless it is positive and finite."""
    try:
        number = float(value)
    except (TypeError, ValueError, OverflowError):
        raise must_be(name, "a number above 0", value) from None
    if not (number > 0 and math.isfinite(number)):
        raise must_be(name, "a finite number above 0", value)
    return number


def as_nonnegative(value: Any, name: str) -> float:
    """Return ``value`` as a float; raise unless it is finite and not negative."""
    number = as_float(value)
    if not 0.0 <= number < math.inf:
        raise must_be(name, "a finite number of at least 0", value)
    return number


def as_probability(value: Any, name: str) -> float:
    """Return ``value`` as a float; raise unless it is strictly between 0 and 1.

    >>> as_probability(5, "delta")
    Traceback (most recent call last):
    belated.exceptions.InvalidInput: `delta` must be a probability between 0 and 1, got 5
    """
    number = as_float(value)
    if not 0.0 < number < 1.0:
        raise must_be(name, "a probability between 0 and 1", value)
    return number


def as_dim(dim: Any, name: str = "dim") -> int:
    """Return ``dim`` as an int; raise unless it is a positive integer."""
    if not isinstance(dim, int | np.integer) or isinstance(dim, bool) or dim < 1:
        raise must_be(name, "a positive integer", dim)
    return int(dim)


def as_rounds(value: Any, name: str) -> int:
    """Return ``value`` as a number of rounds; raise unless it is a non-negative integer."""
    if not isinstance(value, int | np.integer) or isinstance(value, bool) or value < 0:
        raise must_be(name, "a whole number of rounds", value)
    return int(value)


def as_numbers(value: Any, name: str) -> NDArray[Any]:
    """Return ``value`` as an array; raise unless it is rectangular and contains real numbers."""
    if type(value) is np.ndarray and value.dtype.char in "df":
        return value
    try:
        array = np.asarray(value)
    except ValueError:  # the rows have different lengths
        raise InvalidInput(
            f"`{name}` is not an array of numbers: its rows have different lengths", value
        ) from None
    if array.dtype.kind not in "fiub":
        hint = f"; pass {name}.to_dict() if it is a context" if hasattr(value, "to_dict") else ""
        message = f"`{name}` must contain real numbers, got dtype {array.dtype}{hint}"
        raise InvalidInput(message, value)
    return array


def as_float(value: Any) -> float:
    """Return ``value`` as a float, or nan if it is not a number."""
    try:
        return math.nan if isinstance(value, str | bytes) else float(value)
    except (TypeError, ValueError, OverflowError):
        return math.nan


def _bounded(given: NDArray[Any], name: str) -> Row:
    # A small sum of squares, computed in one BLAS call, proves that all entries are in bounds.
    if given.dtype.char in "fd" and np.vdot(given, given) <= MAX_ENTRY:
        return given.astype(_SINGLE, order="C", copy=False)
    # A float64 outside the range of float32 becomes inf here, which the check below rejects.
    with np.errstate(over="ignore"):
        array = np.asarray(given, dtype=np.float32, order="C")
    bad = ~(np.abs(array) <= np.float32(MAX_ENTRY))
    if bad.any():
        at = tuple(int(i) for i in np.argwhere(bad)[0])
        where = ", ".join(map(str, at))
        message = (
            f"{name}[{where}] is {given[at]}: row values must be from {-MAX_ENTRY:g} to"
            f" {MAX_ENTRY:g}"
        )
        raise InvalidInput(message, float(given[at]))
    return array


@dataclass(frozen=True)
class Interval:
    """The range of rewards that a family accepts, including finite endpoints."""

    lower: float
    upper: float

    def __contains__(self, y: float) -> bool:
        return self.lower <= y <= self.upper and math.isfinite(y)

    def check(self, y: Any) -> None:
        """Reject rewards outside the interval; the error names the first of them.

        >>> Interval(0, 1).check([0.5, 2.0])
        Traceback (most recent call last):
        belated.exceptions.InvalidInput: the reward 2.0 is outside [0, 1]
        """
        values = np.atleast_1d(np.asarray(y, dtype=np.float64))
        outside = ~((values >= self.lower) & (values <= self.upper) & np.isfinite(values))
        if outside.any():
            value = float(values[outside.argmax()])
            bounds = f"[{self.lower:g}, {self.upper:g}]"
            raise InvalidInput(f"the reward {value} is outside {bounds}", value)
