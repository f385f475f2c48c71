"""What has arrived stands for what has not: weights by delay.

A reward of delay d is seen only of decisions that are at least d old. G(d), the share of these, is
known exactly; so 1/G(d) makes what has arrived whole again, also where delays depend on rewards.
Weights by age, 1/F(age), do not.
"""

from __future__ import annotations

from datetime import timedelta

import numpy as np

from belated.core.inputs import Vector
from belated.core.times import Duration, as_duration, duration_us
from belated.evaluation.table import DecisionTable


def arrival_weights(delay: Vector, age: Vector, among: Vector | None = None) -> Vector:
    """Return 1/G(delay) for what has arrived, and 0 for what has not.

    Args:
        delay: time to the reward, infinite if none has come.
        age: time since the decision.
        among: how much each decision counts; all the same if None.

    >>> arrival_weights(np.array([1.0, 3.0, np.inf, np.inf]), np.array([4.0, 3.0, 2.0, 1.0]))
    array([1., 2., 0., 0.])
    """
    here = delay <= age
    order = np.argsort(age, kind="stable")
    counts = np.ones(len(age)) if among is None else among
    total = counts.sum()
    younger = np.concatenate([[0.0], np.cumsum(counts[order])])
    place = np.searchsorted(age[order], delay[here], side="left")
    weights = np.zeros(len(age))
    weights[here] = total / (total - younger[place])
    return weights


def within(delay: Vector, limit: float) -> Vector:
    """Delays, with those beyond a limit as if they never came."""
    return np.where(delay <= limit, delay, np.inf)


# --- how long a reward may take ------------------------------------------------------------------


def reach_of(table: DecisionTable, limit: Duration | None) -> float:
    """Return the delay up to which rewards count: the limit, as far as it can be seen."""
    return table.reach if limit is None else min(_microseconds(limit), table.reach)


def final_age(table: DecisionTable, limit: Duration | None) -> float | None:
    """Return the age at which an outcome is final: the limit or the window; None if neither is."""
    if limit is not None:
        return _microseconds(limit)
    window = table.rewards.window_us
    return None if window is None else float(window)


def estimand(what: str, table: DecisionTable, limit: Duration | None) -> str:
    """Return what is estimated, in words: ``what``, and which rewards count."""
    window, reach = table.rewards.window_us, reach_of(table, limit)
    if limit is None and window is not None and reach >= window:
        return what
    days = timedelta(microseconds=reach) / timedelta(days=1)
    return f"{what}, by rewards within {days:.3g} days"


def _microseconds(limit: Duration) -> float:
    return float(duration_us(as_duration(limit, "limit")))
