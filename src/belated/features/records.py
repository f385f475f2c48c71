"""Contexts and actions as callers pass them, and their validation."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

import numpy as np
from numpy.typing import NDArray

from belated.core.inputs import MAX_ENTRY
from belated.exceptions import InvalidInput

#: A record of numbers, booleans and text, a plain sequence of numbers, or None for no context.
Context = Mapping[str, Any] | Sequence[float] | NDArray[Any] | None
#: Ids, or a mapping of ids to records; a record can also be a plain sequence of numbers.
Actions = Sequence[int | str] | Mapping[Any, Context] | NDArray[Any]

#: The largest numeric id.
MAX_ID = (1 << 63) - 1
#: Maximum length of a string in a record, in characters.
MAX_TEXT = 10_000

#: The common type is first, because checks against abstract classes are slower.
MAPPINGS = (dict, Mapping)
_TEXT = frozenset({str})
_LISTS = (list, tuple, dict)
_NUMBERS = (int, float, np.integer, np.floating, np.bool_)


class Ids(tuple[int | str, ...]):
    """Validated ids of actions: at least one, without duplicates."""

    __slots__ = ()


def as_actions(actions: Actions) -> Ids:
    """Return the ids of the offered actions, in order; raise if there are none or duplicates.

    >>> as_actions({"blue": {"price": 3.0}, "red": {"price": 4.0}})
    ('blue', 'red')
    >>> as_actions(["blue", "red", "blue"])
    Traceback (most recent call last):
    belated.exceptions.InvalidInput: the action 'blue' is offered twice
    """
    if type(actions) is Ids:
        return actions
    ids = as_ids(actions, "actions")
    if not ids:
        raise InvalidInput(f"`actions` is {shown(actions)}: offer at least one action", actions)
    if len(set(ids)) != len(ids):
        duplicate = Counter(ids).most_common(1)[0][0]
        raise InvalidInput(f"the action {shown(duplicate)} is offered twice", duplicate)
    return Ids(ids)


def action_names(actions: Actions, count: int) -> Ids:
    """Return the ids of the actions; raise unless there are ``count``, one per row."""
    ids = as_actions(actions)
    if len(ids) != count:
        message = f"got {len(ids)} actions for {count} rows: pass one action per row"
        raise InvalidInput(message, actions)
    return ids


def as_ids(actions: Any, what: str) -> tuple[int | str, ...]:
    """Return ``actions`` as a tuple of plain strings and integers; raise unless all are ids."""
    if isinstance(actions, _LISTS):
        ids = tuple(actions)
    elif isinstance(actions, np.ndarray) and actions.ndim == 1:
        ids = tuple(actions.tolist())
    elif isinstance(actions, Sequence | Mapping) and not isinstance(actions, str | bytes):
        ids = tuple(actions)
    else:
        needed = "a list of ids, or a mapping of ids to records"
        raise InvalidInput(f"`{what}` must be {needed}, got {shown(actions)}", actions)
    return ids if _TEXT.issuperset(map(type, ids)) else tuple(map(_as_id, ids))


def _as_id(value: Any) -> int | str:
    if isinstance(value, str):
        return str.__str__(value)  # the text itself, also for members of string enumerations
    whole = isinstance(value, int | np.integer) and not isinstance(value, bool)
    if whole and -MAX_ID <= value <= MAX_ID:
        return int(value)
    message = f"an action id must be text or a 64-bit whole number, got {shown(value)}"
    raise InvalidInput(message, value)


def as_record(record: Any, who: str) -> Mapping[str, Any]:
    """Return ``record``, or an empty mapping for None; raise unless it is a mapping."""
    if record is None:
        return {}
    if not isinstance(record, Mapping):
        message = f"{who} must be a mapping of names to values, got {shown(record)}"
        raise InvalidInput(message, record)
    return record


def long_text(what: str, value: str) -> InvalidInput:
    """Return the error for a string that is too long to be a field name or value."""
    message = f"{what} must have at most {MAX_TEXT:,} characters, got {len(value):,}"
    return InvalidInput(message, value[:100])


def shown(value: Any) -> str:
    """Return a caller's value as text for a message, truncated if it is long."""
    start = value[:80] if isinstance(value, str | bytes | list | tuple) else value
    try:
        text = repr(start)
    except ValueError:  # Python refuses to format integers of more than 4300 digits
        text = "a number with thousands of digits"
    if "\n" in text:  # such as a pandas Series
        text = f"a {type(value).__name__}"
    return text if len(text) <= 80 else text[:77] + "..."


def is_number(value: Any) -> bool:
    """Return whether a value is a real number that a row can hold."""
    try:
        return isinstance(value, _NUMBERS) and abs(float(value)) <= MAX_ENTRY
    except OverflowError:  # an integer too large for a float
        return False


#: Types of pandas' missing values, besides NaN.
_MISSING = frozenset({"NAType", "NaTType"})
_PLAIN = frozenset({bool, int, float, str, type(None)})


def is_frame(value: Any) -> bool:
    """Return whether a value is a table with named columns, such as a pandas or polars data frame.

    >>> is_frame([{"age": 41}])
    False
    """
    return hasattr(value, "to_dict") and hasattr(value, "columns")


def frame_columns(frame: Any) -> dict[str, list[Any]]:
    """Return the columns of a data frame as plain lists by name; a missing value is None."""
    names = list(frame.columns)
    for name in names:
        if not isinstance(name, str):
            message = f"the data frame has a column named {shown(name)}, but names must be text:"
            raise InvalidInput(f"{message} convert them with frame.rename(columns=str)", name)
    if len(set(names)) != len(names):
        duplicate = next(name for name in names if names.count(name) > 1)
        raise InvalidInput(
            f"the data frame has two columns named {duplicate!r}: rename one", duplicate
        )
    return {name: as_list(frame[name]) for name in names}


def frame_records(frame: Any) -> list[dict[str, Any]]:
    """Return one record per row of a data frame; missing values become None."""
    columns = frame_columns(frame)
    names = list(columns)
    return [dict(zip(names, line, strict=True)) for line in zip(*columns.values(), strict=True)]


def plain(value: Any) -> Any:
    """Convert a value in a context or record to a type that the codec supports."""
    if is_missing(value):
        return None
    if isinstance(value, np.ndarray | np.generic):
        return value.tolist()
    if isinstance(value, datetime):  # a pandas Timestamp
        return value.isoformat()
    if isinstance(value, Mapping):
        return dict(value)
    if isinstance(value, Sequence):
        return list(value)
    raise TypeError(f"{type(value).__name__} cannot be serialized")


def as_list(values: Any) -> list[Any]:
    """Return a column, an array or any other iterable as a list; a missing value is None."""
    plain = values.tolist() if hasattr(values, "tolist") else list(values)
    if set(map(type, plain)) <= _PLAIN:  # the only missing values of these types are None and NaN
        return [None if value != value else value for value in plain]
    return [None if is_missing(value) else value for value in plain]


def is_missing(value: Any) -> bool:
    """Return whether a value is missing: None, NaN, or one of pandas' missing values.

    >>> is_missing(float("nan")), is_missing(None), is_missing(0.0), is_missing("")
    (True, True, False, False)
    """
    if value is None:
        return True
    if isinstance(value, float):
        return value != value
    return type(value).__name__ in _MISSING
