r"""When conversions come: the share of them that is seen by an age.

Times are in windows: 0 is the decision, 1 the end of its window. F(e) is the probability that a
conversion has been seen by age e, given that it comes within the window. It is learned from
conversions alone, each of which could be seen only because its delay was at most the age of its
decision: the law of the others needs no model of who converts.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from belated.inputs import Vector

#: Cells of one width, and below the first of them those that shrink by a factor.
CELLS, FINER, FACTOR = 400, 24, 1.35
#: What is expected of the rate per window before any conversion was seen: its logarithm is normal,
#: with this standard deviation. So many conversions is the exponential law worth in each cell.
RATE, SPREAD, SHRINKAGE = 3.0, 2.0, 30.0
#: A rate per window is between these.
SLOWEST, FASTEST = 0.02, 500.0
#: Passes over delays that are known to an interval only.
PASSES = 60
_NEWTON = 60


def _edges() -> Vector:
    first = 1.0 / CELLS
    finer = first * FACTOR ** -np.arange(FINER, 0, -1.0)
    return np.concatenate([[0.0], finer, np.linspace(first, 1.0, CELLS)])


#: The ends of the cells in which F is linear.
EDGES = _edges()


class Conversions(NamedTuple):
    """Conversions that were seen, in windows.

    Attributes:
        after: each came later than this after its decision,
        within: by at most this much; 0 if its delay is known exactly.
        age: of its decision now, at most 1.
        weight: what each counts for; None: all count in full.
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
        """What each counts for."""
        return np.ones(len(self.age)) if self.weight is None else self.weight


@dataclass(frozen=True, eq=False)
class ConversionLaw:
    """F, linear between the edges of its cells.

    Attributes:
        shares: F at :data:`EDGES`.
        rate: of the exponential law it was shrunk to, per window.
        variance: of the logarithm of that rate.

    >>> law = ConversionLaw.exponential(3.0)
    >>> law.at(np.array([-1.0, 0.0, 0.5, 1.0, 7.0])).round(3)
    array([0.   , 0.   , 0.818, 1.   , 1.   ])
    """

    shares: Vector
    rate: float
    variance: float = 0.0

    @classmethod
    def exponential(cls, rate: float, variance: float = 0.0) -> Self:
        """Return the law of exponential delays that end with the window."""
        return cls(_exponential(EDGES, rate), rate, variance)

    def at(self, age: Vector) -> Vector:
        """F at these ages."""
        return np.interp(age, EDGES, self.shares)

    def over(self, low: Vector, high: Vector) -> Vector:
        """Return the mean of F over ages from ``low`` to ``high``."""
        width = high - low
        with np.errstate(invalid="ignore", divide="ignore"):
            mean = (self._area(high) - self._area(low)) / width
        return np.where(width > 1e-9, mean, self.at(high))

    def slope(self, age: Vector) -> Vector:
        """By how much F at these ages moves with the logarithm of the rate."""
        step = 1e-3
        faster, slower = self.rate * math.exp(step), self.rate * math.exp(-step)
        held = np.clip(age, 0.0, 1.0)
        return (_exponential(held, faster) - _exponential(held, slower)) / (2.0 * step)

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
    seen: Conversions, *, rate: float = RATE, spread: float = SPREAD, shrinkage: float = SHRINKAGE
) -> ConversionLaw:
    """Return the law of conversions: reverse hazards, shrunk to those of an exponential law.

    In each cell the share of the conversions by its end that came within it is a reverse hazard.
    It is estimated from the conversions whose decisions are old enough to tell, as if so many
    others (``shrinkage``) had come by the exponential law. Where no decision is old enough only
    those are left. The rate of that law is the most likely one given that each conversion came by
    the age of its decision.

    Args:
        seen: the conversions.
        rate: expected before any was seen, per window; its logarithm has a normal prior,
        spread: with this standard deviation.
        shrinkage: conversions that the exponential law is worth in each cell.

    >>> delays = np.linspace(0.01, 0.5, 400)
    >>> law = fitted_law(Conversions(delays, 0.0 * delays, 0.0 * delays + 1.0))
    >>> law.at(np.array([0.25, 0.5])).round(2)
    array([0.5 , 0.99])
    """
    found, variance = _fitted_rate(seen, rate, spread)
    law = ConversionLaw.exponential(found, variance)
    old = _cell(seen.age + 1e-12, "right") - 1  # the last edge that its decision has reached
    low = _cell(seen.after, "left") - 1
    high = np.minimum(_cell(seen.after + seen.within, "left"), old)
    low = np.where(seen.within > 0.0, _cell(seen.after, "right") - 1, np.maximum(low, 0))
    tells = high > low
    low, high, old, counts = low[tells], high[tells], old[tells], seen.counts[tells]
    if not len(low):
        return law
    base = law.shares
    hazard = np.zeros(len(EDGES))
    hazard[1:] = shrinkage * (base[1:] - base[:-1]) / base[1:]
    shares, several = base, bool((high - low > 1).any())
    for _ in range(PASSES if several else 1):
        came, known = _expected(shares, low, high, old, counts)
        reverse = (came + hazard) / (known + shrinkage)
        left = np.append(np.cumprod(1.0 - reverse[:0:-1])[::-1], 1.0)
        before, shares = shares, np.maximum(left, 0.0)
        shares[0] = 0.0
        if np.abs(shares - before).max() < 1e-4:
            break
    return ConversionLaw(shares, found, variance)


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
    count = len(shares)
    weight = counts / np.maximum(shares[high] - shares[low], 1e-300)
    # Sums over all conversions whose interval covers a cell: differences, then added up.
    covering = _spread(low + 1, high + 1, weight, count)
    before = _spread(low + 1, high + 1, weight * shares[low], count)
    density = np.diff(shares, prepend=0.0)
    came = density * covering
    known = shares * covering - before + _spread(high + 1, old + 1, counts, count)
    return came, known


def _spread(
    first: NDArray[np.int64], stop: NDArray[np.int64], weight: Vector, count: int
) -> Vector:
    change = np.bincount(first, weight, count + 2) - np.bincount(stop, weight, count + 2)
    return np.cumsum(change)[:count]


def _exponential(age: Vector, rate: float) -> Vector:
    return np.asarray(np.expm1(-rate * age) / math.expm1(-rate))


def _fitted_rate(seen: Conversions, rate: float, spread: float) -> tuple[float, float]:
    """The most likely rate given that each conversion was seen, and the variance of its log."""
    ended = (seen.age >= 1.0) & (seen.within == 0.0)
    n, total = float(seen.counts[ended].sum()), float((seen.counts * seen.after)[ended].sum())
    after, within, age, counts = (
        column[~ended] for column in (seen.after, seen.within, seen.age, seen.counts)
    )
    waited = total + float((counts * after).sum())
    centre, precision = math.log(rate), spread**-2

    def score(eta: float) -> tuple[float, float]:
        r = math.exp(eta)
        inner, outer = _held(r * within), _held(r * age)
        end = _held(np.array([r]))
        first = -r * waited + n * (1.0 - end[0][0]) + float((counts * (inner[0] - outer[0])).sum())
        second = -r * waited - n * end[1][0] + float((counts * (inner[1] - outer[1])).sum())
        return first - precision * (eta - centre), precision - second

    low, high = math.log(SLOWEST), math.log(FASTEST)
    eta = centre
    for _ in range(_NEWTON):
        pull, information = score(eta)
        low, high = (eta, high) if pull > 0.0 else (low, eta)
        step = pull / information if information > 0.0 else math.inf
        before, eta = eta, eta + step
        if not low < eta < high:
            eta = 0.5 * (low + high)
        if abs(eta - before) < 1e-9:
            break
    return math.exp(eta), 1.0 / max(score(eta)[1], precision)


def _held(q: Vector) -> tuple[Vector, Vector]:
    """q/(e^q - 1), and its derivative by log q: what truncation at q takes from a score."""
    small = q < 1e-4
    large = np.where(small, 1.0, np.minimum(q, 600.0))
    grown = np.expm1(large)
    value = large / grown
    slope = value * (1.0 - value - large)
    return np.where(small, 1.0 - 0.5 * q, value), np.where(small, -0.5 * q, slope)
