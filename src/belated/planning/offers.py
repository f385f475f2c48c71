"""A problem of which it is known beforehand how much there is to gain."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
from scipy.optimize import brentq
from scipy.special import expit, ndtr

from belated.exceptions import InvalidInput
from belated.families import Bernoulli, Family
from belated.inputs import Matrix, Vector

#: Rounds whose rows are drawn together.
TOGETHER = 512
#: Normal quantities are summed over these.
_GRID = np.linspace(-8.5, 8.5, 3_401)
_NORMAL = np.exp(-0.5 * _GRID**2) / math.sqrt(2.0 * math.pi) * (_GRID[1] - _GRID[0])
#: The widest spread of actions.
_WIDEST = 60.0


@dataclass(frozen=True, eq=False)
class Offers:
    """Actions whose features are new in every round, and which convert more or less by them.

    A row is (1, N(0, I)). Intercept and length of θ are such that a choice by lot converts in
    ``base`` of all cases, and the best choice in (1 + ``lift``) times as many.

    Args:
        base: share of decisions that convert, chosen by lot.
        lift: by how much more the best choice converts, relative.
        actions: to choose from.
        dim: numbers of a row.
        seed: of the direction of θ.

    >>> world = Offers(base=0.1, lift=0.5, actions=5, dim=3, seed=0)
    >>> means = np.array([means for _, means in world.rounds(20_000, np.random.default_rng(0))])
    >>> means.mean().round(2), (means.max(axis=1).mean() / means.mean() - 1.0).round(1)
    (np.float64(0.1), np.float64(0.5))
    """

    base: float
    lift: float
    actions: int
    dim: int
    seed: int
    family: Family = field(default_factory=Bernoulli)

    def __post_init__(self) -> None:
        if self.actions < 2 or self.dim < 2:
            message = f"{self.actions} actions and {self.dim} features: at least 2 of each are"
            raise InvalidInput(f"{message} needed, or there is nothing to learn", self.actions)

    @cached_property
    def theta(self) -> Vector:
        """θ: the intercept, and a direction of its own."""
        intercept, length = spread_of(self.base, self.lift, self.actions)
        direction = np.random.default_rng([self.seed, 40]).normal(size=self.dim - 1)
        return np.append(intercept, length * direction / np.linalg.norm(direction))

    def rounds(self, horizon: int, rng: np.random.Generator) -> Iterator[tuple[Matrix, Vector]]:
        """The rows of each round and their mean rewards."""
        for start in range(0, horizon, TOGETHER):
            drawn = rng.normal(size=(min(TOGETHER, horizon - start), self.actions, self.dim))
            drawn[:, :, 0] = 1.0
            tables = drawn.astype(np.float32).astype(np.float64)
            yield from zip(tables, self.family.mean(tables @ self.theta), strict=True)

    def reward(self, mean: float, u: float) -> float:
        """Whether it converts."""
        return 1.0 if u < mean else 0.0


def spread_of(base: float, lift: float, actions: int) -> tuple[float, float]:
    """Return intercept and length of θ with which so much is to be gained.

    Raises:
        InvalidInput: no actions differ so much.

    >>> intercept, length = spread_of(0.1, 0.5, 5)
    >>> round(intercept, 2), round(length, 2)
    (-2.27, 0.44)
    """
    greatest = _greatest(actions)

    def gained(length: float) -> float:
        intercept = _intercept(base, length)
        return float(greatest @ expit(intercept + length * _GRID)) / base - 1.0

    if gained(_WIDEST) < lift:
        message = f"a lift of {lift:.0%} on {base:.0%}: the best of {actions} actions cannot bring"
        raise InvalidInput(f"{message} more than {gained(_WIDEST):.0%}; give a smaller lift", lift)
    length = float(brentq(lambda one: gained(one) - lift, 0.0, _WIDEST))
    return _intercept(base, length), length


def _intercept(base: float, length: float) -> float:
    """With which the mean over all actions is the base."""
    far = 10.0 + 8.5 * length

    def off(intercept: float) -> float:
        return float(_NORMAL @ expit(intercept + length * _GRID)) - base

    return float(brentq(off, -far - 20.0, far + 20.0))


def _greatest(actions: int) -> Vector:
    """The density of the greatest of so many normal numbers, times the width of the grid."""
    density: Vector = actions * ndtr(_GRID) ** (actions - 1) * _NORMAL
    return density
