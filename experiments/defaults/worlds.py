"""Problems unlike those of the regret table, on which a default must also do well.

Dimensions 5 to 50, 5 to 100 actions, effects from weak to strong, rare rewards, Gaussian rewards
and counts, long runs, a θ that turns during the run, and a truth that no θ describes.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial

import numpy as np

from belated import Bernoulli, Gaussian, Poisson
from belated.core.inputs import Matrix, Vector
from belated.model.families import Family
from belated.simulation.environments import (
    GLM,
    Environment,
    draw_rows,
    draw_theta,
    fixed,
    fresh,
    users,
)


@dataclass(frozen=True, eq=False)
class Turning:
    """θ turns by 60° over the horizon, in a plane of its own; the rows are those of ``start``."""

    start: GLM
    towards: Vector  # of the same length as θ, at a right angle to it
    family: Family = field(default_factory=Bernoulli)

    @property
    def dim(self) -> int:
        return self.start.dim

    def rounds(self, horizon: int, rng: np.random.Generator) -> Iterator[tuple[Matrix, Vector]]:
        for t, (rows, _) in enumerate(self.start.rounds(horizon, rng)):
            angle = math.pi / 3.0 * t / horizon
            theta = math.cos(angle) * self.start.theta + math.sin(angle) * self.towards
            yield rows, self.family.mean(rows @ theta)

    def reward(self, mean: float, u: float) -> float:
        return self.start.reward(mean, u)


@dataclass(frozen=True, eq=False)
class Bent:
    """The predictor is x'θ + ((x'φ)² - 1)/2: no θ is right."""

    start: GLM
    bend: Vector
    family: Family = field(default_factory=Bernoulli)

    @property
    def dim(self) -> int:
        return self.start.dim

    def rounds(self, horizon: int, rng: np.random.Generator) -> Iterator[tuple[Matrix, Vector]]:
        for rows, _ in self.start.rounds(horizon, rng):
            eta = rows @ self.start.theta + 0.5 * (np.square(rows @ self.bend) - 1.0)
            yield rows, self.family.mean(eta)

    def reward(self, mean: float, u: float) -> float:
        return self.start.reward(mean, u)


def turning(seed: int, kind: Callable[[int], GLM]) -> Turning:
    start = kind(seed)
    direction = np.random.default_rng([seed, 10]).normal(size=start.dim)
    direction -= direction @ start.theta / (start.theta @ start.theta) * start.theta
    return Turning(start, direction * np.linalg.norm(start.theta) / np.linalg.norm(direction))


def bent(seed: int, kind: Callable[[int], GLM]) -> Bent:
    start = kind(seed)
    return Bent(start, draw_theta(start.dim, 3.0, np.random.default_rng([seed, 11])))


def rare(seed: int, *, again: bool) -> GLM:
    """A reward in some three of a hundred rounds: an intercept of -4, and effects beside it."""
    rng = np.random.default_rng([seed, 12])
    theta = np.concatenate([[-4.0], draw_theta(9, 3.0, rng)])
    rows = draw_rows((20, 9), "sphere", rng)
    table = np.concatenate([np.ones((20, 1)), rows], axis=1)
    return GLM(theta, 20, table if again else _with_ones(table, rng))


def _with_ones(table: Matrix, rng: np.random.Generator) -> Matrix:
    """Fifty users with rows of their own stand for fresh ones."""
    rows = draw_rows((50, *table[:, 1:].shape), "sphere", rng)
    return np.concatenate([np.ones((*rows.shape[:2], 1)), rows], axis=2)


QUIET = Gaussian(0.25)
COUNTS = Poisson()

WORLDS: dict[str, Callable[[int], Environment]] = {
    "fixed d5 K5": partial(fixed, dim=5, n_arms=5),
    "fresh d5 K5": partial(fresh, dim=5, n_arms=5),
    "fixed d20": partial(fixed, dim=20),
    "users d20": partial(users, dim=20),
    "fresh d20": partial(fresh, dim=20),
    "fixed d50": partial(fixed, dim=50),
    "fresh d50": partial(fresh, dim=50),
    "fixed K100": partial(fixed, n_arms=100),
    "fresh K100": partial(fresh, n_arms=100),
    "fixed norm 1": partial(fixed, norm=1.0),
    "fresh norm 1": partial(fresh, norm=1.0),
    "fixed norm 8": partial(fixed, norm=8.0),
    "users norm 8": partial(users, norm=8.0),
    "fresh norm 8": partial(fresh, norm=8.0),
    "rare, fixed": partial(rare, again=True),
    "rare, users": partial(rare, again=False),
    "Gaussian, fixed": partial(fixed, norm=1.0, family=QUIET),
    "Gaussian, fresh": partial(fresh, norm=1.0, family=QUIET),
    "Poisson, fixed": partial(fixed, norm=1.0, family=COUNTS),
    "Poisson, users": partial(users, norm=1.0, family=COUNTS),
    "turning, fixed": partial(turning, kind=fixed),
    "turning, users": partial(turning, kind=users),
    "bent, fixed": partial(bent, kind=fixed),
    "bent, users": partial(bent, kind=users),
}

#: Problems that are also run for 50,000 rounds.
LONG: dict[str, Callable[[int], Environment]] = {"fixed, long": fixed, "users, long": users}
