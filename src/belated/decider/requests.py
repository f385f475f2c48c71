"""A decision request as the decider takes it, and whether one repeats another."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import msgspec
import numpy as np

from belated.core.events import Decision, Event, SubjectDecision
from belated.core.ids import check_id, key_of, partition_of, slot_of_subject
from belated.core.inputs import Row, as_rows
from belated.decider.holdouts import Holdout
from belated.exceptions import InvalidInput
from belated.features import Actions, Features, Shared
from belated.features.records import action_names, as_actions, shown
from belated.fold.contexts import NAME, PackedContext, RowEncoder, name_of, pack_context


class ParsedRequest(msgspec.Struct, frozen=True, gc=False):
    """One decision request, checked; its rows lie in one table with those of the others.

    Attributes:
        n_rows: number of rows, one for each action.
        actions: names of the actions; None: their indices.
        id: the caller's decision id; None: the decider makes one.
        first_attempt: whether this id was never sent before.
        activated: whether the window starts at once.
        context: the context and the records of the actions, to be stored with the decision; None:
            rows are stored.
        unit: by which a holdout is drawn; None: by the id.
        places: of the rows in the request, if some of its actions are paused; None: all are there.
        subject: that the decision is made for; None if there is none.
        fallback: the index of the action that the caller chose without the service, and when, in
            microseconds since 1970; None: the decider chooses.
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
    """Return what a caller asks for, checked, and its rows.

    Args:
        context: from which features make the rows.
        actions: the actions, in the order of the rows; None: all that the features know.
        rows: one row per action, if there are no features.
        dim: width of a row.
        features: from a context and actions to rows, if there are any.
        id: the caller's decision id.
        activated: whether the window starts at once.
        contexts: whether contexts are stored.
        holdout: that some decisions are drawn for, if there is one.
        subject: that the decision is made for, checked.
    """
    if type(activated) is not bool:
        raise InvalidInput(f"activated is {activated!r}: True or False was expected", activated)
    actions = offered(actions, features)
    table = rows_of(context, actions, rows, dim, features)
    count = len(table)
    if not count:
        raise InvalidInput(f"rows has shape {table.shape}: at least one row was expected", rows)
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
    """Return the rows of a request as float32: a replay sees the same numbers."""
    if features is None:
        if context is not None or rows is None:
            raise _no_rows(context)
        return as_rows(rows, dim)
    if rows is not None:
        message = "rows are given, and this bandit makes them from contexts: pass the context"
        raise InvalidInput(f"{message}, or make a bandit without features", rows)
    actions = offered(actions, features)
    if actions is None:
        raise InvalidInput("actions are missing: which ones are offered?", actions)
    return features.rows(context, actions)


def _no_rows(context: Any) -> InvalidInput:
    """Return what to say if a bandit without features gets something other than rows."""
    if context is None:
        message = "rows are missing: pass rows=[...] with one row of numbers per action, or name"
        return InvalidInput(f"{message} the actions, Bandit(['blue', 'red'], ...)", context)
    message = f"the context is {shown(context)}, and this bandit has no features to read it"
    if isinstance(context, Mapping):
        return InvalidInput(f"{message}: make it with Bandit(PerArm(...), ...)", context)
    if isinstance(context, list | tuple) and all(isinstance(name, str) for name in context):
        return InvalidInput(f"{message}: name the actions once, Bandit([...], ...)", context)
    return InvalidInput(f"{message}: pass one row of numbers per action, rows=[...]", context)


def offered(actions: Actions | None, features: Features | None) -> Actions | None:
    """Return the actions that are offered: all that the features know, if none are named."""
    if features is None or isinstance(actions, Mapping):
        return actions
    if actions is not None:
        return as_actions(actions)  # here, so that they are checked once
    if isinstance(features, Shared) and features.encoded is not None:
        return features.encoded.ids
    return declared(features)


def declared(features: Features | None) -> Sequence[int | str] | None:
    """Return the actions that features know once and for all, as :class:`PerArm` does."""
    return getattr(features, "actions", None)


def check_subject(subject: Any, id: str | None, partitions: int) -> str:
    """Return a subject, if a decision with this id can be made for it.

    Args:
        subject: that was given.
        id: the caller's decision id; None if the decider makes one.
        partitions: of the journal.
    """
    name: str = check_id(subject, "the subject")
    if id is not None and partitions > 1:
        home = slot_of_subject(name) % partitions
        if partition_of(key_of(id), partitions) != home:
            message = f"the id {id!r} is of another partition than the subject {subject!r}"
            raise InvalidInput(f"{message}: leave out the id, and one is made that fits", id)
    return name


def in_context(context: Any, field: str) -> str | None:
    """Return the subject that a field of a context names; None if there is no such field."""
    value = context.get(field) if isinstance(context, Mapping) else None
    return None if value is None else str(value)


def with_subjects(decisions: Sequence[Decision], requests: Iterable[ParsedRequest]) -> list[Event]:
    """Return decisions as they are appended: with the subjects that they were made for."""
    return [
        *decisions,
        *[
            SubjectDecision(request.subject, decision.at_us, decision.id)
            for decision, request in zip(decisions, requests, strict=True)
            if request.subject is not None
        ],
    ]


def check_same(known: Decision, rows: Row, features: Features | None = None) -> None:
    """Refuse what is not a retry: another decision under the id of a known one.

    Args:
        known: the decision that stands under the id.
        rows: what is asked for now.
        features: that made these rows, if any did.

    Raises:
        InvalidInput: the chosen row is not among them at its place.
    """
    x: Row | None = known.x
    if features is not None and known.context[:NAME] != name_of(features.fingerprint):
        encoder = RowEncoder(features)
        x = None if encoder.lacks_fields(known) else encoder.row(known)
    if x is None:  # chosen by other features, which alone can tell
        return
    if known.index < len(rows) and np.array_equal(rows[known.index], x):
        return
    if x is not known.x and (rows == x).all(axis=1).any():  # its place may have changed, too
        return
    message = f"the id {known.id!r} was used for another decision: ids name one decision each"
    raise InvalidInput(message, known.id)
