"""What a caller hands over: a context, and the actions on offer."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from belated.core.inputs import MAX_ENTRY
from belated.exceptions import InvalidInput

#: A record of numbers, booleans and text, a plain sequence of numbers, or None for no context.
Context = Mapping[str, Any] | Sequence[float] | NDArray[Any] | None
#: Ids, or ids with a record each; the numbers of a record may come as a plain sequence too.
Actions = Sequence[int | str] | Mapping[Any, Context] | NDArray[Any]

#: The largest id that is a number.
MAX_ID = (1 << 63) - 1
#: Maximum length of a text in a record, in characters.
MAX_TEXT = 10_000

_TEXT = frozenset({str})
_LISTS = (list, tuple, dict)  # the usual ones first: asking an abstract class takes longer
_NUMBERS = (int, float, np.integer, np.floating, np.bool_)


def as_actions(actions: Actions) -> tuple[int | str, ...]:
    """The ids of the offered actions, in their order: at least one, and none twice.

    >>> as_actions({"blue": {"price": 3.0}, "red": {"price": 4.0}})
    ('blue', 'red')
    >>> as_actions(["blue", "red", "blue"])
    Traceback (most recent call last):
    belated.exceptions.InvalidInput: the action 'blue' is offered twice
    """
    ids = as_ids(actions, "actions")
    if not ids:
        raise InvalidInput(f"actions is {shown(actions)}: at least one must be offered", actions)
    if len(set(ids)) != len(ids):
        twice = Counter(ids).most_common(1)[0][0]
        raise InvalidInput(f"the action {shown(twice)} is offered twice", twice)
    return ids


def action_names(actions: Actions, count: int) -> tuple[int | str, ...]:
    """Return the ids of the actions, one for each of ``count`` rows."""
    ids = as_actions(actions)
    if len(ids) != count:
        message = f"{len(ids)} actions for {count} rows: one for each was expected"
        raise InvalidInput(message, actions)
    return ids


def as_ids(actions: Any, what: str) -> tuple[int | str, ...]:
    """Plain ids, as many as there are."""
    if isinstance(actions, _LISTS):
        ids = tuple(actions)
    elif isinstance(actions, np.ndarray) and actions.ndim == 1:
        ids = tuple(actions.tolist())
    elif isinstance(actions, Sequence | Mapping) and not isinstance(actions, str | bytes):
        ids = tuple(actions)
    else:
        expected = "a list of ids was expected, or a mapping of ids to records"
        raise InvalidInput(f"{what} is {shown(actions)}: {expected}", actions)
    return ids if _TEXT.issuperset(map(type, ids)) else tuple(map(_as_id, ids))


def _as_id(value: Any) -> int | str:
    if isinstance(value, str):
        return str.__str__(value)  # the text itself, also of an enumeration's member
    whole = isinstance(value, int | np.integer) and not isinstance(value, bool)
    if whole and -MAX_ID <= value <= MAX_ID:
        return int(value)
    message = f"the action {shown(value)} is not an id: text, or a whole number of 64 bits"
    raise InvalidInput(message, value)


def as_record(record: Any, who: str) -> Mapping[str, Any]:
    """A record by names; None is an empty one."""
    if record is None:
        return {}
    if not isinstance(record, Mapping):
        message = f"{who} is {shown(record)}: a mapping of names to values was expected"
        raise InvalidInput(message, record)
    return record


def long_text(what: str, value: str) -> InvalidInput:
    """Return the error for a text that is too long to be the name or the value of a field."""
    message = f"{what} is a text of {len(value):,} characters: at most {MAX_TEXT:,} are allowed"
    return InvalidInput(message, value[:100])


def shown(value: Any) -> str:
    """A caller's value in a message: cut off where it is long."""
    start = value[:80] if isinstance(value, str | bytes | list | tuple) else value
    try:
        text = repr(start)
    except ValueError:  # Python does not write whole numbers of more than 4300 digits
        text = "a number of very many digits"
    return text if len(text) <= 80 else text[:77] + "..."


def is_number(value: Any) -> bool:
    """Whether a value is a real number that a row can hold."""
    try:
        return isinstance(value, _NUMBERS) and abs(float(value)) <= MAX_ENTRY
    except OverflowError:  # a whole number too large for a float
        return False
