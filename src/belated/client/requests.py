"""Validate the arguments of client methods and build request bodies from them."""

from __future__ import annotations

import base64
from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime
from typing import Any, TypeVar
from urllib.parse import quote

import msgspec

from belated.core.ids import check_id, new_id, slot_of_subject
from belated.core.inputs import as_numbers, as_reward, as_rows, must_be
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

#: Upper bound on the size of a batch body without its requests or rewards, in bytes.
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
    """Build a decision request. If ``id`` is None, generate an id in ``slot``.

    If there is a subject, a generated id is in the subject's slot instead.
    """
    if subject is not None:
        slot = slot_of_subject(check_id(subject, "the subject"))
    if type(activated) is not bool:
        raise must_be("activated", "True or False", activated)
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
        message = (
            "pass either `context` or `rows`, not both: `rows` is for bandits without features"
        )
        raise InvalidInput(message, context)
    numbers = as_numbers(rows, "rows")
    dim = numbers.shape[-1] if numbers.ndim else 0
    table = as_rows(numbers, dim)
    packed = base64.b64encode(table.astype("<f4", copy=False).tobytes()).decode()
    return DecisionRequest(packed, dim, **common)


def _plain_context(context: Any) -> dict[str, Any] | list[float] | None:
    if context is None or isinstance(context, Mapping):
        return None if context is None else dict(context)
    numbers = as_numbers(context, "context")
    if numbers.ndim != 1:
        message = f"`context` must be a mapping or a list of numbers, got shape {numbers.shape}"
        raise InvalidInput(f"{message}; to pass one row per action, use `rows`", context)
    row: list[float] = numbers.tolist()
    return row


def decision_requests(
    contexts: Any,
    actions: Actions | None,
    rows: Any,
    ids: Any,
    subjects: Any,
    activated: bool,
    slot: int | None = None,
) -> list[DecisionRequest]:
    """Build the requests of a batch. Errors give the index of the invalid request."""
    bodies = []
    requests = split_requests(contexts, actions, rows=rows, ids=ids, subjects=subjects)
    for n, (context, offered, table, id, subject) in enumerate(requests):
        with named(f"{'contexts' if rows is None else 'rows'}[{n}]"):
            bodies.append(decision_request(context, offered, table, id, activated, slot, subject))
    return bodies


def sent_again(request: DecisionRequest) -> DecisionRequest:
    """Return the request to send in a retry."""
    return msgspec.structs.replace(request, first_attempt=False)


def place_of(action: int | str, request: DecisionRequest) -> int:
    """Return the index of an action in a request, or -1 if only the service knows the actions.

    Raises:
        InvalidInput: the request does not offer the action.
    """
    if request.actions is not None:
        names = list(request.actions)
        if action in names:
            return names.index(action)
    elif request.rows is None:
        return -1
    elif isinstance(action, int):
        return action
    raise must_be("fallback", "one of the offered actions", action)


def reward_body(
    value: float, at: Moment | None, part: str, revision: int, token: str | None
) -> RewardBody:
    """Build the body for a single reward. The decision id is in the path instead."""
    check_part(part, revision)
    # A request authorized only by a token must not contain a time. The service sets it.
    moment = None if at is None and token is not None else event_time(at)
    return RewardBody(as_reward(value), moment, part, revision, token)


def named_rewards(rewards: Any) -> list[NamedReward]:
    """Build the request bodies for rewards. Errors give the index of the invalid reward."""
    bodies = []
    for n, (id, value, at, part, revision) in enumerate(split_rewards(rewards)):
        with named(f"rewards[{n}]"):
            check_part(part, revision)
            moment = event_time(at)
            bodies.append(NamedReward(as_reward(value), moment, part, revision, id=check_id(id)))
    return bodies


def subject_rewards(rewards: Iterable[tuple[Any, ...]]) -> list[SubjectRewardBody]:
    """Build the request bodies for subject rewards. Errors give the index of the invalid reward."""
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
    """Return the time of an event, now by default. Retries send the same time."""
    return as_datetime(system_clock() if at is None else as_microseconds(at))


def batches(values: Iterable[T]) -> Iterator[list[T]]:
    """Split requests or rewards into batches within the service's limits.

    >>> [len(batch) for batch in batches(range(2_500))]
    [1000, 1000, 500]
    >>> [len(batch) for batch in batches(["x" * 400_000] * 3)]
    [2, 1]
    """
    batch: list[T] = []
    size = _AROUND
    for value in values:
        length = len(encode(value)) + 1
        if batch and (len(batch) == MAX_BATCH or size + length > MAX_BODY_BYTES):
            yield batch
            batch, size = [], _AROUND
        batch.append(value)
        size += length
    if batch:
        yield batch


def quoted(text: str) -> str:
    """Percent-encode a path segment, including "." and "..", which URL parsers would resolve."""
    return text.replace(".", "%2E") if text in (".", "..") else quote(text, safe="")


def _written(span: Duration) -> str:
    return format_duration(duration_us(as_duration(span, "sticky")))


def _named_actions(actions: Actions) -> list[int | str] | dict[str, Any]:
    names = as_actions(actions)
    if isinstance(actions, Mapping):
        return {str(name): record for name, record in actions.items()}
    return list(names)
