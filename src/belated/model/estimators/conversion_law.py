r"""The delay law of conversions: the share of them that has arrived by an age.

Times are in windows: 0 is the decision, 1 the end of its window. F(e) is the probability that a
conversion arrives by age e, given that it arrives within the window.

Delays may be anything from a tick of the clock to the window, so the rate of conversions has a
prior that is uniform on the log scale. Its posterior uses both what converted and what did not: a
conversion right after its decision, next to older decisions without one, shows that conversions are
fast and rare, not slow and frequent. F is the mean over that posterior, corrected where enough
conversions show that delays are not exponential.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from belated.core.inputs import Vector

#: The shortest delay that can be represented: a microsecond in 115 days. Cells grow by a ratio from
#: there on, until they are as wide as a share of the window.
SHORTEST, RATIO, WIDEST = 1e-13, 1.08, 0.01
#: How many conversions the exponential law is worth in each cell.
SHRINKAGE = 30.0
#: The slowest rate per window: delays are about uniform over it.
SLOWEST = 0.3
#: The share of decisions that convert has a Beta prior: about uniform on the log scale.
RARE, OFTEN = 0.05, 0.5
#: Rates in the first grid, and in each finer one around the likely rates. A grid is fine enough
#: once this many of its rates matter.
COARSE, FINE, ENOUGH = 72, 25, 8
#: Grids at most: the last has steps of a thousandth.
GRIDS = 4
#: Passes over delays that are known only up to an interval.
PASSES = 60
_NEWTON, _LOG_TINY = 40, -700.0


def _edges() -> Vector:
    even = np.linspace(0.0, 1.0, round(1.0 / WIDEST) + 1)
    even = even[even * (RATIO - 1.0) > WIDEST]
    count = math.ceil(math.log(even[0] / SHORTEST) / math.log(RATIO))
    return np.concatenate([[0.0], even[0] * RATIO ** -np.arange(count, 0, -1.0), even])


#: The ends of the cells in which F is linear.
EDGES = _edges()
_LOG_EDGES = np.log(EDGES[1:])


class Conversions(NamedTuple):
    """Conversions that arrived, in windows.

    Attributes:
        after: each came later than this after its decision,
        within: by at most this much; 0 if its delay is known exactly.
        age: of its decision now, at most 1.
        weight: how much each counts; None if all count in full.
    """

    after: Vector
    within: Vector
    age: Vector
    weight: Vector | None = None

    @classmethod
    def none(cls) -> Self:
        """Return no conversions."""
        return cls(np.empty(0), np.empty(0), np.empty(0))

    @property
    def counts(self) -> Vector:
        """How much each counts."""
        return np.ones(len(self.age)) if self.weight is None else self.weight


def age_counts(age: Vector, weight: Vector | None = None) -> Vector:
    """Return how many decisions are in the cell that ends at each edge, by their ages.

    >>> counts = age_counts(np.array([-1.0, 0.5, 0.5, 3.0]))
    >>> counts.sum(), counts[0], counts[-1]  # one is from the future, one has reached the window
    (np.float64(4.0), np.float64(1.0), np.float64(1.0))
    """
    return np.bincount(_cell(age, "left"), weight, len(EDGES)).astype(np.float64, copy=False)


@dataclass(frozen=True, eq=False)
class ConversionLaw:
    """F, linear between the edges of its cells.

    Attributes:
        shares: F at :data:`EDGES`.
        deviations: by how much F at the edges moves with one posterior standard deviation of the
            logarithm of the rate.

    >>> law = ConversionLaw.exponential(3.0)
    >>> law.at(np.array([-1.0, 0.0, 0.5, 1.0, 7.0])).round(3)
    array([0.   , 0.   , 0.818, 1.   , 1.   ])
    """

    shares: Vector
    deviations: Vector

    @classmethod
    def exponential(cls, rate: float) -> Self:
        """Return the law of exponential delays that end with the window."""
        shares = _exponential(np.array([math.log(rate)]), EDGES)[0]
        return cls(shares, np.zeros(len(EDGES)))

    def at(self, age: Vector) -> Vector:
        """Return F at these ages."""
        return np.interp(age, EDGES, self.shares)

    def deviation(self, age: Vector) -> Vector:
        """Return the posterior standard deviation of F at these ages, with its sign."""
        return np.interp(age, EDGES, self.deviations)

    def age_of(self, share: float) -> float:
        """Return the age at which F reaches a share."""
        return float(EDGES[np.searchsorted(self.shares, share)])

    def over(self, low: Vector, high: Vector) -> Vector:
        """Return the mean of F over ages from ``low`` to ``high``."""
        width = high - low
        with np.errstate(invalid="ignore", divide="ignore"):
            mean = (self._area(high) - self._area(low)) / width
        return np.where(width > 1e-6 * np.abs(high), mean, self.at(high))

    @cached_property
    def _areas(self) -> Vector:
        middle = 0.5 * (self.shares[1:] + self.shares[:-1])
        return np.concatenate([[0.0], np.cumsum(middle * np.diff(EDGES))])

    def _area(self, age: Vector) -> Vector:
        held = np.clip(age, 0.0, 1.0)
        cell = np.minimum(np.searchsorted(EDGES, held, side="right"), len(EDGES) - 1) - 1
        start = EDGES[cell]
        part = 0.5 * (held - start) * (self.shares[cell] + self.at(held))
        return np.asarray(self._areas[cell] + part + np.maximum(age - 1.0, 0.0))


def fitted_law(
    seen: Conversions,
    silent: Vector | None = None,
    *,
    tick: float = SHORTEST,
    shrinkage: float = SHRINKAGE,
) -> ConversionLaw:
    """Return the law of conversions: reverse hazards, shrunk to those of exponential laws.

    In each cell the share of the conversions by its end that came within it is a reverse hazard.
    It is estimated from the conversions whose decisions are old enough to tell, as if so many
    others (``shrinkage``) had come by the posterior mean of exponential laws. Where no decision is
    old enough only those are left.

    Args:
        seen: the conversions.
        silent: how many decisions without a conversion have reached each edge, see
            :func:`age_counts`.
        tick: the resolution of the clock: the shortest mean delay that is considered.
        shrinkage: conversions that the exponential law is worth in each cell.

    >>> delays = np.linspace(0.01, 0.5, 400)
    >>> law = fitted_law(Conversions(delays, 0.0 * delays, 0.0 * delays + 1.0))
    >>> law.at(np.array([0.25, 0.5])).round(2)
    array([0.5 , 0.99])
    """
    silent = np.zeros(len(EDGES)) if silent is None else silent
    log_rates, weights = _posterior(seen, silent, max(tick, SHORTEST))
    laws = _exponential(log_rates, EDGES)
    base = weights @ laws
    mean = float(weights @ log_rates)
    spread = math.sqrt(max(float(weights @ np.square(log_rates - mean)), 1e-30))
    deviations = (weights * (log_rates - mean) / spread) @ laws
    return ConversionLaw(_corrected(base, seen, shrinkage), deviations)


def _exponential(log_rates: Vector, age: Vector) -> Vector:
    """F of exponential laws that end with the window: a line for each rate."""
    rates = np.exp(log_rates)[:, None]
    return np.asarray(np.expm1(-rates * age) / np.expm1(-rates))


# --- the posterior of the rate --------------------------------------------------------------------


def _posterior(seen: Conversions, silent: Vector, tick: float) -> tuple[Vector, Vector]:
    """Return log rates and their posterior weights, on a grid that is fine where it matters.

    With slow laws many conversions are still to come, so that a few of them would outweigh all
    others in the mean of p. Predictions are judged by their ratio to the truth: each law counts by
    1/p, and by less while there are hardly any conversions, because then p is not known either.
    """
    low, high = math.log(SLOWEST), max(-math.log(tick), 1.0)
    grid = np.linspace(low, high, COARSE)
    for left in reversed(range(GRIDS)):
        counted, converting = _counts_value(seen, silent, grid)
        values = _delays_value(seen, grid) + counted
        weights = np.exp(values - values.max())
        likely = np.flatnonzero(weights > 1e-6)
        if len(likely) >= ENOUGH or not left:
            break
        step = grid[1] - grid[0]
        around = max(low, grid[likely[0]] - step), min(high, grid[likely[-1]] + step)
        grid = np.linspace(*around, FINE)
    count = float(seen.counts.sum())
    weights *= converting ** (-count / (count + 1.0))
    return grid, weights / weights.sum()


def _delays_value(seen: Conversions, grid: Vector) -> Vector:
    """The log density of the delays that were seen, for each rate."""
    counts, rates = seen.counts, np.exp(grid)
    exact = seen.within == 0.0
    value = -rates * float(counts @ seen.after) + grid * float(counts[exact].sum())
    if not exact.all():  # the sum over intervals, by their lengths
        lengths = age_counts(seen.within[~exact], counts[~exact])[1:]
        used = np.flatnonzero(lengths)
        value += _log_share(grid, _LOG_EDGES[used]) @ lengths[used]
    return np.asarray(value - float(counts.sum()) * _log_share(grid, np.zeros(1))[:, 0])


def _log_share(grid: Vector, log_age: Vector) -> Vector:
    """Log(1 - e^(-rate age))."""
    return np.asarray(np.log(-np.expm1(-np.exp(np.maximum(grid[:, None] + log_age, _LOG_TINY)))))


def _counts_value(seen: Conversions, silent: Vector, grid: Vector) -> tuple[Vector, Vector]:
    """The log probability of how many converted by their ages, and the share p that converts.

    A decision of age e has converted with probability p F(e). p is the most likely one for each
    rate, and the integral over its log-odds is Laplace's.
    """
    used = np.flatnonzero(silent)
    n, share = silent[used], _exponential(grid, EDGES[used])
    converted = float(seen.counts.sum())
    start = np.minimum((converted + RARE) / (share @ n + converted + RARE + OFTEN), 0.9)
    z = np.log(start / (1.0 - start))
    for _ in range(_NEWTON):
        p = 1.0 / (1.0 + np.exp(-z))
        lost = p * (1.0 - p) * ((share / (1.0 - share * p[:, None])) @ n)
        pull = (converted + RARE) * (1.0 - p) - OFTEN * p - lost
        known = np.maximum(lost * (1.0 - p), 0.5 * converted * p * (1.0 - p))
        information = known + (RARE + OFTEN) * p * (1.0 - p)
        step = np.clip(pull / information, -2.0, 2.0)
        z += step
        if np.abs(step).max() < 1e-6:
            break
    p = 1.0 / (1.0 + np.exp(-z))
    value = (converted + RARE) * np.log(p) + OFTEN * np.log1p(-p)
    return value + np.log1p(-share * p[:, None]) @ n - 0.5 * np.log(information), p


# --- what is not exponential ----------------------------------------------------------------------


def _corrected(base: Vector, seen: Conversions, shrinkage: float) -> Vector:
    """Shares by reverse hazards, shrunk to those of ``base``."""
    old = _cell(seen.age * (1.0 + 1e-12), "right") - 1  # the last edge its decision reached
    low = _cell(seen.after, "left") - 1
    high = np.minimum(_cell(seen.after + seen.within, "left"), old)
    low = np.where(seen.within > 0.0, _cell(seen.after, "right") - 1, np.maximum(low, 0))
    tells = high > low
    low, high, old, counts = low[tells], high[tells], old[tells], seen.counts[tells]
    if not len(low):
        return base
    hazard = np.zeros(len(EDGES))
    hazard[1:] = shrinkage * (base[1:] - base[:-1]) / np.maximum(base[1:], 1e-300)
    shares, several = base, bool((high - low > 1).any())
    for _ in range(PASSES if several else 1):
        came, known = _expected(shares, low, high, old, counts)
        reverse = (came + hazard) / (known + shrinkage)
        left = np.append(np.cumprod(1.0 - reverse[:0:-1])[::-1], 1.0)
        before, shares = shares, np.maximum(left, 0.0)
        shares[0] = 0.0
        if np.abs(shares - before).max() < 1e-4:
            break
    return shares


def _cell(time: Vector, side: str) -> NDArray[np.int64]:
    """The first edge at or after a time ("left"), or behind it ("right")."""
    found = np.searchsorted(EDGES, np.minimum(time, 1.0), side=side)  # type: ignore[call-overload]
    return np.asarray(found, dtype=np.int64)


def _expected(
    shares: Vector,
    low: NDArray[np.int64],
    high: NDArray[np.int64],
    old: NDArray[np.int64],
    counts: Vector,
) -> tuple[Vector, Vector]:
    """Conversions expected in each cell, and by its end, of decisions that have reached its end.

    Each lies somewhere between its edges ``low`` and ``high``, by the law as it is now.
    """
    count, one = len(shares), high - low == 1
    came: Vector = np.bincount(high[one], counts[one], count).astype(np.float64)
    known = _spread(np.where(one, high, high + 1), old + 1, counts, count)
    if one.all():
        return came, known
    low, high, counts = low[~one], high[~one], counts[~one]
    weight = counts / np.maximum(shares[high] - shares[low], 1e-12)
    # Sums over all conversions whose interval covers a cell: differences, then added up.
    covering = _spread(low + 1, high + 1, weight, count)
    before = _spread(low + 1, high + 1, weight * shares[low], count)
    came = came + np.diff(shares, prepend=0.0) * covering
    return came, known + shares * covering - before


def _spread(
    first: NDArray[np.int64], stop: NDArray[np.int64], weight: Vector, count: int
) -> Vector:
    change = np.bincount(first, weight, count + 2) - np.bincount(stop, weight, count + 2)
    return np.cumsum(change)[:count]
