"""Compare a few runs on other seeds with a committed table."""

from __future__ import annotations

import sys
from collections.abc import Sequence

import numpy as np
import pandas as pd

#: Tolerance of a mean, in standard deviations of the difference: exceeded by chance once in 15,000.
WIDTH = 4.0


def hold(new: pd.DataFrame, committed: pd.DataFrame, cell: Sequence[str], value: str) -> None:
    """Exit with an error if a cell's mean differs from that of the table.

    The mean of k new runs should be within 4 standard deviations of the table's mean, where the
    standard deviation of the difference is sd √(1/k + 1/n). Positive values are compared on a log
    scale: runs differ by a factor, and a single outlier would dominate the mean of a few.

    Args:
        new: rows of a few seeds that are not in the table.
        committed: the table.
        cell: the columns that identify a cell.
        value: the column to compare.
    """
    known_by_cell = dict(list(committed.groupby(list(cell))[value]))
    outside = 0
    for key, values in new.groupby(list(cell))[value]:
        reference = known_by_cell[key]
        is_positive = min(values.min(), reference.min()) > 0
        few, many = (np.log(x) if is_positive else x for x in (values, reference))
        spread = many.std() * (1 / len(few) + 1 / len(many)) ** 0.5
        deviation = (few.mean() - many.mean()) / max(spread, 1e-12)
        outside += abs(deviation) > WIDTH
        name = ", ".join(map(str, key))
        print(f"{name:<44} {values.mean():9.4g} {reference.mean():9.4g} {deviation:+5.1f}")
    if outside:
        sys.exit(f"{outside} cells differ: run sweep.py and analysis.py, and see what changed")
