"""Reward per decision of decisions of any age, those of today too.

A decision counts with the share of its reward that has come by its age, so that young ones are
neither left out nor taken for failures. That share is of the delay curve, so delays are taken to be
alike; where the whole time is looked at, :func:`belated.evaluation.earned` needs no such thing.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from belated.evaluation.table import Mask
from belated.report.data.facts import Facts
from belated.report.data.numbers import Z, short


class Matched:
    """The age-matched reward per decision of any decisions."""

    def __init__(self, facts: Facts) -> None:
        self._base = facts.base
        self._outcome, self._exposure = facts.outcome, facts.exposure
        came = facts.table.arrived
        square = np.square(self._outcome[came])
        # Where none has come the error is that of one: not zero.
        self._one = float(square.mean()) if came.any() else 0.0
        self.least = 0.0 if facts.evaluation.family.support.lower >= 0.0 else -math.inf

    def ratio(self, which: Mask) -> tuple[float, float]:
        """The reward per decision, and its standard error; not numbers if none is old enough."""
        outcome, exposure = self._outcome[which], self._exposure[which]
        total = float(exposure.sum())
        if total <= 0.0:
            return math.nan, math.nan
        mean = float(outcome.sum()) / total
        spread = float(np.square(outcome - mean * exposure).sum())
        return self._base + mean, math.sqrt(max(spread, self._one)) / total

    def row(self, which: Mask) -> dict[str, Any]:
        """The same with its interval, as a row of data."""
        value, error = self.ratio(which)
        low = max(value - Z * error, self.least) if math.isfinite(value) else math.nan
        high = value + Z * error
        return {"p": short(value), "lo": short(low), "hi": short(high), "n": int(which.sum())}
