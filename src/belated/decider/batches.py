"""Many decision requests or rewards in one call: the shapes in which callers have them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, NamedTuple, NoReturn

import numpy as np

from belated.core.ids import check_id
from belated.exceptions import InvalidInput
from belated.features import Actions
from belated.features.records import as_list, frame_records, is_frame, shown


class OneRequest(NamedTuple):
    """One decision request of several, as ``decide`` takes it.

    Attributes:
        context: from which features make rows.
        actions: the actions; None if the caller named none.
        rows: one row per action, if there are no features.
        id: the caller's decision id, checked; None if there is none.
        subject: that the decision is made for; None if the caller named none.
    """

    context: Any
    actions: Actions | None
    rows: Any
    id: str | None
    subject: str | None = None


class OneReward(NamedTuple):
    """One reward of several, as ``observe`` takes it; what is in it is not checked yet."""

    id: Any
    value: Any
    at: Any = None
    part: Any = ""
    revision: Any = 0


def split_requests(
    contexts: Any,
    actions: Actions | None = None,
    *,
    rows: Any = None,
    ids: Any = None,
    subjects: Any = None,
) -> list[OneRequest]:
    """Return decision requests one by one.

    Args:
        contexts: one of each; or (context, actions) pairs; or a frame of pandas or polars with one
            context per line.
        actions: the actions of all requests, unless they come in pairs.
        rows: the row table of each, instead of contexts.
        ids: a decision id for each; or the name of a column of the frame, which then is not part
            of the contexts.
        subjects: the subject of each decision, None for none; or the name of such a column.

    >>> split_requests([{"age": 41}, {"age": 18}], ["red", "blue"], ids=["a", "b"])[1]
    OneRequest(context={'age': 18}, actions=['red', 'blue'], rows=None, id='b', subject=None)
    >>> split_requests([({"age": 41}, ["red", "blue"])])[0].actions
    ['red', 'blue']
    """
    if rows is not None:
        if contexts is not None:
            message = "contexts and rows are both given: pass rows to a bandit without features"
            raise InvalidInput(f"{message}, contexts to any other", contexts)
        tables = _listed(rows, "rows", "row tables")
        names, whom = _ids(ids, len(tables)), _subjects(subjects, len(tables))
        each = zip(tables, names, whom, strict=True)
        return [OneRequest(None, actions, table, id, subject) for table, id, subject in each]
    records: list[Any]
    if is_frame(contexts):
        records = frame_records(contexts)
        if isinstance(ids, str):
            ids = _column(records, "ids", ids)
        if isinstance(subjects, str):
            named = _column(records, "subjects", subjects)
            subjects = [None if subject is None else str(subject) for subject in named]
    else:
        records = _listed(contexts, "contexts", "contexts or (context, actions) pairs")
    found = []
    names, whom = _ids(ids, len(records)), _subjects(subjects, len(records))
    for context, id, subject in zip(records, names, whom, strict=True):
        if _is_pair(context):
            if actions is not None:
                message = "actions are given for all requests, and with one of them"
                raise InvalidInput(f"{message}: leave one out", context)
            found.append(OneRequest(context[0], context[1], None, id, subject))
        else:
            found.append(OneRequest(context, actions, None, id, subject))
    return found


def split_rewards(rewards: Any) -> list[OneReward]:
    """Return rewards one by one.

    Args:
        rewards: (id, value) pairs; or mappings with the keys id and value, and if need be at, part
            and revision; or a frame of pandas or polars with such columns.

    >>> split_rewards([("order-17", 1.0), {"id": "order-18", "value": 0.0, "part": "click"}])[1]
    OneReward(id='order-18', value=0.0, at=None, part='click', revision=0)
    """
    if is_frame(rewards):
        return [_reward(record) for record in frame_records(rewards)]
    return [_reward(one) for one in _listed(rewards, "rewards", "(id, value) pairs or records")]


@contextmanager
def named(place: str) -> Iterator[None]:
    """Say in an error which of several it is."""
    try:
        yield
    except InvalidInput as error:
        raise naming(place, error) from None


def naming(place: str, error: InvalidInput) -> InvalidInput:
    """Return the error of one of several, which says which."""
    found = InvalidInput(f"{place}: {error}", error.value)
    found.issue = error.issue
    return found


def _reward(one: Any) -> OneReward:
    if isinstance(one, Mapping):
        unknown = next((key for key in one if key not in OneReward._fields), None)
        if unknown is not None:
            known = ", ".join(OneReward._fields)
            message = f"a reward has the key {shown(unknown)}: known are {known}"
            raise InvalidInput(f"{message}; leave out what a reward does not have", unknown)
        missing = next((key for key in ("id", "value") if one.get(key) is None), None)
        if missing is not None:
            raise InvalidInput(f"a reward has no {missing}: {shown(one)}", one)
        given = {key: value for key, value in one.items() if value is not None}
        revision = given.get("revision")
        if isinstance(revision, float) and revision.is_integer():  # a column that had gaps
            given["revision"] = int(revision)
        return OneReward(**given)
    if isinstance(one, tuple | list) and len(one) == 2:
        return OneReward(*one)
    expected = "an (id, value) pair, or a mapping with the keys id and value, was expected"
    raise InvalidInput(f"a reward is {shown(one)}: {expected}", one)


def _is_pair(request: Any) -> bool:
    """Whether a request is a context with its actions, rather than a context of two numbers."""
    if not isinstance(request, tuple | list) or len(request) != 2:
        return False
    return isinstance(request[1], Iterable) and not isinstance(request[1], str)


def _column(contexts: list[Any], argument: str, name: str) -> list[Any]:
    """Take a column out of the records of a frame."""
    if contexts and name not in contexts[0]:
        message = f"{argument} is {name!r}: the frame has no such column, but"
        raise InvalidInput(f"{message} {', '.join(contexts[0])}", name)
    return [context.pop(name) for context in contexts]


def _ids(ids: Any, count: int) -> list[str | None]:
    if ids is None:
        return [None] * count
    names = _listed(ids, "ids", "decision ids")
    if len(names) != count:
        raise InvalidInput(f"ids has {len(names)} entries for {count} requests: one each", ids)
    found: set[str] = set()
    for at, id in enumerate(names):
        check_id(id, f"ids[{at}]")
        if id in found:
            raise InvalidInput(f"ids names {id!r} twice: each decision has its own id", id)
        found.add(id)
    return list(names)


def _subjects(subjects: Any, count: int) -> list[str | None]:
    if subjects is None:
        return [None] * count
    found = _listed(subjects, "subjects", "subjects")
    if len(found) != count:
        message = f"subjects has {len(found)} entries for {count} requests: one each"
        raise InvalidInput(f"{message}, None where there is none", subjects)
    return found


def _listed(given: Any, name: str, what: str) -> list[Any]:
    """Return a list of whatever can be gone through, but for what has another meaning."""
    if isinstance(given, list):
        return given
    if isinstance(given, Iterable) and not isinstance(given, str | bytes | Mapping):
        return list(given) if isinstance(given, np.ndarray) and given.ndim > 1 else as_list(given)
    _refuse(given, name, what)


def _refuse(given: Any, name: str, what: str) -> NoReturn:
    hint = "; call collect() on a lazy frame" if hasattr(given, "collect") else ""
    raise InvalidInput(f"{name} is {shown(given)}: a list of {what} was expected{hint}", given)
