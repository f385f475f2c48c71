"""What a fold has seen, for the checks of :mod:`belated.advice`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from itertools import islice

import numpy as np
from numpy.typing import NDArray

from belated.advice import NUMBERS, ROWS, SAMPLE, Evidence
from belated.core.inputs import Vector
from belated.core.rewards import ConversionsOnly
from belated.fold.fold import Fold
from belated.fold.ledger import Ledger
from belated.fold.rules import State
from belated.fold.table import NONE
from belated.model.blocks import diagonal, unblocked


def evidence_of(fold: Fold, duplicates: int = 0) -> Evidence:
    """Read what the checks need; nothing that is learned changes.

    Args:
        fold: the state.
        duplicates: events of this process that were not appended, for the journal had them.
    """
    policy, counts, counters = fold.policy, fold.counts, fold.counters
    partitions = len(fold.ledgers)
    most = min(ROWS, max(ROWS // 8, NUMBERS // policy.dim)) // partitions
    places = partial(Evidence.spread, count=SAMPLE // partitions)
    samples = [sampled(ledger, places) for ledger in fold.ledgers.values()]
    rows, at, first = [], [], 0
    for adapter, one in zip(fold.adapters.values(), samples, strict=True):
        some = Evidence.spread(len(one.numbers), most)
        table, known = adapter.rows_of(one.numbers[some])
        rows.append(unblocked(table[known], policy.blocks).astype(np.float32))
        at.append(first + some[known])
        first += len(one.numbers)
    conversions = isinstance(fold.rewards, ConversionsOnly)
    state = np.concatenate([one.state for one in samples])
    return Evidence(
        family=policy.family,
        ridge=float(diagonal(policy.start.precision).mean()),
        window=fold.rewards.window_us,
        defaults=fold.rewards.on_timeout == "defaulted",
        now=max(one.now for one in samples),
        latest=max(one.latest for one in samples),
        decisions=sum(counts.values()) - counts["dormant"] - counts["voided"],
        pending=counts["pending"],
        together=policy.learns_after is not None,
        rewards=sum(counters.get(status, 0) for status in ("rewarded", "late", "revised")),
        duplicates=counters.get("duplicate", 0) + duplicates,
        unmatched=counters.get("unmatched", 0),
        made=np.concatenate([one.recorded for one in samples]),
        came=np.concatenate([one.rewarded for one in samples]),
        value=np.concatenate([one.value for one in samples]),
        learned=(state == State.REWARDED) | (state == State.DEFAULTED),
        rows=np.concatenate(rows),
        at=np.concatenate(at),
        on_arrival=not conversions and getattr(fold.rewards, "learn", "on arrival") == "on arrival",
        conversions=conversions,
    )


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
    told = table.column("reward_recorded")
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
