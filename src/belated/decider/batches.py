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
        rows: one row per action; or the context.
        actions: the actions; None if the caller named none.
        id: the caller's decision id, checked; None if there is none.
    """

    rows: Any
    actions: Actions | None
    id: str | None


class OneReward(NamedTuple):
    """One reward of several, as ``observe`` takes it; what is in it is not checked yet."""

    id: Any
    value: Any
    at: Any = None
    part: Any = ""
    revision: Any = 0


def split_requests(
    requests: Any,
    actions: Actions | None = None,
    ids: Any = None,
    *,
    features: bool | None = None,
) -> list[OneRequest]:
    """Return decision requests one by one.

    Args:
        requests: row tables; or contexts; or (context, actions) pairs; or a frame of pandas or
            polars with one context per line.
        actions: the actions of all requests, unless they come in pairs.
        ids: a decision id for each; or the name of a column of the frame, which then is not part
            of the contexts.
        features: whether the bandit has features; None if that is not known here: then a pair is
            what has a mapping or None as its context, or text among its actions.

    >>> split_requests([{"age": 41}, {"age": 18}], ["red", "blue"], ids=["a", "b"])[1]
    OneRequest(rows={'age': 18}, actions=['red', 'blue'], id='b')
    >>> split_requests([({"age": 41}, ["red", "blue"])])[0].actions
    ['red', 'blue']
    """
    contexts: list[Any]
    if is_frame(requests):
        if features is False:
            message = "requests is a frame, and this bandit has no features to read it"
            raise InvalidInput(f"{message}: pass features=PerArm(...) to the bandit", requests)
        contexts = frame_records(requests)
        if isinstance(ids, str):
            ids = _column(contexts, ids)
    else:
        contexts = _listed(requests, "requests", "row tables, contexts or (context, actions) pairs")
    names = _ids(ids, len(contexts))
    if features is False:
        return [OneRequest(rows, actions, id) for rows, id in zip(contexts, names, strict=True)]
    found = []
    for context, id in zip(contexts, names, strict=True):
        if _is_pair(context, features):
            if actions is not None:
                message = "actions are given for all requests, and with one of them"
                raise InvalidInput(f"{message}: leave one out", context)
            found.append(OneRequest(context[0], context[1], id))
        else:
            found.append(OneRequest(context, actions, id))
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


def _is_pair(request: Any, features: bool | None) -> bool:
    """Whether a request is a context with its actions, rather than rows or a context alone."""
    if not isinstance(request, tuple | list) or len(request) != 2:
        return False
    context, actions = request
    if isinstance(actions, str) or not isinstance(actions, Iterable):
        return False  # two numbers of a context
    if features or context is None or isinstance(context, Mapping | str):
        return True
    return isinstance(actions, Mapping) or any(isinstance(one, str) for one in actions)


def _column(contexts: list[Any], name: str) -> list[Any]:
    """Take a column out of the records of a frame."""
    if contexts and name not in contexts[0]:
        columns = ", ".join(contexts[0])
        raise InvalidInput(f"ids is {name!r}: the frame has no such column, but {columns}", name)
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
