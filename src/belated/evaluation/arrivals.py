"""Arrival weights: weight arrived rewards so that they also represent pending ones.

A reward with delay d can be observed only for decisions that are at least d old. The share of such
decisions, G(d), is known exactly, so the weight 1/G(d) corrects for pending rewards even if delays
depend on rewards. These are inverse probability of censoring weights (IPCW). Weights based on age,
1/F(age), would be biased in that case.
"""

from __future__ import annotations

from datetime import timedelta

import numpy as np

from belated.core.inputs import Vector
from belated.core.times import Duration, as_duration, duration_us
from belated.evaluation.table import DecisionTable


def arrival_weights(delay: Vector, age: Vector, among: Vector | None = None) -> Vector:
    """Return the weight 1/G(delay) of each arrived reward, and 0 for pending ones.

    Args:
        delay: time to the reward, infinite if it has not arrived.
        age: time since the decision.
        among: sampling weight of each decision; None means equal weights.

    >>> arrival_weights(np.array([1.0, 3.0, np.inf, np.inf]), np.array([4.0, 3.0, 2.0, 1.0]))
    array([1., 2., 0., 0.])
    """
    arrived = delay <= age
    order = np.argsort(age, kind="stable")
    counts = np.ones(len(age)) if among is None else among
    total = counts.sum()
    younger = np.concatenate([[0.0], np.cumsum(counts[order])])
    place = np.searchsorted(age[order], delay[arrived], side="left")
    weights = np.zeros(len(age))
    weights[arrived] = total / (total - younger[place])
    return weights


def within(delay: Vector, limit: float) -> Vector:
    """Return the delays, with those above a limit replaced by infinity."""
    return np.where(delay <= limit, delay, np.inf)


# --- the delays that count -----------------------------------------------------------------------


def reach_of(table: DecisionTable, limit: Duration | None) -> float:
    """Return the delay up to which rewards count: the limit, or the longest observable delay."""
    return table.reach if limit is None else min(_microseconds(limit), table.reach)


def final_age(table: DecisionTable, limit: Duration | None) -> float | None:
    """Return the age at which outcomes are final: the limit or the window, if any."""
    if limit is not None:
        return _microseconds(limit)
    window = table.rewards.window_us
    return None if window is None else float(window)


def estimand(what: str, table: DecisionTable, limit: Duration | None) -> str:
    """Describe the estimated quantity: ``what``, and which rewards count."""
    window, reach = table.rewards.window_us, reach_of(table, limit)
    if limit is None and window is not None and reach >= window:
        return what
    days = timedelta(microseconds=reach) / timedelta(days=1)
    return f"{what}, counting rewards within {days:.3g} days"


def _microseconds(limit: Duration) -> float:
    return float(duration_us(as_duration(limit, "limit")))
