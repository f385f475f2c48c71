"""Collect the data from a fold that the checks in :mod:`belated.advice` need."""

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
    """Return the data that the checks need, without changing the fold.

    Args:
        fold: the fold.
        duplicates: number of events that this process did not append, because they were already in
            the journal.
    """
    policy, counts, counters = fold.policy, fold.counts, fold.counters
    partitions = len(fold.ledgers)
    most = min(ROWS, max(ROWS // 8, NUMBERS // policy.dim)) // partitions
    choose = partial(Evidence.spread, count=SAMPLE // partitions)
    samples = [sampled(ledger, choose) for ledger in fold.ledgers.values()]
    rows, at, first = [], [], 0
    for adapter, sample in zip(fold.adapters.values(), samples, strict=True):
        indices = Evidence.spread(len(sample.numbers), most)
        sample_rows, has_row = adapter.rows_of(sample.numbers[indices])
        rows.append(unblocked(sample_rows[has_row], policy.blocks).astype(np.float32))
        at.append(first + indices[has_row])
        first += len(sample.numbers)
    conversions = isinstance(fold.rewards, ConversionsOnly)
    state = np.concatenate([sample.state for sample in samples])
    return Evidence(
        family=policy.family,
        ridge=float(diagonal(policy.start.precision).mean()),
        window=fold.rewards.window_us,
        defaults=fold.rewards.on_timeout == "defaulted",
        now=max(sample.now for sample in samples),
        latest=max(sample.latest for sample in samples),
        decisions=sum(counts.values()) - counts["dormant"] - counts["voided"],
        pending=counts["pending"],
        together=policy.learns_after is not None,
        rewards=sum(counters.get(status, 0) for status in ("rewarded", "late", "revised")),
        duplicates=counters.get("duplicate", 0) + duplicates,
        unmatched=counters.get("unmatched", 0),
        made=np.concatenate([sample.recorded for sample in samples]),
        arrived=np.concatenate([sample.rewarded for sample in samples]),
        value=np.concatenate([sample.value for sample in samples]),
        learned=(state == State.REWARDED) | (state == State.DEFAULTED),
        rows=np.concatenate(rows),
        at=np.concatenate(at),
        on_arrival=not conversions and getattr(fold.rewards, "learn", "on arrival") == "on arrival",
        conversions=conversions,
    )


#: Number of decisions with rewards in parts to search for the latest reward.
LAST = 1_000


@dataclass(frozen=True, eq=False)
class Sample:
    """A sample of decisions, excluding dormant and voided ones.

    Times are in microseconds since 1970.

    Attributes:
        numbers: the number of each decision in the ledger.
        state: the state of each decision.
        recorded: when each decision was recorded.
        rewarded: when the first reward of each decision was recorded; -1 if it has none.
        value: the value that the model learns from each decision, if any.
        now: the latest time in the ledger.
        latest: when the last reward of any decision was recorded; -1 if there is none.
    """

    numbers: NDArray[np.int64]
    state: NDArray[np.uint8]
    recorded: NDArray[np.int64]
    rewarded: NDArray[np.int64]
    value: Vector
    now: int
    latest: int


def sampled(ledger: Ledger, choose: Callable[[int], NDArray[np.int64]]) -> Sample:
    """Sample the decisions of a ledger.

    Args:
        ledger: the ledger.
        choose: function that returns the indices to sample, given the number of decisions.
    """
    table, facts, size = ledger._table, ledger._facts, len(ledger._table)
    reward_recorded = table.column("reward_recorded")
    with_parts = (entry.rewarded for entry in islice(reversed(facts.values()), LAST))
    times = [time for time in with_parts if time is not None]
    latest = max(int(reward_recorded.max(initial=NONE)), *times, NONE)
    last = table.recorded[size - 1] if size else 0
    now = max(last, latest, ledger.watermark)
    indices = choose(size)
    state = table.column("state")[indices]
    counts = (state != State.DORMANT) & (state != State.VOIDED)
    indices, state = indices[counts], state[counts]
    rewarded = reward_recorded[indices]
    # The table does not store when rewards with parts were recorded.
    for i in np.flatnonzero((state == State.REWARDED) & (rewarded == NONE)):
        entry = facts.get(table.base + int(indices[i]))
        if entry is not None and entry.rewarded is not None:
            rewarded[i] = entry.rewarded
    return Sample(
        numbers=table.base + indices,
        state=state,
        recorded=table.column("recorded")[indices],
        rewarded=np.where(state == State.REWARDED, rewarded, NONE),
        value=table.column("value")[indices],
        now=now,
        latest=latest,
    )
