"""Intervals that hold at all times: look as often as you like, and stop when you like.

Decisions are taken in the order they were made, as soon as their outcome is final. A gambler bets
that the mean is greater than ν; if it is not, the capital is multiplied by 1/α with probability α
at most, ever. So every ν at which that happens is rejected.
"""

from __future__ import annotations

import math

import numpy as np

from belated.core.inputs import Vector

#: Values of ν that are tried, at equal distances.
GRID = 400
#: The largest part of the capital that can be lost in one bet.
LARGEST = 0.75
#: The least variance a gambler believes in.
LEAST = 1e-4


def betting_interval(weighted: Vector, mirrored: Vector, level: float) -> tuple[float, float]:
    """Return bounds of a mean within [0, 1] that hold at all times.

    Args:
        weighted: importance weight times outcome of each decision, in order.
        mirrored: importance weight times 1 minus the outcome.
        level: of the interval.
    """
    alpha = 1.0 - level
    return lower_bound(weighted, alpha / 2), 1.0 - lower_bound(mirrored, alpha / 2)


def lower_bound(terms: Vector, alpha: float) -> float:
    """Return a bound below the mean of terms of at least 0, which holds at all times."""
    found = 0.0
    m, v = _running(terms)
    for step in range(1, GRID):
        nu = step / GRID
        if not _is_rejected(terms, m, v, nu, alpha):
            break
        found = nu
    return found


def is_rejected(terms: Vector, nu: float, alpha: float) -> bool:
    """Whether a mean of ``nu`` or less is rejected at any time.

    >>> is_rejected(np.ones(20), 0.5, alpha=0.05), is_rejected(np.full(20, 0.5), 0.5, alpha=0.05)
    (True, False)
    """
    return _is_rejected(terms, *_running(terms), nu, alpha)


def _running(terms: Vector) -> tuple[Vector, Vector]:
    """Mean and variance of what came before each term."""
    count = np.arange(1, len(terms) + 1)
    mean = (0.5 + np.cumsum(terms)) / (count + 1)
    spread = (0.25 + np.cumsum(np.square(terms - mean))) / (count + 1)
    before = np.concatenate([[0.5], mean])[:-1]
    return before, np.maximum(np.concatenate([[0.25], spread])[:-1], LEAST)


def _is_rejected(terms: Vector, m: Vector, v: Vector, nu: float, alpha: float) -> bool:
    ahead = np.maximum(m - nu, 0.0)
    bet = np.minimum(ahead / (v + np.square(ahead)), LARGEST / nu)
    capital = np.cumsum(np.log1p(bet * (terms - nu)))
    return bool(capital.max(initial=0.0) >= math.log(1.0 / alpha))


def sequence_width(variance: float, count: float, usual: float, alpha: float) -> float:
    """Return half the width of a confidence sequence of a mean, as a normal one would be.

    Args:
        variance: of the mean.
        count: how many it is of.
        usual: the count at which the sequence is as narrow as it can be.
        alpha: one minus the level.
    """
    best = -2.0 * math.log(alpha)
    rho2 = (best + math.log(best) + 1.0) / usual
    grown = count * rho2 + 1.0
    return math.sqrt(variance * 2.0 * grown / (count * rho2) * math.log(math.sqrt(grown) / alpha))
