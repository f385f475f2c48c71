"""States of actions, which operators can pause, resume and retire."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from datetime import datetime
from typing import Any, Literal

import msgspec
import numpy as np

from belated.core.events import ActionChanged
from belated.core.inputs import Row, must_be
from belated.core.results import Result
from belated.core.times import Moment, as_datetime, as_microseconds
from belated.decider.requests import ParsedRequest
from belated.exceptions import ActionsPaused, InvalidInput

#: A change that an operator can make to an action.
Change = Literal["pause", "resume", "retire"]
#: The last change of each action, by its name as text.
Changes = Mapping[str, ActionChanged]


def state_at(change: ActionChanged, now: int) -> Literal["open", "paused", "retired"]:
    """Return the state of an action at a time, from its last change; only open actions are chosen.

    >>> pause = ActionChanged(5, "gift", "pause", start=10, until=20)
    >>> [state_at(pause, now) for now in (9, 10, 19, 20)]
    ['open', 'paused', 'paused', 'open']
    """
    is_over = change.until is not None and now >= change.until
    if change.change == "resume" or now < change.start or is_over:
        return "open"
    return "retired" if change.change == "retire" else "paused"


def only_open(
    requests: Sequence[ParsedRequest], table: Row, changes: Changes, now: int
) -> tuple[Sequence[ParsedRequest], Row]:
    """Return the requests and their rows without paused and retired actions.

    Args:
        requests: the requests, in the order of their rows.
        table: the rows of all requests, concatenated.
        changes: the last change of each action.
        now: the current time, in microseconds since 1970.

    Raises:
        ActionsPaused: all actions of a request are paused or retired.

    >>> pause = {"red": ActionChanged(5, "red", "pause")}
    >>> (request,), rows = only_open([ParsedRequest(2, ["red", "blue"])], np.eye(2), pause, 6)
    >>> request.actions, request.places, rows.tolist()
    (['blue'], [1], [[0.0, 1.0]])
    """
    closed = {action for action, change in changes.items() if state_at(change, now) != "open"}
    if not closed:
        return requests, table
    narrowed: list[ParsedRequest] = []
    lines: list[int] = []
    start = 0
    for request in requests:
        names = range(request.n_rows) if request.actions is None else request.actions
        places = [n for n, name in enumerate(names) if str(name) not in closed]
        if not places:
            raise ActionsPaused([str(name) for name in names])
        lines += [start + place for place in places]
        start += request.n_rows
        if len(places) < request.n_rows:
            request = msgspec.structs.replace(  # noqa: PLW2901
                request,
                n_rows=len(places),
                actions=[names[place] for place in places],
                context=request.context and request.context.narrowed(places),
                places=places,
            )
        narrowed.append(request)
    return narrowed, table if len(lines) == len(table) else table[np.array(lines)]


def is_offered(
    action: int | str, names: Collection[int | str] | None, changes: Changes, now: int
) -> bool:
    """Return whether an action is offered and open, so that an earlier decision can be reused.

    Args:
        action: the action that was chosen.
        names: names of the offered actions; None means any action.
        changes: the last change of each action.
        now: the current time, in microseconds since 1970.
    """
    change = changes.get(str(action))
    is_open = change is None or state_at(change, now) == "open"
    return is_open and (names is None or action in names)


class ActionState(msgspec.Struct, Result, frozen=True):
    """The state of an action.

    Attributes:
        action: name of the action, as text.
        state: open, paused or retired.
        since: when the last change took effect or will take effect; None without a change.
        until: when a pause ends; None if it lasts until the action is resumed.
        reason: reason given by the operator.
        actor: the person or process that changed the action.
    """

    action: str
    state: Literal["open", "paused", "retired"]
    since: datetime | None = None
    until: datetime | None = None
    reason: str = ""
    actor: str = ""

    @classmethod
    def of(cls, change: ActionChanged, now: int) -> ActionState:
        """Return the state at a time, from the last change of the action."""
        return cls(
            change.action,
            state_at(change, now),
            as_datetime(max(change.at_us, change.start)),
            None if change.until is None else as_datetime(change.until),
            change.reason,
            change.actor,
        )


def states_at(
    changes: Changes, now: int, declared: Collection[int | str] | None = None
) -> list[ActionState]:
    """Return the state of each action that has been declared or changed."""
    names = dict.fromkeys([*map(str, declared or ()), *sorted(changes)])
    return [
        ActionState.of(changes[name], now) if name in changes else ActionState(name, "open")
        for name in names
    ]


def action_change(
    changes: Changes,
    declared: Collection[int | str] | None,
    now: int,
    *,
    change: Change,
    action: Any,
    start: Moment | None = None,
    until: Moment | None = None,
    reason: str = "",
    actor: str = "",
) -> ActionChanged:
    """Return the event that changes an action.

    Args:
        changes: the last change of each action.
        declared: all actions that the features name; None if the features name none.
        now: the current time, in microseconds since 1970.
        change: the change.
        action: name of the action.
        start: when the change takes effect; None means immediately.
        until: when a pause ends; None means when the action is resumed.
        reason: reason for the change.
        actor: the person or process that changes the action.

    Raises:
        InvalidInput: the action is unknown, or this change is not allowed.
    """
    if isinstance(action, bool) or not isinstance(action, int | str) or action == "":
        raise must_be("action", "the name of an action", action)
    name = str(action)
    if declared is not None and name not in (names := [*map(str, declared)]):
        raise InvalidInput(f"unknown action {name!r}; known actions: {', '.join(names)}", action)
    if (change == "resume" and start is not None) or (change != "pause" and until is not None):
        message = "only a pause can have a start and an end: omit `start` and `until`"
        raise InvalidInput(message, start or until)
    before = changes.get(name)
    if change == "pause" and before is not None and before.change == "retire":
        message = f"the action {name!r} is retired: resume it first, then pause it"
        raise InvalidInput(message, action)
    begin = 0 if start is None else as_microseconds(start, "start")
    end = None if until is None else as_microseconds(until, "until")
    if end is not None and end <= max(begin, now):
        message = "`until` must be in the future and after the start of the pause,"
        raise InvalidInput(f"{message} got {as_datetime(end).isoformat()}", until)
    return ActionChanged(now, name, change, begin, end, reason, actor)
