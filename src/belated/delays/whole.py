"""From times to whole rounds, and the sums over them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from belated.core.inputs import Vector
from belated.exceptions import InvalidInput

#: The delay of a reward that never comes: beyond any horizon, and t + NEVER fits an int64.
NEVER: int = 2**62

#: Terms of a mean that are added one by one; the rest is an integral.
HEAD = 1 << 16


def as_rounds(value: Any, name: str, least: int = 0) -> int:
    """A whole number of rounds, at most NEVER."""
    whole = isinstance(value, int | np.integer) and not isinstance(value, bool)
    if not (whole and least <= value <= NEVER):
        message = f"{name} is {value!r}: a whole number from {least} to 2**62 was expected"
        raise InvalidInput(message, value)
    return int(value)


def rounded_down(time: Any) -> NDArray[np.int64]:
    """Times as whole rounds, rounded down; what is beyond NEVER never comes."""
    return np.asarray(np.minimum(np.floor(time), NEVER), dtype=np.int64)


def rounded_up(time: Any) -> NDArray[np.int64]:
    """Times as whole rounds, rounded up; at least 1, as a time of 0 has probability 0."""
    return np.asarray(np.clip(np.ceil(time), 1, NEVER), dtype=np.int64)


def as_uniforms(u: Any) -> Vector:
    """Numbers in [0, 1), where quantiles are asked for."""
    values = np.asarray(u, dtype=np.float64)
    outside = ~((values >= 0.0) & (values < 1.0))
    if outside.any():
        value = float(values[outside].flat[0])
        raise InvalidInput(f"u is {value}: quantiles are asked for in [0, 1)", value)
    return values


def tail_at(i: Any, tail: Callable[[Vector], Vector]) -> Vector:
    """P(D ≥ i) from a formula for i ≥ 1; it is 1 below."""
    rounds = np.ceil(np.asarray(i, dtype=np.float64))
    with np.errstate(over="ignore", under="ignore", divide="ignore"):
        return np.where(rounds > 0, tail(np.maximum(rounds, 1.0)), 1.0)


def mean_of(tail: Callable[[Vector], Vector], integral: Callable[[float], float]) -> float:
    """The mean Σ P(D ≥ i), from the tail and its integral from any point to infinity.

    Beyond the head the sum is the integral from half a round earlier, by the midpoint rule. The
    tail is so flat there that the two differ by less than 1e-10 of the mean.
    """
    head = np.arange(1.0, HEAD + 1)
    return float(tail(head).sum() + integral(HEAD + 0.5))
