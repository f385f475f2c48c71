"""From what callers give to what is sent: checked, in the words of the library."""

from __future__ import annotations

import base64
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple, TypeVar
from urllib.parse import quote

import msgspec
import numpy as np

from belated.exceptions import InvalidInput
from belated.features import Actions, as_actions
from belated.ids import check_id, new_id
from belated.inputs import as_numbers, as_reward, as_rows
from belated.journals.steady_clock import system_clock
from belated.rewards import check_part
from belated.service.wire.schemas import (
    MAX_BATCH,
    MAX_BODY_BYTES,
    DecisionRequest,
    NamedReward,
    RewardBody,
)
from belated.times import as_microseconds

T = TypeVar("T")
Reported = TypeVar("Reported", bound=RewardBody)

#: Bytes of a body that are not those of its requests or rewards, at most.
_AROUND = 64

encode = msgspec.json.Encoder().encode


def decision_request(
    rows: Any, actions: Actions | None, id: str | None, activated: bool
) -> DecisionRequest:
    """Return a decision request, with a new id if the caller gives none."""
    if type(activated) is not bool:
        raise InvalidInput(f"activated is {activated!r}: True or False was expected", activated)
    common: dict[str, Any] = {
        "actions": None if actions is None else _named_actions(actions),
        "id": new_id(system_clock()) if id is None else check_id(id),
        "first_attempt": id is None,
        "activated": activated,
    }
    if rows is None or isinstance(rows, Mapping):
        return DecisionRequest(context=_plain(rows), **common)
    given = as_numbers(rows, "rows")
    if given.ndim == 1:  # the numbers of a context
        return DecisionRequest(context=given.tolist(), **common)
    dim = given.shape[-1] if given.ndim else 0
    table = as_rows(given, dim)
    packed = base64.b64encode(table.astype("<f4", copy=False).tobytes()).decode()
    return DecisionRequest(packed, dim, **common)


def sent_again(request: DecisionRequest) -> DecisionRequest:
    """The same request, for a further try."""
    return msgspec.structs.replace(request, first_attempt=False)


def reward_body(
    value: float, at: int | None, part: str, revision: int, token: str | None
) -> RewardBody:
    """Return a reward; its id is in the path."""
    check_part(part, revision)
    return _timed(RewardBody(as_reward(value), at, part, revision, token))


def named_reward(
    id: str, value: float, at: int | None = None, part: str = "", revision: int = 0
) -> NamedReward:
    """Return a reward with its decision id."""
    check_part(part, revision)
    return _timed(NamedReward(as_reward(value), at, part, revision, id=check_id(id)))


def _timed(reward: Reported) -> Reported:
    """With the time of now if it has none; under a token that is for the service to say."""
    if reward.at is None and reward.token is not None:
        return reward
    return msgspec.structs.replace(reward, at=event_time(reward.at))


def event_time(at: int | None) -> int:
    """When something happened; now if the caller does not say, so that every try has one time."""
    return system_clock() if at is None else as_microseconds(at)


class OneRequest(NamedTuple):
    """One decision request of several."""

    rows: Any
    actions: Actions | None
    id: str | None


def split_requests(requests: Any, actions: Actions | None, ids: Any) -> list[OneRequest]:
    """Return decision requests one by one."""
    found = []
    for n, request in enumerate(requests):
        rows, some = _divided(request)
        found.append(OneRequest(rows, some or actions, None if ids is None else ids[n]))
    return found


def split_rewards(rewards: Any) -> list[tuple[Any, ...]]:
    """Return rewards one by one."""
    names = ("id", "value", "at", "part", "revision")
    usual = (None, None, None, "", 0)
    return [
        tuple(one.get(name, value) for name, value in zip(names, usual, strict=True))
        if isinstance(one, Mapping)
        else one
        for one in rewards
    ]


def _divided(request: Any) -> tuple[Any, Actions | None]:
    """The rows of an offer; or its context and its actions, which are no numbers."""
    if isinstance(request, tuple) and len(request) == 2:
        context, actions = request
        if isinstance(context, Mapping | None) or any(isinstance(one, str) for one in actions):
            return context, actions
    return request, None


def batches(values: Iterable[T]) -> Iterator[list[T]]:
    """Divide what is to be sent into bodies that a service takes: by their count and their bytes.

    >>> [len(some) for some in batches(range(2_500))]
    [1000, 1000, 500]
    >>> [len(some) for some in batches(["x" * 400_000] * 3)]
    [2, 1]
    """
    some: list[T] = []
    size = _AROUND
    for value in values:
        more = len(encode(value)) + 1
        if some and (len(some) == MAX_BATCH or size + more > MAX_BODY_BYTES):
            yield some
            some, size = [], _AROUND
        some.append(value)
        size += more
    if some:
        yield some


def quoted(text: str) -> str:
    """A part of a path; "." and ".." would otherwise mean another place."""
    return text.replace(".", "%2E") if text in (".", "..") else quote(text, safe="")


def _named_actions(actions: Actions) -> list[int | str] | dict[str, Any]:
    names = as_actions(actions)
    if isinstance(actions, Mapping):
        return {str(name): _plain(record) for name, record in actions.items()}
    return list(names)


def _plain(value: Any) -> Any:
    """A record as JSON has it; what numpy holds becomes what Python has."""
    if isinstance(value, Mapping):
        return {name: _plain(one) for name, one in value.items()}
    if isinstance(value, np.ndarray | np.generic):
        return value.tolist()
    return list(map(_plain, value)) if isinstance(value, list | tuple) else value
