"""A few runs on other seeds, held against a committed table."""

from __future__ import annotations

import sys
from collections.abc import Sequence

import numpy as np
import pandas as pd

#: A mean may be off by this many standard deviations of the difference: 1 in 15,000 by chance.
WIDTH = 4.0


def hold(new: pd.DataFrame, committed: pd.DataFrame, cell: Sequence[str], value: str) -> None:
    """End with an error if a cell's mean is not within the interval of the table's.

    The mean of k new runs should lie within the table's mean ± 4 standard deviations of their
    difference, sd √(1/k + 1/n). Positive values are compared by their logarithms: runs differ by a
    factor, and one that goes astray would decide the mean of a few.

    Args:
        new: rows of a few seeds that the table has not seen.
        committed: the table.
        cell: the columns that name a cell.
        value: the column that is compared.
    """
    known_by_cell = dict(list(committed.groupby(list(cell))[value]))
    outside = 0
    for key, values in new.groupby(list(cell))[value]:
        known = known_by_cell[key]
        is_positive = min(values.min(), known.min()) > 0
        few, many = (np.log(one) if is_positive else one for one in (values, known))
        spread = many.std() * (1 / len(few) + 1 / len(many)) ** 0.5
        away = (few.mean() - many.mean()) / max(spread, 1e-12)
        outside += abs(away) > WIDTH
        name = ", ".join(map(str, key))
        print(f"{name:<44} {values.mean():9.4g} {known.mean():9.4g} {away:+5.1f}")
    if outside:
        sys.exit(f"{outside} cells are outside: run sweep.py and analysis.py, and see what changed")
