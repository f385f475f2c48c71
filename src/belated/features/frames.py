"""Frames of pandas or polars, line by line; neither library is imported."""

from __future__ import annotations

from typing import Any

from belated.exceptions import InvalidInput
from belated.features.records import shown

#: What pandas has for a missing value, besides NaN.
_MISSING = frozenset({"NAType", "NaTType"})


def is_frame(value: Any) -> bool:
    """Whether a value is a table with named columns, as those of pandas and polars are.

    >>> is_frame([{"age": 41}])
    False
    """
    return hasattr(value, "to_dict") and hasattr(value, "columns")


def frame_columns(frame: Any) -> dict[str, list[Any]]:
    """Return the columns of a frame as plain lists by name; a missing value is None."""
    names = list(frame.columns)
    for name in names:
        if not isinstance(name, str):
            message = f"the frame has a column named {shown(name)}: names are text"
            raise InvalidInput(f"{message}, as in frame.rename(columns=str)", name)
    if len(set(names)) != len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise InvalidInput(f"the frame has two columns named {twice!r}: rename one", twice)
    return {name: as_list(frame[name]) for name in names}


def frame_records(frame: Any) -> list[dict[str, Any]]:
    """Return one record per line of a frame; a missing value is None."""
    columns = frame_columns(frame)
    names = list(columns)
    return [dict(zip(names, line, strict=True)) for line in zip(*columns.values(), strict=True)]


def as_list(values: Any) -> list[Any]:
    """Return a column, an array or any other iterable as a list; a missing value is None."""
    plain = values.tolist() if hasattr(values, "tolist") else list(values)
    return [None if is_missing(value) else value for value in plain]


def is_missing(value: Any) -> bool:
    """Whether a value stands for none: None, NaN, and what pandas has besides.

    >>> is_missing(float("nan")), is_missing(None), is_missing(0.0), is_missing("")
    (True, True, False, False)
    """
    if value is None:
        return True
    if isinstance(value, float):
        return value != value
    return type(value).__name__ in _MISSING
