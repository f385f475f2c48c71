"""From what callers give to what is sent: checked, in the words of the library."""

from __future__ import annotations

import base64
from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime
from typing import Any, TypeVar
from urllib.parse import quote

import msgspec

from belated.core.ids import check_id, new_id, slot_of_subject
from belated.core.inputs import as_numbers, as_reward, as_rows
from belated.core.rewards import check_part
from belated.core.times import (
    Duration,
    Moment,
    as_datetime,
    as_duration,
    as_microseconds,
    duration_us,
    format_duration,
)
from belated.decider.batches import named, split_requests, split_rewards
from belated.exceptions import InvalidInput
from belated.features import Actions
from belated.features.records import as_actions, plain
from belated.journals.steady_clock import system_clock
from belated.wire.messages import (
    MAX_BATCH,
    MAX_BODY_BYTES,
    DecisionRequest,
    NamedReward,
    RewardBody,
    SubjectRewardBody,
)

T = TypeVar("T")

#: Bytes of a body that are not those of its requests or rewards, at most.
_AROUND = 64

encode = msgspec.json.Encoder(enc_hook=plain).encode


def decision_request(
    context: Any,
    actions: Actions | None,
    rows: Any,
    id: str | None,
    activated: bool,
    slot: int | None = None,
    subject: str | None = None,
    sticky: Duration | None = None,
) -> DecisionRequest:
    """Return a decision request, with a new id of that slot if the caller gives none.

    The id of a decision for a subject has the slot of the subject.
    """
    if subject is not None:
        slot = slot_of_subject(check_id(subject, "the subject"))
    if type(activated) is not bool:
        raise InvalidInput(f"activated is {activated!r}: True or False was expected", activated)
    common: dict[str, Any] = {
        "actions": None if actions is None else _named_actions(actions),
        "id": new_id(system_clock(), slot) if id is None else check_id(id),
        "first_attempt": id is None,
        "activated": activated,
        "subject": subject,
        "sticky": None if sticky is None else _written(sticky),
    }
    if rows is None:
        return DecisionRequest(context=_plain_context(context), **common)
    if context is not None:
        message = "context and rows are both given: pass rows to a bandit without features"
        raise InvalidInput(f"{message}, the context to any other", context)
    given = as_numbers(rows, "rows")
    dim = given.shape[-1] if given.ndim else 0
    table = as_rows(given, dim)
    packed = base64.b64encode(table.astype("<f4", copy=False).tobytes()).decode()
    return DecisionRequest(packed, dim, **common)


def _plain_context(context: Any) -> dict[str, Any] | list[float] | None:
    if context is None or isinstance(context, Mapping):
        return None if context is None else dict(context)
    numbers = as_numbers(context, "the context")
    if numbers.ndim != 1:
        message = f"the context has shape {numbers.shape}: a mapping or a list of numbers"
        raise InvalidInput(f"{message} was expected; pass row tables as rows=", context)
    found: list[float] = numbers.tolist()
    return found


def decision_requests(
    contexts: Any,
    actions: Actions | None,
    rows: Any,
    ids: Any,
    subjects: Any,
    activated: bool,
    slot: int | None = None,
) -> list[DecisionRequest]:
    """Return many of them; an error names the one that is wrong."""
    found = []
    requests = split_requests(contexts, actions, rows=rows, ids=ids, subjects=subjects)
    for n, (context, offered, table, id, subject) in enumerate(requests):
        with named(f"{'contexts' if rows is None else 'rows'}[{n}]"):
            found.append(decision_request(context, offered, table, id, activated, slot, subject))
    return found


def sent_again(request: DecisionRequest) -> DecisionRequest:
    """The same request, for a further try."""
    return msgspec.structs.replace(request, first_attempt=False)


def place_of(action: int | str, request: DecisionRequest) -> int:
    """Return the place of an action in a request; -1 if only the service knows the actions.

    Raises:
        InvalidInput: the action is not offered.
    """
    if request.actions is not None:
        names = list(request.actions)
        if action in names:
            return names.index(action)
    elif request.rows is None:
        return -1
    elif isinstance(action, int):
        return action
    message = f"fallback is {action!r}: one of the actions that are offered was expected"
    raise InvalidInput(message, action)


def reward_body(
    value: float, at: Moment | None, part: str, revision: int, token: str | None
) -> RewardBody:
    """Return a reward; its id is in the path."""
    check_part(part, revision)
    # Under a token alone it is for the service to say when.
    moment = None if at is None and token is not None else event_time(at)
    return RewardBody(as_reward(value), moment, part, revision, token)


def named_rewards(rewards: Any) -> list[NamedReward]:
    """Return rewards with their decision ids; an error names the one that is wrong."""
    found = []
    for n, (id, value, at, part, revision) in enumerate(split_rewards(rewards)):
        with named(f"rewards[{n}]"):
            check_part(part, revision)
            moment = event_time(at)
            found.append(NamedReward(as_reward(value), moment, part, revision, id=check_id(id)))
    return found


def subject_rewards(rewards: Iterable[tuple[Any, ...]]) -> list[SubjectRewardBody]:
    """Return rewards of subjects; an error names the one that is wrong."""
    bodies = []
    for n, (subject, value, event_id, *at) in enumerate(rewards):
        with named(f"rewards[{n}]"):
            bodies.append(
                SubjectRewardBody(
                    check_id(subject, "the subject"),
                    as_reward(value),
                    check_id(event_id, "the event_id"),
                    event_time(*at or (None,)),
                )
            )
    return bodies


def event_time(at: Moment | None) -> datetime:
    """When something happened; now if the caller does not say, so that every try has one time."""
    return as_datetime(system_clock() if at is None else as_microseconds(at))


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


def _written(span: Duration) -> str:
    return format_duration(duration_us(as_duration(span, "sticky")))


def _named_actions(actions: Actions) -> list[int | str] | dict[str, Any]:
    names = as_actions(actions)
    if isinstance(actions, Mapping):
        return {str(name): record for name, record in actions.items()}
    return list(names)
