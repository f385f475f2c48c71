"""How many rewards are missing on simulated paths: in the last round, and at most in any."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from experiments.missing.processes import HORIZON, PROCESSES
from experiments.parallel import Rows

#: G_T of the last round T, and the largest G_t of the rounds up to it.
LAST, MOST = "last", "most"


def outstanding(delay: NDArray[np.int64]) -> NDArray[np.int64]:
    """G_t of the rounds 1 to T: t - 1 less the rewards of the rounds s with s + D_s ≤ t - 1."""
    horizon = len(delay)
    arrival = np.arange(1, horizon + 1) + delay
    arrived = np.bincount(arrival[arrival < horizon], minlength=horizon)
    return np.arange(horizon) - np.cumsum(arrived)


def count(name: str, seeds: Iterable[int]) -> Rows:
    """How many of these paths, one for each seed, have each number missing."""
    found: Counter[tuple[str, int]] = Counter()
    for seed in seeds:
        missing = outstanding(PROCESSES[name].sample(HORIZON, np.random.default_rng(seed)))
        found.update([(LAST, int(missing[-1])), (MOST, int(missing.max()))])
    return [
        {"process": name, "what": what, "missing": missing, "paths": paths}
        for (what, missing), paths in sorted(found.items())
    ]


def each(table: pd.DataFrame) -> pd.DataFrame:
    """A row for each path instead of a count of them."""
    return table.loc[table.index.repeat(table["paths"])]
