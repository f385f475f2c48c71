"""Delays in seconds, as rounds of a simulation; and models that are refreshed now and then."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from belated.delays import NEVER
from belated.evaluation import DelayCurve
from belated.inputs import Vector


class SecondsDelay(Protocol):
    """What draws delays in seconds: any law of :mod:`belated.delays`, read as seconds."""

    def sample(self, count: int, rng: np.random.Generator) -> NDArray[np.int64]:
        """Return so many delays, :data:`~belated.delays.NEVER` for what does not come."""


@dataclass(frozen=True, eq=False)
class SeenDelay:
    """Delays as they were seen in a journal.

    Args:
        curve: which share of the rewards has come by which age.

    >>> curve = DelayCurve(
    ...     delays=np.array([1e6, 5e6]), share=np.array([0.5, 1.0]), low=np.zeros(2),
    ...     high=np.ones(2), rewards=20, missing=0, level=0.95, conversions=True,
    ... )
    >>> np.unique(SeenDelay(curve).sample(100, np.random.default_rng(0)))
    array([1, 5])
    """

    curve: DelayCurve

    def sample(self, count: int, rng: np.random.Generator) -> NDArray[np.int64]:
        """Draw delays by the curve; what it does not reach never comes."""
        share = self.curve.share
        whole = share[-1] if self.curve.conversions else 1.0  # of those that come at all
        place = np.searchsorted(share, whole * rng.random(count), side="left")
        seconds = np.append(np.ceil(self.curve.delays / 1e6), NEVER).astype(np.int64)
        return seconds[place]


@dataclass(frozen=True, eq=False)
class RoundsDelay:
    """Delays in rounds, of which there are so many a second.

    Args:
        delay: in seconds.
        pace: rounds a second.
        every: rounds after which the model is refreshed: what comes between is learned then.

    >>> from belated.delays import Constant
    >>> RoundsDelay(Constant(50), pace=0.1).sample(3, np.random.default_rng(0))
    array([5, 5, 5])
    >>> RoundsDelay(Constant(50), pace=0.1, every=10).sample(3, np.random.default_rng(0))
    array([9, 8, 7])
    """

    delay: SecondsDelay
    pace: float
    every: int = 1

    def sample(self, count: int, rng: np.random.Generator) -> NDArray[np.int64]:
        """Return the delay of each round, from the first on."""
        seconds = self.delay.sample(count, rng)
        lost = seconds == NEVER
        rounds = np.ceil(np.where(lost, 0, seconds) * self.pace).astype(np.int64)
        made = np.arange(count)
        # The reward of round s can be used from round s + D + 1 on.
        used = -(-(made + rounds + 1) // self.every) * self.every
        return np.where(lost, NEVER, used - 1 - made)


def quantiles(delay: SecondsDelay, count: int = 4_000) -> Vector:
    """Return delays in seconds that stand for all, in order; infinite if they never come."""
    drawn = np.sort(delay.sample(count, np.random.default_rng(0)))
    return np.where(drawn == NEVER, np.inf, drawn)
