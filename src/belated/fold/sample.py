"""Some decisions of a ledger, evenly spread over all that it remembers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import islice

import numpy as np
from numpy.typing import NDArray

from belated.core.inputs import Vector
from belated.fold.entries import State
from belated.fold.ledger import Ledger
from belated.fold.table import NONE

#: Of decisions whose rewards are told in parts, how many are asked for the last one.
LAST = 1_000


@dataclass(frozen=True, eq=False)
class Sample:
    """Some decisions; dormant and voided ones are left out.

    Attributes:
        numbers: by which the ledger's listener knows them.
        state: what they have come to.
        recorded: when the journal took them.
        rewarded: when it first took their reward; -1 if there is none.
        value: what is learned of them, if anything is.
        now: the last time that the ledger knows.
        latest: when the last reward came of all decisions; -1 if none has.
    """

    numbers: NDArray[np.int64]
    state: NDArray[np.uint8]
    recorded: NDArray[np.int64]
    rewarded: NDArray[np.int64]
    value: Vector
    now: int
    latest: int


def sampled(ledger: Ledger, choose: Callable[[int], NDArray[np.int64]]) -> Sample:
    """Some decisions of a ledger.

    Args:
        ledger: that remembers them.
        choose: gives the places to look at, of so many.
    """
    table, facts, size = ledger._table, ledger._facts, len(ledger._table)
    told = table.column("told_recorded")
    parts = (one.rewarded for one in islice(reversed(facts.values()), LAST))
    latest = max(int(told.max(initial=NONE)), *(one for one in parts if one is not None), NONE)
    last = table.recorded[size - 1] if size else 0
    now = max(last, latest, ledger.watermark)
    at = choose(size)
    state = table.column("state")[at]
    counts = (state != State.DORMANT) & (state != State.VOIDED)
    at, state = at[counts], state[counts]
    rewarded = told[at]
    # The table does not know when a reward came that has parts.
    for i in np.flatnonzero((state == State.REWARDED) & (rewarded == NONE)):
        found = facts.get(table.base + int(at[i]))
        if found is not None and found.rewarded is not None:
            rewarded[i] = found.rewarded
    return Sample(
        numbers=table.base + at,
        state=state,
        recorded=table.column("recorded")[at],
        rewarded=np.where(state == State.REWARDED, rewarded, NONE),
        value=table.column("value")[at],
        now=now,
        latest=latest,
    )
