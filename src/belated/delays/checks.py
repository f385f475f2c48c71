"""What the constructors of delays refuse, by name and value."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from belated.core.inputs import Matrix
from belated.delays.process import Law
from belated.delays.whole import NEVER
from belated.exceptions import InvalidInput


def as_share(value: Any, name: str) -> float:
    """A probability below 1."""
    try:
        share = float(value)
    except (TypeError, ValueError):
        share = float("nan")
    if not 0.0 <= share < 1.0:
        message = f"{name} is {value!r}: a probability from 0 to below 1 was expected"
        raise InvalidInput(message, value)
    return share


def as_law(value: Any, name: str) -> Law:
    """A law of independent delays: what has quantiles."""
    if not callable(getattr(value, "quantile", None)):
        message = f"{name} is {value!r}: a law with quantiles was expected, such as Geometric"
        raise InvalidInput(message, value)
    law: Law = value
    return law


def as_delays(values: Any, name: str) -> NDArray[np.int64]:
    """A list of delays, rounded up; infinity is NEVER."""
    try:
        array = np.asarray(values, dtype=np.float64)
    except (TypeError, ValueError):
        raise InvalidInput(f"{name} is not a list of numbers", values) from None
    if array.ndim != 1 or array.size == 0:
        message = f"{name} has shape {array.shape}: a list of at least one delay was expected"
        raise InvalidInput(message, values)
    bad = ~(array >= 0.0)
    if bad.any():
        at = int(bad.argmax())
        message = f"{name}[{at}] is {array[at]}: a delay is not negative"
        raise InvalidInput(message, float(array[at]))
    delays = np.minimum(np.ceil(array), NEVER).astype(np.int64)
    delays.flags.writeable = False
    return delays


def as_transition(matrix: Any) -> Matrix:
    """A square matrix of probabilities whose rows sum to 1."""
    try:
        table = np.array(matrix, dtype=np.float64)
    except (TypeError, ValueError):
        raise InvalidInput("transition is not a matrix of numbers", matrix) from None
    if table.ndim != 2 or table.shape[0] != table.shape[1] or table.size == 0:
        message = f"transition has shape {table.shape}: a square matrix was expected"
        raise InvalidInput(message, matrix)
    bad = ~((table >= 0.0) & (table <= 1.0))
    if bad.any():
        row, column = (int(at) for at in np.argwhere(bad)[0])
        message = f"transition[{row}, {column}] is {table[row, column]}: not a probability"
        raise InvalidInput(message, float(table[row, column]))
    sums = table.sum(axis=1)
    off = np.abs(sums - 1.0) > 1e-9
    if off.any():
        row = int(off.argmax())
        message = f"row {row} of transition sums to {sums[row]:.12g}, not to 1"
        raise InvalidInput(message, matrix)
    table /= sums[:, None]
    table.flags.writeable = False
    return table
