"""A decision request as the decider takes it, and whether one repeats another."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
import numpy as np

from belated.events import Decision
from belated.exceptions import InvalidInput
from belated.inputs import Row


class ParsedRequest(msgspec.Struct, frozen=True, gc=False):
    """One decision request, checked; its rows lie in one table with those of the others.

    Attributes:
        n_rows: number of rows, one for each action.
        actions: names of the actions; None: their indices.
        id: the caller's decision id; None: the decider makes one.
        first_attempt: whether this id was never sent before.
        activated: whether the window starts at once.
    """

    n_rows: int
    actions: Sequence[int | str] | None = None
    id: str | None = None
    first_attempt: bool = False
    activated: bool = True


def check_same(known: Decision, rows: Row) -> None:
    """Refuse what is not a retry: another decision under the id of a known one.

    Args:
        known: the decision that stands under the id.
        rows: what is asked for now.

    Raises:
        InvalidInput: the chosen row is not among them at its place.
    """
    width = len(known.x)  # less than that of a row if features have grown since
    if known.index < len(rows):
        row = rows[known.index]
        if np.array_equal(row[:width], known.x) and not row[width:].any():
            return
    message = f"the id {known.id!r} was used for another decision: ids name one decision each"
    raise InvalidInput(message, known.id)
