"""A law on finitely many delays."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from belated.core.inputs import Vector
from belated.delays.process import least_sigma
from belated.delays.whole import NEVER


@dataclass(frozen=True, eq=False)
class Atoms:
    """Delays in ascending order, and the probability of at least each of them."""

    delays: Vector
    at_least: Vector
    mean: float

    @classmethod
    def of(cls, delays: NDArray[np.int64], mass: Vector) -> Atoms:
        """From delays in any order, each with its mass; those of mass 0 do not count."""
        delays, mass = delays[mass > 0.0], mass[mass > 0.0]
        values, place = np.unique(delays, return_inverse=True)
        masses = np.bincount(place, weights=mass)
        at_least = np.cumsum(masses[::-1])[::-1]
        mean = math.inf if values[-1] == NEVER else float(values @ masses) / float(at_least[0])
        return cls(values.astype(np.float64), at_least / at_least[0], mean)

    @property
    def bound(self) -> int | None:
        """The largest delay, or None if it may be NEVER."""
        return int(self.delays[-1]) if math.isfinite(self.mean) else None

    def tail(self, i: Vector) -> Vector:
        """P(D ≥ i)."""
        return np.append(self.at_least, 0.0)[np.searchsorted(self.delays, i)]

    def sigma(self, q: float) -> float:
        """The least σ of Assumption 2 for this q."""
        return least_sigma(self.delays, self.at_least, self.mean, q)
