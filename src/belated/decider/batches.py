"""Parse batches of decision requests and rewards, in all forms that callers may pass."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, NamedTuple, NoReturn

import numpy as np

from belated.core.ids import check_id
from belated.exceptions import InvalidInput
from belated.features import Actions
from belated.features.records import as_list, frame_records, is_frame, shown


class BatchRequest(NamedTuple):
    """One decision request of a batch, with the arguments of ``decide``.

    Attributes:
        context: the context, which features encode as rows.
        actions: the actions; None if the caller named none.
        rows: one row per action, if there are no features.
        id: the caller's decision id, validated, if any.
        subject: the subject of the decision, if any.
    """

    context: Any
    actions: Actions | None
    rows: Any
    id: str | None
    subject: str | None = None


class BatchReward(NamedTuple):
    """One reward of a batch, with the arguments of ``observe``; not validated yet."""

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
) -> list[BatchRequest]:
    """Return the decision requests of a batch.

    Args:
        contexts: a list of contexts or of (context, actions) pairs, or a pandas or polars data
            frame with one context per row.
        actions: the actions of all requests, unless contexts are pairs.
        rows: the row table of each request, instead of contexts.
        ids: a decision id for each request, or the name of a column of the data frame, which is
            then removed from the contexts.
        subjects: a subject or None for each request, or the name of a column of the data frame,
            which is then removed from the contexts.

    >>> split_requests([{"age": 41}, {"age": 18}], ["red", "blue"], ids=["a", "b"])[1]
    BatchRequest(context={'age': 18}, actions=['red', 'blue'], rows=None, id='b', subject=None)
    >>> split_requests([({"age": 41}, ["red", "blue"])])[0].actions
    ['red', 'blue']
    """
    if rows is not None:
        if contexts is not None:
            message = "`contexts` and `rows` cannot both be passed: pass `rows` to a bandit without"
            raise InvalidInput(f"{message} features, and `contexts` to any other bandit", contexts)
        tables = _listed(rows, "rows", "row tables")
        names, owners = _ids(ids, len(tables)), _subjects(subjects, len(tables))
        lines = zip(tables, names, owners, strict=True)
        return [BatchRequest(None, actions, table, id, subject) for table, id, subject in lines]
    records: list[Any]
    if is_frame(contexts):
        records = frame_records(contexts)
        if isinstance(ids, str):
            ids = _column(records, "ids", ids)
        if isinstance(subjects, str):
            column = _column(records, "subjects", subjects)
            subjects = [None if subject is None else str(subject) for subject in column]
    else:
        records = _listed(contexts, "contexts", "contexts or (context, actions) pairs")
    requests = []
    names, owners = _ids(ids, len(records)), _subjects(subjects, len(records))
    for context, id, subject in zip(records, names, owners, strict=True):
        if _is_pair(context):
            if actions is not None:
                message = "`actions` is set both for the whole batch and for an individual request"
                raise InvalidInput(f"{message}: remove one of them", context)
            requests.append(BatchRequest(context[0], context[1], None, id, subject))
        else:
            requests.append(BatchRequest(context, actions, None, id, subject))
    return requests


def split_rewards(rewards: Any) -> list[BatchReward]:
    """Return the rewards of a batch.

    Args:
        rewards: a list of (id, value) pairs or of mappings with the keys id and value (and
            optionally at, part and revision), or a pandas or polars data frame with these columns.

    >>> split_rewards([("order-17", 1.0), {"id": "order-18", "value": 0.0, "part": "click"}])[1]
    BatchReward(id='order-18', value=0.0, at=None, part='click', revision=0)
    """
    if is_frame(rewards):
        return [_reward(record) for record in frame_records(rewards)]
    return [_reward(item) for item in _listed(rewards, "rewards", "(id, value) pairs or records")]


@contextmanager
def named(place: str) -> Iterator[None]:
    """Prefix error messages with the position of the invalid item."""
    try:
        yield
    except InvalidInput as error:
        raise naming(place, error) from None


def naming(place: str, error: InvalidInput) -> InvalidInput:
    """Return the error with its message prefixed with the position of the invalid item."""
    prefixed = InvalidInput(f"{place}: {error}", error.value)
    prefixed.issue = error.issue
    return prefixed


def _reward(item: Any) -> BatchReward:
    if isinstance(item, Mapping):
        unknown = next((key for key in item if key not in BatchReward._fields), None)
        if unknown is not None:
            keys = ", ".join(BatchReward._fields)
            message = f"a reward has the unknown key {shown(unknown)}; known keys: {keys}"
            raise InvalidInput(f"{message}. Remove other keys", unknown)
        missing = next((key for key in ("id", "value") if item.get(key) is None), None)
        if missing is not None:
            message = f"a reward has no {missing}: {shown(item)}; pass both id and value"
            raise InvalidInput(message, item)
        fields = {key: value for key, value in item.items() if value is not None}
        revision = fields.get("revision")
        # pandas stores integer columns with missing values as float.
        if isinstance(revision, float) and revision.is_integer():
            fields["revision"] = int(revision)
        return BatchReward(**fields)
    if isinstance(item, tuple | list) and len(item) == 2:
        return BatchReward(*item)
    needed = "an (id, value) pair, or a mapping with the keys id and value"
    raise InvalidInput(f"a reward must be {needed}; got {shown(item)}", item)


def _is_pair(request: Any) -> bool:
    """Return whether a request is a (context, actions) pair, not a context of two numbers."""
    if not isinstance(request, tuple | list) or len(request) != 2:
        return False
    return isinstance(request[1], Iterable) and not isinstance(request[1], str)


def _column(contexts: list[Any], argument: str, name: str) -> list[Any]:
    """Remove a column from a data frame's records, and return the column."""
    if contexts and name not in contexts[0]:
        message = f"`{argument}` is {name!r}, but the data frame has only the columns"
        raise InvalidInput(f"{message} {', '.join(contexts[0])}", name)
    return [context.pop(name) for context in contexts]


def _ids(ids: Any, count: int) -> list[str | None]:
    if ids is None:
        return [None] * count
    names = _listed(ids, "ids", "decision ids")
    if len(names) != count:
        message = f"`ids` has {len(names)} entries for {count} requests: pass one id per request"
        raise InvalidInput(message, ids)
    seen: set[str] = set()
    for at, id in enumerate(names):
        check_id(id, f"ids[{at}]")
        if id in seen:
            raise InvalidInput(f"`ids` contains {id!r} more than once: ids must be unique", id)
        seen.add(id)
    return list(names)


def _subjects(subjects: Any, count: int) -> list[str | None]:
    if subjects is None:
        return [None] * count
    names = _listed(subjects, "subjects", "subjects")
    if len(names) != count:
        message = f"`subjects` has {len(names)} entries for {count} requests: pass one subject, or"
        raise InvalidInput(f"{message} None, per request", subjects)
    return names


def _listed(given: Any, name: str, what: str) -> list[Any]:
    """Return ``given`` as a list; raise unless it is an iterable other than text or a mapping."""
    if isinstance(given, list):
        return given
    if isinstance(given, Iterable) and not isinstance(given, str | bytes | Mapping):
        return list(given) if isinstance(given, np.ndarray) and given.ndim > 1 else as_list(given)
    _refuse(given, name, what)


def _refuse(given: Any, name: str, what: str) -> NoReturn:
    hint = "; call collect() on a lazy frame" if hasattr(given, "collect") else ""
    raise InvalidInput(f"`{name}` must be a list of {what}, got {shown(given)}{hint}", given)
