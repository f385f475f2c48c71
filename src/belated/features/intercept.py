"""A trap, and the warning before it."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np

from belated.exceptions import InterceptWarning
from belated.families import Family, Gaussian
from belated.features.protocol import Features
from belated.inputs import Row, as_rewards, as_rows

#: Rows that are looked at, besides a few for each column.
ROWS = 1_000


def warn_missing_intercept(source: Features | Any, family: Family, rewards: Any) -> None:
    """Warn if 0/1 rewards are learned as Gaussian from rows without an intercept.

    The mean of such rewards is not zero, and without an intercept the other columns must make up
    for it: the estimate is then wrong everywhere. A logistic model has no such trap.

    Rows have an intercept if some weighted sum of their columns is 1 everywhere: a constant
    column, or one indicator for each action. With fewer rows than columns that cannot be told, and
    there is no warning.

    Args:
        source: rows; or features, which only say whether they add an intercept of their own.
        family: of the rewards.
        rewards: that have come so far. They count as 0/1 when both occur, and nothing else.

    >>> from belated.families import Bernoulli
    >>> import warnings
    >>> rows = np.random.default_rng(0).normal(size=(50, 3))
    >>> rewards = np.arange(50) % 2
    >>> with warnings.catch_warnings(record=True) as caught:
    ...     warnings.simplefilter("always")
    ...     warn_missing_intercept(rows, Bernoulli(), rewards)
    ...     warn_missing_intercept(rows, Gaussian(), rewards)
    >>> [warning.category.__name__ for warning in caught]
    ['InterceptWarning']
    """
    if not isinstance(family, Gaussian):
        return
    values = np.unique(as_rewards(rewards, len(rewards)))
    if values.tolist() != [0.0, 1.0]:
        return
    if isinstance(source, Features):
        missing = getattr(source, "intercept", None) is False
    else:
        missing = not _has_intercept(as_rows(source, np.shape(source)[-1]))
    if missing:
        message = (
            "rewards of 0 and 1 are learned as Gaussian, and the rows have no intercept: add a "
            "column of ones (intercept=True), use Bernoulli(), or subtract the mean reward"
        )
        warnings.warn(message, InterceptWarning, stacklevel=2)


def _has_intercept(rows: Row) -> bool:
    if not len(rows):
        return True
    constant = (rows == rows[0]).all(axis=0) & (rows[0] != 0)
    if constant.any():
        return True
    step = max(1, len(rows) // (ROWS + 4 * rows.shape[1]))
    some = rows[::step].astype(np.float64)
    ones = np.ones(len(some))
    weights = np.linalg.lstsq(some, ones, rcond=None)[0]
    return bool(np.max(np.abs(some @ weights - ones)) <= 1e-3)
