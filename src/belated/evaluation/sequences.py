"""Confidence sequences: anytime-valid intervals, which hold however often you look at them.

A gambler bets that the mean is greater than ν. If it is not, the probability that the gambler's
capital ever grows by a factor of 1/α is at most α. Every ν for which it grows that much is
rejected.
"""

from __future__ import annotations

import math

import numpy as np
from scipy.special import logsumexp

from belated.core.inputs import Vector

#: Fraction of its capital that each bet can lose; the capital is divided equally among the bets.
BETS = 0.75 * 0.5 ** np.arange(14)


def betting_interval(
    weighted: Vector, mirrored: Vector, level: float, step: float
) -> tuple[float, float]:
    """Return anytime-valid bounds on a mean within [0, 1].

    Args:
        weighted: importance weight times outcome of each decision.
        mirrored: importance weight times 1 minus the outcome.
        level: confidence level of the interval.
        step: precision of the bounds, which are rounded outwards.
    """
    alpha = 1.0 - level
    return (
        _lower_bound(weighted, alpha / 2, step),
        1.0 - _lower_bound(mirrored, alpha / 2, step),
    )


def _lower_bound(terms: Vector, alpha: float, step: float) -> float:
    """Return an anytime-valid lower bound on the mean of non-negative terms."""
    low, high = 0.0, 1.0
    while high - low > step:
        middle = (low + high) / 2.0
        if is_rejected(terms, middle, alpha):
            low = middle
        else:
            high = middle
    return low


def is_rejected(terms: Vector, nu: float, alpha: float) -> bool:
    """Return whether a mean of ``nu`` or less is rejected.

    >>> is_rejected(np.ones(20), 0.5, alpha=0.05), is_rejected(np.full(20, 0.5), 0.5, alpha=0.05)
    (True, False)
    """
    gains = terms[terms > 0.0] / nu - 1.0
    losses = (len(terms) - len(gains)) * np.log1p(-BETS)
    capital = [float(np.log1p(bet * gains).sum()) for bet in BETS.tolist()] + losses
    return bool(logsumexp(capital) - math.log(len(BETS)) >= math.log(1.0 / alpha))


def sequence_width(variance: float, count: float, usual: float, alpha: float) -> float:
    """Return half the width of a confidence sequence for a mean, by the normal approximation.

    Args:
        variance: variance of the mean.
        count: number of values averaged.
        usual: the count for which the sequence is optimized.
        alpha: one minus the confidence level.
    """
    best = -2.0 * math.log(alpha)
    rho2 = (best + math.log(best) + 1.0) / usual
    grown = count * rho2 + 1.0
    return math.sqrt(variance * 2.0 * grown / (count * rho2) * math.log(math.sqrt(grown) / alpha))
