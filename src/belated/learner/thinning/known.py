"""What a fit is of: all decisions with what is known of them at one time."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from belated.estimators.conversion_law import Conversions
from belated.estimators.thinned import AgedDecisions, DecidedRows
from belated.inputs import Row, Vector
from belated.learner.forgetting.sums import shares_at
from belated.learner.forgetting.tracks import REACH
from belated.learner.thinning.deliveries import Deliveries
from belated.learner.thinning.times import REMOVED, SILENT, ConversionTimes
from belated.statistics import Observations

#: What happens within one tick of the clock has one stamp, so all ages and delays are one longer: a
#: conversion with the stamp of its decision took up to a microsecond.
TICK = 1
#: Pending decisions: when they began, and their rows.
Outstanding = tuple[NDArray[np.int64], Row]


class Fading(NamedTuple):
    """What decisions count for by now.

    Attributes:
        now: the time.
        half_life: after which a decision counts for half, in the same unit.
    """

    now: int
    half_life: int

    @property
    def oldest(self) -> int:
        """Decisions up to then count no longer."""
        return self.now - REACH * self.half_life


def told_in(
    times: Sequence[ConversionTimes],
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return when conversions were reported, in order, and when their decisions took effect."""
    told = np.concatenate([one.told for one in times])
    began = np.concatenate([one.began for one in times])
    told, began = told[told != SILENT], began[told != SILENT]
    order = np.lexsort((began, told))
    return told[order], began[order]


def decided(
    learned: Sequence[tuple[Observations, ConversionTimes]],
    pending: Sequence[Outstanding],
    window: int,
    until: int,
    batches: Deliveries | None,
    fading: Fading | None = None,
) -> AgedDecisions:
    """Return all decisions as they are known.

    Args:
        learned: decisions that have converted or whose window has ended, by partition.
        pending: all others, by partition.
        window: in microseconds.
        until: the time up to which ages count.
        batches: the deliveries, if conversions come in batches: what is told after ``until`` is not
            known yet.
        fading: what decisions count for; None: all count in full.
    """
    parts, began, came = [], [], []
    for store, times in learned:
        start = 0 if fading is None else times.first_after(fading.oldest)
        here = times.began[start:] != REMOVED
        its, told = times.began[start:][here], times.told[start:][here]
        rows, y = store.since(start)
        if batches is not None:
            y = np.where(told <= until, y, 0.0)
        known = (told != SILENT) & (told <= until) & (told - its <= window)
        parts.append(_aged(its, rows, y, window, until, fading))
        began.append(its[known])
        came.append(told[known])
    for its, rows in pending:
        parts.append(_aged(its, rows, np.zeros(len(rows)), window, until, fading))
    dim = parts[0].rows.shape[1]
    both = np.concatenate(began), np.concatenate(came)
    seen = _conversions(*both, window, until, batches, fading)
    return AgedDecisions(dim, parts, seen, TICK / window)


def _aged(
    began: NDArray[np.int64], rows: Row, y: Vector, window: int, until: int, fading: Fading | None
) -> DecidedRows:
    if fading is None:
        return DecidedRows(rows, y, (until - began + TICK) / window)
    recent = began > fading.oldest
    if not recent.all():
        began, rows, y = began[recent], rows[recent], y[recent]
    return DecidedRows(rows, y, (until - began + TICK) / window, shares_at(began, *fading))


def _conversions(
    began: NDArray[np.int64],
    came: NDArray[np.int64],
    window: int,
    until: int,
    batches: Deliveries | None,
    fading: Fading | None,
) -> Conversions:
    if fading is not None:
        recent = began > fading.oldest
        began, came = began[recent], came[recent]
    weight = None if fading is None else shares_at(began, *fading)
    delay = (np.maximum(came - began, 0) + TICK) / window
    age = np.minimum((until - began + TICK) / window, 1.0)
    if batches is None:
        return Conversions(delay, np.zeros(len(delay)), age, weight)
    # It has happened since the delivery before.
    which = np.searchsorted(batches.starts, came, side="right") - 1
    before = np.where(which > 0, batches.ends[which - 1], 0)
    after = np.clip((before - began) / window, 0.0, delay)
    return Conversions(after, delay - after, age, weight)
