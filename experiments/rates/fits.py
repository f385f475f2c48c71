"""Laws of growth, fitted to means over seeds, with 95 % intervals from resampling the seeds.

Values are tables with a row for each seed and a column for each x. A law is fitted to the means of
the columns: an exponent by least squares of logarithms, the others by least squares with weights
1/se², so that what is measured well counts more. Resampling keeps the rows together, as they are
paired.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
RESAMPLES = 2000
#: The powers among which the best is sought.
POWERS = np.linspace(0.0, 2.0, 401)


@dataclass(frozen=True)
class Fit:
    """A number and its 95 % interval."""

    value: float
    low: float
    high: float

    def __format__(self, spec: str) -> str:
        spec = spec or ".2f"
        return f"{self.value:{spec}} [{self.low:{spec}}, {self.high:{spec}}]"


def resampled(values: Array, statistic: Callable[[Array], float]) -> Fit:
    """A statistic of the table, and its quantiles over tables of resampled rows."""
    rng = np.random.default_rng(0)
    rows = rng.integers(len(values), size=(RESAMPLES, len(values)))
    low, high = np.quantile([statistic(values[chosen]) for chosen in rows], [0.025, 0.975])
    return Fit(statistic(values), float(low), float(high))


def exponent(x: Array, values: Array) -> Fit:
    """b in mean ∝ x^b."""
    return resampled(
        values, lambda values: float(np.polyfit(np.log(x), np.log(values.mean(axis=0)), 1)[0])
    )


def errors(values: Array) -> Array:
    """The standard errors of the columns' means."""
    return np.asarray(values.std(axis=0, ddof=1) / np.sqrt(len(values)))


def slope(x: Array, values: Array) -> Fit:
    """a in mean = a x."""
    weights = 1.0 / np.square(errors(values))
    return resampled(values, lambda values: _slope(x, values.mean(axis=0), weights))


def power(x: Array, values: Array) -> Fit:
    """b in mean = c x^b: means may be below 0, as logarithms may not."""
    weights = 1.0 / np.square(errors(values))
    return resampled(values, lambda values: _power(x, values.mean(axis=0), weights))


def misfit(shape: Array, values: Array) -> tuple[float, float]:
    """c in mean = c · shape, and how far the means are from it: root mean square, in errors."""
    error = errors(values)
    means = values.mean(axis=0)
    c = _slope(shape, means, 1.0 / np.square(error))
    return c, float(np.sqrt(np.mean(np.square((means - c * shape) / error))))


def _slope(x: Array, means: Array, weights: Array) -> float:
    return float((weights * x * means).sum() / (weights * x * x).sum())


def _power(x: Array, means: Array, weights: Array) -> float:
    shapes = (x / x.max()) ** POWERS[:, None]
    scales = (shapes * weights) @ means / (np.square(shapes) @ weights)
    losses = np.square(means - scales[:, None] * shapes) @ weights
    return float(POWERS[np.argmin(losses)])
