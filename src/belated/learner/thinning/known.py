"""What a fit is of: all decisions with what is known of them at one time."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from belated.estimators.conversion_law import Conversions
from belated.estimators.thinned import AgedDecisions, DecidedRows
from belated.inputs import Row
from belated.learner.thinning.deliveries import Deliveries
from belated.learner.thinning.times import REMOVED, SILENT, ConversionTimes
from belated.statistics import Observations

#: Pending decisions: when they began, and their rows.
Outstanding = tuple[NDArray[np.int64], Row]


def told_in(times: Sequence[ConversionTimes]) -> NDArray[np.int64]:
    """Return when conversions were reported, in order."""
    told = np.concatenate([one.told for one in times])
    return np.sort(told[told != SILENT])


def decided(
    learned: Sequence[tuple[Observations, ConversionTimes]],
    pending: Sequence[Outstanding],
    window: int,
    until: int,
    batches: Deliveries | None,
) -> AgedDecisions:
    """Return all decisions as they are known.

    Args:
        learned: decisions that have converted or whose window has ended, by partition.
        pending: all others, by partition.
        window: in microseconds.
        until: the time up to which ages count.
        batches: the deliveries, if conversions come in batches: what is told after ``until`` is not
            known yet.
    """
    parts, began, came = [], [], []
    for store, times in learned:
        here = times.began != REMOVED
        its, told = times.began[here], times.told[here]
        rows, y = store.since(0)
        if batches is not None:
            y = np.where(told <= until, y, 0.0)
        parts.append(DecidedRows(rows, y, (until - its) / window))
        known = (told != SILENT) & (told <= until) & (told - its <= window)
        began.append(its[known])
        came.append(told[known])
    for its, rows in pending:
        parts.append(DecidedRows(rows, np.zeros(len(rows)), (until - its) / window))
    dim = parts[0].rows.shape[1]
    both = np.concatenate(began), np.concatenate(came)
    return AgedDecisions(dim, parts, _conversions(*both, window, until, batches))


def _conversions(
    began: NDArray[np.int64],
    came: NDArray[np.int64],
    window: int,
    until: int,
    batches: Deliveries | None,
) -> Conversions:
    delay = np.maximum(came - began, 0) / window
    age = np.minimum((until - began) / window, 1.0)
    if batches is None:
        return Conversions(delay, np.zeros(len(delay)), age)
    # It has happened since the delivery before.
    which = np.searchsorted(batches.starts, came, side="right") - 1
    before = np.where(which > 0, batches.ends[which - 1], 0)
    after = np.clip((before - began) / window, 0.0, delay)
    return Conversions(after, delay - after, age)
