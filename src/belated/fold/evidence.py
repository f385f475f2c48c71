"""What a fold has seen, for the checks of :mod:`belated.advice`."""

from __future__ import annotations

from functools import partial

import numpy as np

from belated.advice import NUMBERS, ROWS, SAMPLE, Evidence
from belated.core.rewards import ConversionsOnly
from belated.fold.entries import State
from belated.fold.fold import Fold
from belated.fold.sample import sampled


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
        rows.append(table[known])
        at.append(first + some[known])
        first += len(one.numbers)
    conversions = isinstance(fold.rewards, ConversionsOnly)
    state = np.concatenate([one.state for one in samples])
    return Evidence(
        family=policy.family,
        ridge=float(policy.start.precision.trace()) / policy.dim,
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
