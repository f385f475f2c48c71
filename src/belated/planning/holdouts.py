"""How long it takes until a lift is known, and how many decisions to hold out for that."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from scipy.special import ndtri

from belated.evaluation.lifts import FIRST, USUAL
from belated.evaluation.sequences import sequence_width
from belated.inputs import Vector

#: Shares of decisions that may be held out.
SHARES = (0.01, 0.02, 0.05, 0.1, 0.2, 0.5)
#: How often a lift that is there is to be found, and the level of the interval that finds it.
POWER, LEVEL = 0.8, 0.95
#: Longer than anybody waits, in seconds.
_LONGEST = 1e12


@dataclass(frozen=True)
class HoldoutTimes:
    """What a holdout takes and costs.

    Attributes:
        share: of the decisions.
        seconds: until the lift is known by one look at that time.
        seconds_always: until it is known by whoever looks every day.
        rewards: that the holdout costs until then, by one look.
    """

    share: float
    seconds: float
    seconds_always: float
    rewards: float


@dataclass(frozen=True)
class Comparison:
    """A holdout and a bandit that earns more.

    Args:
        base: mean reward of the holdout, within the window.
        lift: by how much more the bandit earns, relative.
        rate: decisions a second.
        window: after which an outcome is final, in seconds.
        delays: of conversions in seconds, infinite if they do not come; they stand for all.
    """

    base: float
    lift: float
    rate: float
    window: float
    delays: Vector

    def times(self, share: float) -> HoldoutTimes:
        """Return how long a holdout takes.

        At a time t a reward counts t/(t - D) times, for so many decisions could not show it yet
        (:mod:`belated.evaluation.arrivals`): the variance of a mean is p E[t/(t - D)] - p² over n.
        It is asked from the first window's end on.
        """
        wanted = (float(ndtri(0.5 + LEVEL / 2)) + float(ndtri(POWER))) ** 2
        difference = self.base * self.lift
        first = 1.001 * self.window
        seconds = _first(
            lambda t: self._variance(t, share) * wanted <= difference**2, first, _LONGEST
        )
        always = _first(lambda t: self._shows(t, share), first, _LONGEST)
        rewards = share * self.rate * min(seconds, _LONGEST) * difference
        return HoldoutTimes(share, seconds, always, rewards)

    def _variance(self, t: float, share: float) -> float:
        within = self.delays[self.delays <= self.window]
        more = float((t / (t - within)).mean()) if len(within) else 1.0
        n = self.rate * t
        parts = ((self.base * (1.0 + self.lift), 1.0 - share), (self.base, share))
        return sum((p * more - p * p) / (n * part) for p, part in parts)

    def _shows(self, t: float, share: float) -> bool:
        """Whether the interval that holds at all times excludes 0, often enough."""
        n = self.rate * (t - self.window)  # decisions whose outcome is final
        smaller = n * min(share, 1.0 - share)
        few = self.base * smaller
        if few - float(ndtri(POWER)) * math.sqrt(few) < FIRST:
            return False
        parts = ((self.base * (1.0 + self.lift), 1.0 - share), (self.base, share))
        variance = sum(p * (1.0 - p) / (n * part) for p, part in parts)
        width = sequence_width(variance, smaller, USUAL, 1.0 - LEVEL)
        return self.base * self.lift - float(ndtri(POWER)) * math.sqrt(variance) >= width


def smallest_share(times: list[HoldoutTimes], period: float) -> HoldoutTimes | None:
    """Return the smallest holdout by which the lift is known within a time; None if none is."""
    return next((one for one in times if one.seconds <= period), None)


def _first(holds: Callable[[float], bool], low: float, high: float) -> float:
    """The first time at which something holds that holds from then on; infinite if none."""
    if holds(low):
        return low
    if not holds(high):
        return math.inf
    while high > 1.0001 * low:
        middle = math.sqrt(low * high)
        low, high = (low, middle) if holds(middle) else (middle, high)
    return high


def known_within(delays: Vector, window: float) -> float:
    """Return the share of conversions that come within a window.

    >>> import numpy as np
    >>> known_within(np.array([1.0, 2.0, 30.0, np.inf]), 10.0)
    0.5
    """
    return float((delays <= window).mean())
