"""Shops that report only conversions: problems, laws of delays, and ways to learn.

d = 6, x = (1, N(0, I)), θ = (-3.5, b) with |b| = 1, 10 actions, new in every round (``fresh``) or
the same throughout (``fixed``); the chosen ones convert in 12 to 14 % of the rounds. Delays are
drawn from a law that is cut off at the window W, so the share that converts within it is g(xᵀθ).
``const1000`` and ``batch1000`` are on the fixed rows of the library's own problem (d = 10, 20
actions, |θ| = 3): all conversions come after exactly 1,000 rounds, or at the end of every 1,000.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtr, ndtri

from belated import (
    Bernoulli,
    ConversionsOnly,
    DefaultAfter,
    DelayedThompson,
    DelayedUCB,
    delays,
    environments,
)
from belated.core.inputs import Matrix, Vector
from belated.core.rewards import Explicit, Rewards
from belated.model.estimators import Thinned
from belated.model.estimators.conversion_law import EDGES, ConversionLaw
from belated.model.estimators.thinned import AgedDecisions
from belated.model.families import Family
from belated.policies import Policy
from belated.simulation.environments import GLM

HORIZON = 10_000
POLICIES = ("ucb", "thompson")
#: Number of rounds whose rows are drawn together.
TOGETHER = 500


@dataclass(frozen=True, eq=False)
class Shop:
    """Rows with an intercept, new in every round or the same throughout."""

    seed: int
    fixed: bool
    intercept: float = -3.5
    family: Family = field(default_factory=Bernoulli)
    dim: int = 6
    actions: int = 10

    @property
    def theta(self) -> Vector:
        b = np.random.default_rng([self.seed, 30]).normal(size=self.dim - 1)
        return np.append(self.intercept, b / np.linalg.norm(b))

    def rounds(self, horizon: int, rng: np.random.Generator) -> Iterator[tuple[Matrix, Vector]]:
        if self.fixed:
            tables, means = self._drawn(1, np.random.default_rng([self.seed, 31]))
            yield from ((tables[0], means[0]) for _ in range(horizon))
            return
        for start in range(0, horizon, TOGETHER):
            tables, means = self._drawn(TOGETHER, rng)
            yield from zip(tables[: horizon - start], means, strict=False)

    def _drawn(self, count: int, rng: np.random.Generator) -> tuple[Vector, Vector]:
        rows = rng.normal(size=(count, self.actions, self.dim))
        rows[:, :, 0] = 1.0
        tables = rows.astype(np.float32).astype(np.float64)
        return tables, self.family.mean(tables @ self.theta)

    def reward(self, mean: float, u: float) -> float:
        return 1.0 if u < mean else 0.0


@dataclass(frozen=True)
class Cut:
    """Delays of a law that is cut off at the window: F is their share by an age, in rounds."""

    window: int
    tail: Callable[[Vector], Vector]
    quantile: Callable[[Vector], Vector]

    def sample(self, count: int, rng: np.random.Generator) -> NDArray[np.int64]:
        whole = float(self.share(np.array([self.window]))[0])
        values = np.ceil(self.quantile(rng.random(count) * whole))
        return np.clip(values, 1, self.window).astype(np.int64)

    def share(self, age: Vector) -> Vector:
        return 1.0 - self.tail(np.asarray(age, dtype=np.float64))


def exponential(window: int, mean: float) -> Cut:
    return Cut(window, lambda age: np.exp(-age / mean), lambda u: -mean * np.log1p(-u))


def weibull(window: int, mean: float, shape: float = 0.6) -> Cut:
    scale = mean / math.gamma(1.0 + 1.0 / shape)
    return Cut(
        window,
        lambda age: np.exp(-((age / scale) ** shape)),
        lambda u: scale * (-np.log1p(-u)) ** (1.0 / shape),
    )


def lognormal(window: int, mean: float, sigma: float = 1.0) -> Cut:
    median = mean * math.exp(-0.5 * sigma**2)
    return Cut(
        window,
        lambda age: ndtr(-np.log(np.maximum(age, 1e-300) / median) / sigma),
        lambda u: median * np.exp(sigma * ndtri(u)),
    )


def lomax(window: int, scale: float, shape: float = 1.2) -> Cut:
    return Cut(
        window,
        lambda age: (1.0 + age / scale) ** -shape,
        lambda u: scale * ((1.0 - u) ** (-1.0 / shape) - 1.0),
    )


@dataclass(frozen=True, eq=False)
class Known(Thinned):
    """The estimator with a known law."""

    truth: Vector = field(default_factory=lambda: np.empty(0))

    def law(self, data: AgedDecisions) -> ConversionLaw:
        return ConversionLaw(self.truth, np.zeros(len(EDGES)))


@dataclass(frozen=True)
class Problem:
    """A world, its delays and its window, in rounds."""

    world: Callable[[int], Shop | GLM]
    delay: Any  # a DelayProcess, as far as a simulation needs one
    window: int

    @property
    def truth(self) -> Vector:
        """The share of conversions that is seen by the ages of the estimator's cells."""
        age = np.maximum(EDGES * (self.window + 1) - 1.0, 0.0)  # seen in the round after
        if not isinstance(self.delay, Cut):
            return np.where(EDGES < 1.0, 0.0, 1.0)
        share = self.delay.share(np.minimum(age, self.window))
        return np.asarray(share / share[-1])

    def rewards(self, window: float) -> str:
        return f"{math.ceil(window) + 1}s"


PROBLEMS = {
    "fresh500": Problem(partial(Shop, fixed=False), exponential(2_000, 500.0), 2_000),
    "fresh3000": Problem(partial(Shop, fixed=False), exponential(5_000, 3_000.0), 5_000),
    "fixed500": Problem(partial(Shop, fixed=True), exponential(2_000, 500.0), 2_000),
    "fixed3000": Problem(partial(Shop, fixed=True), exponential(5_000, 3_000.0), 5_000),
    "lomax": Problem(partial(Shop, fixed=False), lomax(2_000, 100.0), 2_000),
    "const1000": Problem(environments.fixed, delays.Constant(999), 1_000),
    "batch1000": Problem(environments.fixed, delays.Batched(1_000), 1_000),
}

#: Ways to learn, by name: a change of the policy, and the meaning of a missing reward.
WAYS: dict[str, Callable[[Problem], tuple[dict[str, Any], Rewards]]] = {
    "conversions": lambda problem: ({}, ConversionsOnly(problem.rewards(problem.window))),
    "known F": lambda problem: (
        {"estimator": Known(truth=problem.truth)},
        ConversionsOnly(problem.rewards(problem.window), delivery="single"),
    ),
    "F-weight": lambda problem: (
        {"pending_weight": 0.0},
        ConversionsOnly(problem.rewards(problem.window)),
    ),
    "known F, F-weight": lambda problem: (
        {"estimator": Known(truth=problem.truth), "pending_weight": 0.0},
        ConversionsOnly(problem.rewards(problem.window), delivery="single"),
    ),
    "batches": lambda problem: (
        {},
        ConversionsOnly(problem.rewards(problem.window), delivery="batches"),
    ),
    "single": lambda problem: (
        {},
        ConversionsOnly(problem.rewards(problem.window), delivery="single"),
    ),
    "default W/10": lambda problem: ({}, DefaultAfter(problem.rewards(problem.window / 10))),
    "default W/2": lambda problem: ({}, DefaultAfter(problem.rewards(problem.window / 2))),
    "default W": lambda problem: ({}, DefaultAfter(problem.rewards(problem.window))),
    "flip": lambda problem: ({}, DefaultAfter("1s")),
    "hold": lambda problem: ({}, DefaultAfter(problem.rewards(problem.window), learn="together")),
    "uncounted": lambda problem: ({"pending_weight": 0.0}, Explicit()),
    "at once": lambda problem: ({}, Explicit()),
}


def policy_of(name: str, dim: int, more: dict[str, Any]) -> Policy:
    """Return a policy with the same settings for every way to learn."""
    if name == "ucb":
        return DelayedUCB(dim, Bernoulli(), alpha=0.75, ridge=1.0, **more)
    return DelayedThompson(dim, Bernoulli(), scale=0.7, ridge=1.0, **more)
