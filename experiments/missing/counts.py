"""How many rewards are missing on simulated paths: in the last round, and at most in any."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

import numpy as np
import pandas as pd

from experiments.missing.processes import HORIZON, PROCESSES
from experiments.parallel import Rows
from tests.missing import outstanding

#: G_T of the last round T, and the largest G_t of the rounds up to it.
LAST, MOST = "last", "most"


def count(name: str, seeds: Iterable[int]) -> Rows:
    """How many of these paths, one for each seed, have each number missing."""
    counts: Counter[tuple[str, int]] = Counter()
    for seed in seeds:
        missing = outstanding(PROCESSES[name].sample(HORIZON, np.random.default_rng(seed)))
        counts.update([(LAST, int(missing[-1])), (MOST, int(missing.max()))])
    return [
        {"process": name, "what": key, "missing": missing, "paths": paths}
        for (key, missing), paths in sorted(counts.items())
    ]


def each(table: pd.DataFrame) -> pd.DataFrame:
    """A row for each path instead of a count of them."""
    return table.loc[table.index.repeat(table["paths"])]
