"""A quantile of a sample, with a distribution-free interval."""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy.stats import binom


def quantile(values: Any, level: float = 0.95) -> tuple[float, float, float]:
    """Return the quantile and its 95 % interval, from order statistics.

    The number of values below the true quantile is binomial. The ends are the order statistics at
    the 2.5 % and 97.5 % points of that law; for small samples, the upper one is the maximum.
    """
    ordered = np.sort(np.asarray(values, dtype=np.float64))
    low, high = binom.ppf([0.025, 0.975], len(ordered), level).astype(int)
    last = len(ordered) - 1
    middle = float(np.quantile(ordered, level))
    return middle, float(ordered[min(max(low - 1, 0), last)]), float(ordered[min(high, last)])
