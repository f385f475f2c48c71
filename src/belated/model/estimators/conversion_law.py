r"""The delay distribution of conversions: the share that has arrived by a given age.

Times are in units of the window: 0 is the time of the decision, 1 the end of its window. F(e) is
the probability that a conversion arrives by age e, given that it arrives within the window.

Delays can be as short as a clock tick or as long as the window, so the rate at which conversions
arrive has a prior that is uniform on the log scale. The posterior of the rate uses decisions with
and without a conversion: a conversion right after its decision, among older decisions without one,
indicates that conversions are fast and rare, not slow and frequent. F is the mean over that
posterior, corrected where enough conversions show that delays are not exponential.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property, partial
from typing import NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from belated.core.inputs import Vector

#: The shortest delay that can be represented (1 µs for a window of 115 days), the ratio of
#: successive edges, and the largest cell width.
SHORTEST, RATIO, WIDEST = 1e-13, 1.08, 0.01
#: Weight of the exponential distribution in each cell, as a number of conversions.
SHRINKAGE = 30.0
#: The slowest rate per window; at this rate, delays are nearly uniform over the window.
SLOWEST = 0.3
#: Parameters of the Beta prior of the conversion rate, which is nearly uniform on the log scale.
RARE, OFTEN = 0.05, 0.5
#: Number of rates in the first grid, number of rates in each finer grid around the likely rates,
#: and the number of likely rates at which a grid is fine enough.
COARSE, FINE, ENOUGH = 72, 25, 8
#: Maximum number of grids; the last has relative steps of a thousandth.
GRIDS = 4
#: Maximum number of passes if some delays are only known to lie in an interval.
PASSES = 60
_NEWTON, _LOG_TINY = 40, -700.0


def _edges() -> Vector:
    even = np.linspace(0.0, 1.0, round(1.0 / WIDEST) + 1)
    even = even[even * (RATIO - 1.0) > WIDEST]
    count = math.ceil(math.log(even[0] / SHORTEST) / math.log(RATIO))
    return np.concatenate([[0.0], even[0] * RATIO ** -np.arange(count, 0, -1.0), even])


#: The edges of the cells in which F is linear.
EDGES = _edges()
_LOG_EDGES = np.log(EDGES[1:])


class Conversions(NamedTuple):
    """Conversions that arrived, with times in units of the window.

    Attributes:
        after: lower bound of the delay.
        within: width of the interval that contains the delay; 0 if the delay is known exactly.
        age: current age of the decision, at most 1.
        weight: weight of the conversion; None if all conversions have full weight.
    """

    after: Vector
    within: Vector
    age: Vector
    weight: Vector | None = None

    @classmethod
    def none(cls) -> Self:
        """Return an empty set of conversions."""
        return cls(np.empty(0), np.empty(0), np.empty(0))

    @property
    def counts(self) -> Vector:
        """Weight of each conversion."""
        return np.ones(len(self.age)) if self.weight is None else self.weight


def age_counts(age: Vector, weight: Vector | None = None) -> Vector:
    """Return the number of decisions with an age in the cell that ends at each edge.

    >>> counts = age_counts(np.array([-1.0, 0.5, 0.5, 3.0]))
    >>> counts.sum(), counts[0], counts[-1]  # -1 is in the future, 3 is beyond the window
    (np.float64(4.0), np.float64(1.0), np.float64(1.0))
    """
    return np.bincount(_cell(age, "left"), weight, len(EDGES)).astype(np.float64, copy=False)


@dataclass(frozen=True, eq=False)
class ConversionLaw:
    """The delay distribution F, which is linear between the edges of its cells.

    Attributes:
        shares: F at :data:`EDGES`.
        deviations: change of F at each edge if the log rate changes by one posterior standard
            deviation.

    >>> law = ConversionLaw.exponential(3.0)
    >>> law.at(np.array([-1.0, 0.0, 0.5, 1.0, 7.0])).round(3)
    array([0.   , 0.   , 0.818, 1.   , 1.   ])
    """

    shares: Vector
    deviations: Vector

    @classmethod
    def exponential(cls, rate: float) -> Self:
        """Return the distribution of exponential delays, truncated at the window."""
        shares = _exponential(np.array([math.log(rate)]), EDGES)[0]
        return cls(shares, np.zeros(len(EDGES)))

    def at(self, age: Vector) -> Vector:
        """Return F at these ages."""
        return np.interp(age, EDGES, self.shares)

    def deviation(self, age: Vector) -> Vector:
        """Return the signed posterior standard deviation of F at these ages."""
        return np.interp(age, EDGES, self.deviations)

    def age_of(self, share: float) -> float:
        """Return the age at which F reaches the given share."""
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
        clipped = np.clip(age, 0.0, 1.0)
        cell = np.minimum(np.searchsorted(EDGES, clipped, side="right"), len(EDGES) - 1) - 1
        start = EDGES[cell]
        part = 0.5 * (clipped - start) * (self.shares[cell] + self.at(clipped))
        return np.asarray(self._areas[cell] + part + np.maximum(age - 1.0, 0.0))


def fitted_law(
    seen: Conversions,
    silent: Vector | None = None,
    *,
    tick: float = SHORTEST,
    shrinkage: float = SHRINKAGE,
) -> ConversionLaw:
    """Estimate the delay distribution from reverse hazards, shrunk towards exponential delays.

    The reverse hazard of a cell is the share of conversions that arrive within the cell, among
    those that arrive by its end. It is estimated from the conversions of decisions that are old
    enough, together with ``shrinkage`` conversions that follow the posterior mean of exponential
    distributions. If no decision is old enough, only the exponential distributions are used.

    Args:
        seen: the conversions.
        silent: number of decisions without a conversion at each edge; see :func:`age_counts`.
        tick: resolution of the clock, which is also the shortest mean delay considered.
        shrinkage: weight of the exponential distribution in each cell, as a number of conversions.

    >>> delays = np.linspace(0.01, 0.5, 400)
    >>> law = fitted_law(Conversions(delays, 0.0 * delays, 0.0 * delays + 1.0))
    >>> law.at(np.array([0.25, 0.5])).round(2)
    array([0.5 , 0.99])
    """
    silent = np.zeros(len(EDGES)) if silent is None else silent
    converted = float(seen.counts.sum())
    base = _exponential_law(converted, partial(_delays_value, seen), silent, tick)
    return ConversionLaw(_corrected(base.shares, seen, shrinkage), base.deviations)


class DelaySums(NamedTuple):
    """Additive sums over decisions, from which :func:`merged_law` estimates the distribution.

    Attributes:
        silent: number of decisions without a conversion at each edge; see :func:`age_counts`.
        arrived: number of conversions in each cell, among decisions that reached the cell's end.
        known: number of conversions by the end of each cell, among the same decisions.
        totals: number of conversions, and the sum of their delays.
    """

    silent: Vector
    arrived: Vector
    known: Vector
    totals: Vector

    @classmethod
    def of(cls, seen: Conversions, silent: Vector) -> Self:
        """Return the sums of conversions whose delays are known exactly."""
        low, high, old, counts = _cells(seen)
        arrived, reached = _expected(np.zeros(len(EDGES)), low, high, old, counts)
        totals = np.array([seen.counts.sum(), seen.counts @ seen.after])
        return cls(silent, arrived, reached, totals)


def merged_law(
    sums: DelaySums, *, tick: float = SHORTEST, shrinkage: float = SHRINKAGE
) -> ConversionLaw:
    """Estimate the delay distribution from sums, as :func:`fitted_law` does from conversions.

    >>> delays, silent = np.linspace(0.01, 0.5, 400), np.zeros(len(EDGES))
    >>> seen = Conversions(delays, 0.0 * delays, 0.0 * delays + 1.0)
    >>> law = merged_law(DelaySums.of(seen, silent))
    >>> law.at(np.array([0.25, 0.5])).round(2)
    array([0.5 , 0.99])
    """
    converted, total = sums.totals.tolist()

    def delays_value(grid: Vector) -> Vector:
        scale = _log_share(grid, np.zeros(1))[:, 0]
        return np.asarray(grid * converted - np.exp(grid) * total - converted * scale)

    base = _exponential_law(converted, delays_value, sums.silent, tick)
    hazard = _hazard(base.shares, shrinkage)
    shares = _from_hazards((sums.arrived + hazard) / (sums.known + shrinkage))
    return ConversionLaw(shares if sums.arrived.any() else base.shares, base.deviations)


def _exponential_law(
    converted: float, delays_value: Callable[[Vector], Vector], silent: Vector, tick: float
) -> ConversionLaw:
    """Return the posterior mean of exponential distributions."""
    log_rates, weights = _posterior(converted, delays_value, silent, max(tick, SHORTEST))
    laws = _exponential(log_rates, EDGES)
    mean = float(weights @ log_rates)
    spread = math.sqrt(max(float(weights @ np.square(log_rates - mean)), 1e-30))
    deviations = (weights * (log_rates - mean) / spread) @ laws
    return ConversionLaw(weights @ laws, deviations)


def _exponential(log_rates: Vector, age: Vector) -> Vector:
    """Return F for exponential delays truncated at the window, with one row per rate."""
    rates = np.exp(log_rates)[:, None]
    return np.asarray(np.expm1(-rates * age) / np.expm1(-rates))


# --- the posterior of the rate --------------------------------------------------------------------


def _posterior(
    converted: float, delays_value: Callable[[Vector], Vector], silent: Vector, tick: float
) -> tuple[Vector, Vector]:
    """Return log rates and their posterior weights, on a grid refined around the likely rates.

    A slow rate means that many conversions are yet to arrive, so a few slow rates would dominate
    the mean of p. Because the relative error of predictions matters, rates are weighted by 1/p, or
    less strongly if there are few conversions, because p is then uncertain too.
    """
    low, high = math.log(SLOWEST), max(-math.log(tick), 1.0)
    grid = np.linspace(low, high, COARSE)
    for level in reversed(range(GRIDS)):
        counted, converting = _counts_value(converted, silent, grid)
        values = delays_value(grid) + counted
        weights = np.exp(values - values.max())
        likely = np.flatnonzero(weights > 1e-6)
        if len(likely) >= ENOUGH or not level:
            break
        step = grid[1] - grid[0]
        around = max(low, grid[likely[0]] - step), min(high, grid[likely[-1]] + step)
        grid = np.linspace(*around, FINE)
    weights *= converting ** (-converted / (converted + 1.0))
    return grid, weights / weights.sum()


def _delays_value(seen: Conversions, grid: Vector) -> Vector:
    """Return the log density of the observed delays for each rate."""
    counts, rates = seen.counts, np.exp(grid)
    exact = seen.within == 0.0
    value = -rates * float(counts @ seen.after) + grid * float(counts[exact].sum())
    if not exact.all():  # sum over the intervals, grouped by length
        lengths = age_counts(seen.within[~exact], counts[~exact])[1:]
        used = np.flatnonzero(lengths)
        value += _log_share(grid, _LOG_EDGES[used]) @ lengths[used]
    return np.asarray(value - float(counts.sum()) * _log_share(grid, np.zeros(1))[:, 0])


def _log_share(grid: Vector, log_age: Vector) -> Vector:
    """Return log(1 - e^(-rate age))."""
    return np.asarray(np.log(-np.expm1(-np.exp(np.maximum(grid[:, None] + log_age, _LOG_TINY)))))


def _counts_value(converted: float, silent: Vector, grid: Vector) -> tuple[Vector, Vector]:
    """Return the log probability of the number of conversions, and the conversion rate p.

    A decision of age e has converted with probability p F(e). For each rate, p is set to its mode,
    and the log-odds of p are integrated out by Laplace's method.
    """
    used = np.flatnonzero(silent)
    n, share = silent[used], _exponential(grid, EDGES[used])
    start = np.minimum((converted + RARE) / (share @ n + converted + RARE + OFTEN), 0.9)
    z = np.log(start / (1.0 - start))
    for _ in range(_NEWTON):
        p = 1.0 / (1.0 + np.exp(-z))
        lost = p * (1.0 - p) * ((share / (1.0 - share * p[:, None])) @ n)
        pull = (converted + RARE) * (1.0 - p) - OFTEN * p - lost
        certain = np.maximum(lost * (1.0 - p), 0.5 * converted * p * (1.0 - p))
        information = certain + (RARE + OFTEN) * p * (1.0 - p)
        step = np.clip(pull / information, -2.0, 2.0)
        z += step
        if np.abs(step).max() < 1e-6:
            break
    p = 1.0 / (1.0 + np.exp(-z))
    value = (converted + RARE) * np.log(p) + OFTEN * np.log1p(-p)
    return value + np.log1p(-share * p[:, None]) @ n - 0.5 * np.log(information), p


# --- correction for delays that are not exponential -----------------------------------------------


def _corrected(base: Vector, seen: Conversions, shrinkage: float) -> Vector:
    """Return F computed from reverse hazards that are shrunk towards those of ``base``."""
    low, high, old, counts = _cells(seen)
    if not len(low):
        return base
    hazard = _hazard(base, shrinkage)
    shares, several = base, bool((high - low > 1).any())
    for _ in range(PASSES if several else 1):
        arrived, reached = _expected(shares, low, high, old, counts)
        before, shares = shares, _from_hazards((arrived + hazard) / (reached + shrinkage))
        if np.abs(shares - before).max() < 1e-4:
            break
    return shares


def _cells(
    seen: Conversions,
) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64], Vector]:
    """Return the edges around each delay, the last edge each decision reached, and the weights.

    Conversions are omitted if their decision has not reached the end of their cell.
    """
    old = _cell(seen.age * (1.0 + 1e-12), "right") - 1
    low = _cell(seen.after, "left") - 1
    high = np.minimum(_cell(seen.after + seen.within, "left"), old)
    low = np.where(seen.within > 0.0, _cell(seen.after, "right") - 1, np.maximum(low, 0))
    used = high > low
    return low[used], high[used], old[used], seen.counts[used]


def _hazard(base: Vector, shrinkage: float) -> Vector:
    """Return the reverse hazards of ``base``, multiplied by ``shrinkage``."""
    hazard = np.zeros(len(EDGES))
    hazard[1:] = shrinkage * (base[1:] - base[:-1]) / np.maximum(base[1:], 1e-300)
    return hazard


def _from_hazards(reverse: Vector) -> Vector:
    """Return F, given the reverse hazard of each cell."""
    product = np.append(np.cumprod(1.0 - reverse[:0:-1])[::-1], 1.0)
    shares: Vector = np.maximum(product, 0.0)
    shares[0] = 0.0
    return shares


def _cell(time: Vector, side: str) -> NDArray[np.int64]:
    """Return the index of the first edge at or after ("left"), or after ("right"), each time."""
    place = np.searchsorted(EDGES, np.minimum(time, 1.0), side=side)  # type: ignore[call-overload]
    return np.asarray(place, dtype=np.int64)


def _expected(
    shares: Vector,
    low: NDArray[np.int64],
    high: NDArray[np.int64],
    old: NDArray[np.int64],
    counts: Vector,
) -> tuple[Vector, Vector]:
    """Return the expected number of conversions in each cell, and by the end of each cell.

    Only decisions that have reached the end of a cell count for it. A conversion lies between the
    edges ``low`` and ``high``, distributed according to ``shares``.
    """
    count, single = len(shares), high - low == 1
    arrived: Vector = np.bincount(high[single], counts[single], count).astype(np.float64)
    reached = _spread(np.where(single, high, high + 1), old + 1, counts, count)
    if single.all():
        return arrived, reached
    low, high, counts = low[~single], high[~single], counts[~single]
    weight = counts / np.maximum(shares[high] - shares[low], 1e-12)
    # Sums over the conversions whose interval covers a cell, as cumulative differences.
    covering = _spread(low + 1, high + 1, weight, count)
    before = _spread(low + 1, high + 1, weight * shares[low], count)
    arrived = arrived + np.diff(shares, prepend=0.0) * covering
    return arrived, reached + shares * covering - before


def _spread(
    first: NDArray[np.int64], stop: NDArray[np.int64], weight: Vector, count: int
) -> Vector:
    change = np.bincount(first, weight, count + 2) - np.bincount(stop, weight, count + 2)
    return np.cumsum(change)[:count]
