"""Convert columns of data frames (pandas, polars, Arrow), arrays and lists to NumPy arrays."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from belated.core.inputs import Vector
from belated.core.times import as_microseconds
from belated.exceptions import InvalidInput
from belated.features.records import as_list, is_missing

#: Marker of a missing time in a column of times; has the same bits as NumPy's NaT.
NEVER: int = np.iinfo(np.int64).min


def names_of(frame: Any) -> list[str]:
    """Return the column names of a data frame, or of a mapping of columns."""
    for attribute in ("column_names", "columns"):  # Arrow; pandas and polars
        if hasattr(frame, attribute):
            return list(getattr(frame, attribute))
    return list(frame)


def column_of(frame: Any, name: str, argument: str) -> Any:
    """Return a column of a data frame.

    Args:
        frame: a pandas, polars or Arrow data frame, or a mapping of columns.
        name: name of the column.
        argument: the argument that names the column, for the error.
    """
    names = names_of(frame)
    if name not in names:
        columns = ", ".join(map(repr, names))
        message = f"`{argument}` is {name!r}, but the data frame has only the columns {columns}"
        raise InvalidInput(f"{message}: set `{argument}` to the name of a column", name)
    return frame[name]


def times(given: Any, name: str) -> NDArray[np.int64]:
    """Return a column of times in microseconds since 1970, with :data:`NEVER` for missing times.

    A column with a single time zone is converted at once, any other column value by value.

    >>> times(["2026-01-01T00:00:00Z", None], "made").tolist() == [1_767_225_600_000_000, NEVER]
    True
    """
    kind = getattr(given, "dtype", getattr(given, "type", None))  # Arrow calls it `type`
    kind = getattr(kind, "pyarrow_dtype", kind)
    if getattr(kind, "tz", None) is not None or getattr(kind, "time_zone", None) is not None:
        return np.asarray(given, dtype="datetime64[us]").astype("datetime64[us]").view(np.int64)
    column = np.asarray(given)
    if column.dtype.kind in "iu":
        return column.astype(np.int64)
    if column.dtype.kind == "f":  # whole microseconds, NaN if missing
        return np.where(np.isnan(column), NEVER, np.nan_to_num(column)).astype(np.int64)
    if column.dtype.kind == "M":
        if np.isnat(column).all():
            return np.full(len(column), NEVER)
        message = f"the times of {name!r} have no time zone: if they are in UTC, pass"
        raise InvalidInput(f"{message} {_with_zone(given, name)}", given)
    try:
        stamps = [
            NEVER if is_missing(time) else as_microseconds(time, name) for time in column.tolist()
        ]
        return np.array(stamps, dtype=np.int64)
    except TypeError:
        message = f"{name} must be a column of datetimes or of whole microseconds"
        raise InvalidInput(f"{message}; got {given!r}", given) from None


def _with_zone(given: Any, name: str) -> str:
    """Return the code that marks a column of times as UTC, in the column's own library."""
    accessor = getattr(given, "dt", None)
    if hasattr(accessor, "tz_localize"):
        return f"frame[{name!r}].dt.tz_localize('UTC')"
    if hasattr(accessor, "replace_time_zone"):
        return f"frame[{name!r}].dt.replace_time_zone('UTC')"
    if hasattr(given, "to_pylist"):
        return f"pyarrow.compute.assume_timezone(frame[{name!r}], 'UTC')"
    return "whole microseconds, column.astype('datetime64[us]').astype(int)"


def numbers(given: Any, name: str) -> Vector:
    """Return a column as an array of numbers, with NaN for missing values.

    >>> numbers([1, None, True], "reward")
    array([ 1., nan,  1.])
    """
    column = np.asarray(given)
    try:
        if column.dtype == object:
            column = np.array([np.nan if is_missing(value) else value for value in column.tolist()])
        if column.ndim != 1:
            raise ValueError(f"its shape is {column.shape}")
        return column.astype(np.float64)
    except (TypeError, ValueError) as error:
        raise InvalidInput(f"{name!r} must be a column of numbers ({error})", given) from None


def values(given: Any) -> list[Any]:
    """Return a column as a list of Python values, with None for missing values."""
    for name in ("to_pylist", "to_list"):  # Arrow; polars and pandas
        if hasattr(given, name):
            return as_list(getattr(given, name)())
    return as_list(given)
