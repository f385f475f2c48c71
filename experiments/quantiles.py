"""A quantile of a sample, with an interval that assumes nothing of its law."""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy.stats import binom


def quantile(values: Any, level: float = 0.95) -> tuple[float, float, float]:
    """The quantile and its 95 % interval, by the ranks between which it lies.

    How many of n values lie below the true quantile is binomial. The ends are the order statistics
    at the 2.5 % and 97.5 % points of that law: where n is small, the upper one is the maximum.
    """
    ordered = np.sort(np.asarray(values, dtype=np.float64))
    low, high = binom.ppf([0.025, 0.975], len(ordered), level).astype(int)
    last = len(ordered) - 1
    middle = float(np.quantile(ordered, level))
    return middle, float(ordered[min(max(low - 1, 0), last)]), float(ordered[min(high, last)])
