"""The probability with which a bound may fail, and how the rounds of a horizon share it."""

from __future__ import annotations

import math

from belated.core.inputs import as_probability
from belated.delays.whole import as_rounds


def log_level(delta: float) -> float:
    """log 1/δ."""
    return -math.log(as_probability(delta, "delta"))


def log_rounds(horizon: int) -> float:
    """log T."""
    return math.log(as_rounds(horizon, "horizon", least=1))


def per_round(delta: float, horizon: int) -> float:
    """δ/T: if each of T rounds fails no more often, all together fail with δ at most."""
    return as_probability(delta, "delta") / as_rounds(horizon, "horizon", least=1)
