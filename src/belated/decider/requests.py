"""Decision requests: parsing and validation, and detection of retries."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import wraps
from typing import Any, ParamSpec, TypeVar

import msgspec
import numpy as np

from belated.core.events import Decision, Event, SubjectDecision
from belated.core.ids import check_id, key_of, partition_of, slot_of_subject
from belated.core.inputs import Row, as_rows, must_be
from belated.decider.holdouts import Holdout
from belated.exceptions import InvalidInput
from belated.features import Actions, Features, Shared
from belated.features.records import action_names, as_actions, shown
from belated.fold.contexts import NAME, PackedContext, RowEncoder, name_of, pack_context

P = ParamSpec("P")
T = TypeVar("T")


def takes_context(decide: Callable[P, T]) -> Callable[P, T]:
    """Make ``decide`` raise InvalidInput for unknown keyword arguments (often context fields)."""
    parameters = set(inspect.signature(decide).parameters)

    @wraps(decide)
    def checked(*arguments: P.args, **named: P.kwargs) -> T:
        for name in named.keys() - parameters:
            message = f"decide() has no argument {name!r}: if it is a context field, pass"
            raise InvalidInput(f"{message} decide({{{name!r}: {named[name]!r}}})", name)
        return decide(*arguments, **named)

    return checked


class ParsedRequest(msgspec.Struct, frozen=True, gc=False):
    """A validated decision request; the rows of all requests are stored in one table.

    Attributes:
        n_rows: number of rows, one for each action.
        actions: names of the actions; None if actions are identified by index.
        id: the caller's decision id; None if the decider generates the id.
        first_attempt: whether the id is being sent for the first time.
        activated: whether the window starts immediately.
        context: the context and the records of the actions, to store with the decision; None if
            the rows are stored instead.
        unit: the unit by which the decision is assigned to a group; None means the id.
        places: original indices of the rows if some actions are paused; None if none is paused.
        subject: the subject of the decision, if any.
        fallback: index of the action that the caller chose without the service, and the time in
            microseconds since 1970; None if the decider chooses.
    """

    n_rows: int
    actions: Sequence[int | str] | None = None
    id: str | None = None
    first_attempt: bool = False
    activated: bool = True
    context: PackedContext | None = None
    unit: str | None = None
    places: Sequence[int] | None = None
    subject: str | None = None
    fallback: tuple[int, int] | None = None


def parse_request(
    context: Any,
    actions: Actions | None,
    *,
    rows: Any = None,
    dim: int,
    features: Features | None,
    id: str | None = None,
    activated: bool = True,
    contexts: bool = True,
    holdout: Holdout | None = None,
    subject: str | None = None,
) -> tuple[ParsedRequest, Row]:
    """Return a validated request and its rows.

    Args:
        context: the context, which features encode as rows.
        actions: the actions, in the order of the rows; None means all actions of the features.
        rows: one row per action, if there are no features.
        dim: number of columns of a row.
        features: the features, if any.
        id: the caller's decision id.
        activated: whether the window starts immediately.
        contexts: whether contexts are stored.
        holdout: the holdout, if any.
        subject: the subject of the decision, validated.
    """
    if type(activated) is not bool:
        raise must_be("activated", "True or False", activated)
    actions = offered(actions, features)
    table = rows_of(context, actions, rows, dim, features)
    count = len(table)
    if not count:
        raise InvalidInput(f"`rows` has shape {table.shape}: pass at least one row", rows)
    names = None if actions is None else action_names(actions, count)
    packed = pack_context(context, actions, features) if contexts and features is not None else None
    unit = None if holdout is None else holdout.unit_of(context)
    parsed = ParsedRequest(
        count, names, id, activated=activated, context=packed, unit=unit, subject=subject
    )
    return parsed, table


def rows_of(
    context: Any, actions: Actions | None, rows: Any, dim: int, features: Features | None
) -> Row:
    """Return the rows of a request as float32, the type that the journal stores for replay."""
    if features is None:
        if context is not None or rows is None:
            raise _no_rows(context)
        return as_rows(rows, dim)
    if rows is not None:
        message = "this bandit encodes rows from contexts: pass `context` instead of `rows`,"
        raise InvalidInput(f"{message} or create a bandit without features", rows)
    actions = offered(actions, features)
    if actions is None:
        raise InvalidInput("`actions` is missing: pass the offered actions", actions)
    return features.rows(context, actions)


def _no_rows(context: Any) -> InvalidInput:
    """Return the error for a bandit without features that receives something other than rows."""
    if context is None:
        message = "`rows` is missing: pass rows=[...] with one row of numbers per action, or name"
        return InvalidInput(f"{message} the actions, as in Bandit(['blue', 'red'], ...)", context)
    message = f"the context is {shown(context)}, but this bandit has no features to encode it"
    if isinstance(context, Mapping):
        return InvalidInput(f"{message}: add features, as in Bandit(PerArm(...), ...)", context)
    if isinstance(context, list | tuple) and all(isinstance(name, str) for name in context):
        return InvalidInput(f"{message}: name the actions once, as in Bandit([...], ...)", context)
    return InvalidInput(f"{message}: pass rows=[...] with one row of numbers per action", context)


def offered(actions: Actions | None, features: Features | None) -> Actions | None:
    """Return the offered actions: the named actions, or all actions of the features."""
    if features is None or isinstance(actions, Mapping):
        return actions
    if actions is not None:
        return as_actions(actions)  # validate the actions here, and only once
    if isinstance(features, Shared) and features.encoded is not None:
        return features.encoded.ids
    return declared(features)


def declared(features: Features | None) -> Sequence[int | str] | None:
    """Return the actions that the features name, as in :class:`PerArm`; None if they name none."""
    return getattr(features, "actions", None)


def check_subject(subject: Any, id: str | None, partitions: int) -> str:
    """Return ``subject`` as text; raise unless it is valid and in the same partition as the id.

    Args:
        subject: the subject given by the caller.
        id: the caller's decision id; None if the decider generates the id.
        partitions: number of partitions of the journal.
    """
    name: str = check_id(subject, "the subject")
    if id is not None and partitions > 1:
        home = slot_of_subject(name) % partitions
        if partition_of(key_of(id), partitions) != home:
            message = f"the id {id!r} belongs to a different partition than the subject"
            raise InvalidInput(f"{message} {subject!r}: omit the id to have it generated", id)
    return name


def in_context(context: Any, field: str) -> str | None:
    """Return the subject in a field of a context; None if there is no such field."""
    value = context.get(field) if isinstance(context, Mapping) else None
    return None if value is None else str(value)


def with_subjects(decisions: Sequence[Decision], requests: Iterable[ParsedRequest]) -> list[Event]:
    """Return the events to append for decisions, including the events of their subjects."""
    return [
        *decisions,
        *[
            SubjectDecision(request.subject, decision.at_us, decision.id)
            for decision, request in zip(decisions, requests, strict=True)
            if request.subject is not None
        ],
    ]


def check_same(known: Decision, rows: Row, features: Features | None = None) -> None:
    """Raise InvalidInput if a request is not a retry of the decision that has its id.

    Args:
        known: the recorded decision with the same id.
        rows: the rows of the request.
        features: the features that encoded the rows, if any.

    Raises:
        InvalidInput: the chosen row is not in the request.
    """
    x: Row | None = known.x
    if features is not None and known.context[:NAME] != name_of(features.fingerprint):
        encoder = RowEncoder(features)
        x = None if encoder.lacks_fields(known) else encoder.row(known)
    if x is None:  # the features have changed, and the row cannot be encoded again
        return
    if known.index < len(rows) and np.array_equal(rows[known.index], x):
        return
    if x is not known.x and (rows == x).all(axis=1).any():  # new features may reorder rows
        return
    message = f"the id {known.id!r} was used for another decision: use a new id for each decision"
    raise InvalidInput(message, known.id)
