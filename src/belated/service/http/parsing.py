"""From the bodies of requests to what the core takes: checked, and nothing of HTTP in it."""

from __future__ import annotations

import base64
import binascii
import struct
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from belated.core.events import Reward
from belated.core.ids import check_id
from belated.core.inputs import as_rows
from belated.core.rewards import reported_reward
from belated.core.times import MIN_MICROSECONDS, as_datetime, as_microseconds
from belated.decider import ParsedRequest
from belated.decider.requests import offered
from belated.exceptions import InvalidInput
from belated.features import action_names
from belated.fold.requests import pack_context
from belated.service.serving.definition import Definition
from belated.service.serving.served_bandit import ServedBandit
from belated.wire.requests import (
    MAX_ACTIONS,
    MAX_FIELDS,
    MAX_NUMBERS,
    MAX_PAIRS,
    DecisionRequest,
    RewardBody,
    RewardsBody,
)

_DAY = 86_400_000_000


def parse_request(request: DecisionRequest, definition: Definition) -> tuple[ParsedRequest, bytes]:
    """Return a decision request and its rows, float32 numbers row after row.

    Raises:
        InvalidInput: it is not a request that this bandit can decide.
    """
    features, dim, context = definition.features, definition.policy.dim, None
    actions = offered(request.actions, features)
    if request.id is not None:
        check_id(request.id)
    if features is None:
        if request.context is not None:
            raise InvalidInput("this bandit has no features: send rows instead of a context")
        rows = _packed_rows(request, dim)
    else:
        if request.rows is not None or request.dim is not None or actions is None:
            raise InvalidInput("this bandit has features: send a context and actions, no rows")
        _check_sizes(request.context, actions, dim)
        rows = features.rows(request.context, actions).tobytes()
        if definition.keep_requests != 0.0:
            context = pack_context(request.context, actions)
    count = len(rows) // (4 * dim)
    names = None if actions is None else action_names(actions, count)
    holdout = definition.holdout
    unit = None if holdout is None else holdout.unit_of(request.context)
    parsed = ParsedRequest(
        count, names, request.id, request.first_attempt, request.activated, context, unit
    )
    return parsed, rows


def _check_sizes(context: Any, actions: Any, dim: int) -> None:
    """Refuse what would take features too much memory or time, before they begin."""
    count, of_context, of_actions = len(actions), 0, 0
    if isinstance(context, Mapping):
        of_context = len(context)
    if isinstance(actions, Mapping):
        of_actions = sum(len(one) for one in actions.values() if isinstance(one, Mapping))
    if of_context + of_actions > MAX_FIELDS:
        message = f"context has {of_context:,} fields, and actions have {of_actions:,}"
        raise InvalidInput(f"{message}: at most {MAX_FIELDS:,} together are allowed")
    if of_context * (count + of_actions) > MAX_PAIRS:
        message = f"context has {of_context:,} fields, and actions has {count:,} actions"
        limit = f"context fields × (actions + action fields) may be at most {MAX_PAIRS:,}"
        raise InvalidInput(f"{message} with {of_actions:,} fields: {limit}")
    if count * dim > MAX_NUMBERS:
        message = f"actions has {count:,} actions, each with a row of {dim:,} numbers"
        raise InvalidInput(f"{message}: at most {MAX_NUMBERS // dim:,} actions are allowed")


def parse_rewards(
    rewards: Sequence[tuple[str, RewardBody]], bandit: ServedBandit, reporter: str
) -> list[Reward]:
    """Return rewards as they are reported.

    Args:
        rewards: each with its decision id.
        bandit: they are for.
        reporter: the name of the key that reports them.

    Raises:
        InvalidInput: one of them cannot be a reward of this bandit.
    """
    now = bandit.now()
    min_reward, max_reward = bandit.reward_range
    return [
        reported_reward(
            id,
            one.value,
            now if one.at is None else event_time(one.at, now),
            one.part,
            one.revision,
            min_reward=min_reward,
            max_reward=max_reward,
            reporter=reporter,
        )
        for id, one in rewards
    ]


def event_time(at: datetime | int, now: int) -> int:
    """When something happened, as the caller says, in microseconds since 1970.

    Raises:
        InvalidInput: it was before the year 2000; or more than a day ahead, by which a caller's
            clock may be wrong.
    """
    moment = as_microseconds(at)
    if moment > now + _DAY:
        ahead = f"more than a day ahead of now, {as_datetime(now).isoformat()}"
        raise InvalidInput(f"at is {as_datetime(moment).isoformat()}, which is {ahead}", at)
    if moment < MIN_MICROSECONDS:
        message = f"at is {as_datetime(moment).isoformat()}, which is before the year 2000"
        raise InvalidInput(f"{message}: leave at out for now", at)
    return moment


def rewards_in(id: str, body: RewardBody | RewardsBody) -> list[tuple[str, RewardBody]]:
    """Return the rewards that a request reports, each with its decision id."""
    if isinstance(body, RewardsBody):
        return [(one.id, one) for one in body.rewards]
    return [(id, body)]


def _packed_rows(request: DecisionRequest, dim: int) -> bytes:
    """The rows of an offer as float32 numbers, one row after the other."""
    if request.dim not in (None, dim):
        raise InvalidInput(f"rows of {request.dim} numbers: {dim} were expected", request.dim)
    rows = request.rows
    if rows is None:
        raise InvalidInput("rows is missing: a row of numbers for each action", None)
    return _unpacked(rows, dim) if isinstance(rows, str) else _packed(rows, dim)


def _unpacked(given: str, dim: int) -> bytes:
    try:
        data = base64.b64decode(given, validate=True)
    except (binascii.Error, ValueError):
        raise InvalidInput("rows is a text, but no base64", None) from None
    if not data or len(data) % (4 * dim):
        message = f"rows has {len(data)} bytes: a multiple of {4 * dim} was expected"
        raise InvalidInput(message, None)
    if len(data) > 4 * dim * MAX_ACTIONS:
        count = len(data) // (4 * dim)
        raise InvalidInput(f"{count:,} rows: an offer may have {MAX_ACTIONS:,}", count)
    return data


def _packed(given: list[list[float]], dim: int) -> bytes:
    if set(map(len, given)) != {dim}:
        raise InvalidInput(f"rows: rows of {dim} numbers were expected, and at least one", None)
    numbers: list[float] = []
    for row in given:
        numbers += row
    try:
        return struct.pack(f"<{len(numbers)}f", *numbers)
    except OverflowError:  # beyond float32, and so beyond what a row may hold: this says where
        return as_rows(given, dim).tobytes()
