"""One run of the default policy, and how far its estimate is from θ* on the way.

The policy is ``DelayedUCB`` as it comes, d = 10 features, 20 rows a round, logistic rewards that
come a geometric time of mean 100 later. In a round t, θ̂ is the fit of what has arrived by then,
V counts every decision so far as x xᵀ and H counts it as g'(xᵀθ̂) x xᵀ on top of the prior's I,
pending ones included: what a width is multiplied with. So with Δ = θ̂ - θ* four errors are
measured, and a width that is at least

* ``gram``, √(ΔᵀVΔ), holds for every direction at once in the metric of the paper;
* ``hessian``, √(ΔᵀHΔ), holds for every direction at once in the metric of this library;
* ``rows``, the largest abs(xᵀΔ)/√(xᵀH⁻¹x) of the rows on offer, holds for all of these;
* ``best``, -xᵀΔ/√(xᵀH⁻¹x) of the best row on offer, keeps its upper bound above the truth: all
  that optimism asks for.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np

from belated import Bernoulli, DelayedUCB, delays, environments, simulate
from belated.core.inputs import Matrix, Vector
from belated.exceptions import DelayWarning
from belated.model.blocks import root_of
from belated.model.estimators import Laplace
from belated.model.families import Family
from belated.model.statistics import Observations
from belated.simulation import Trace
from belated.simulation.environments import GLM
from experiments.parallel import Rows

DIM = 10
FAMILY = Bernoulli()
WORLDS = {"fresh": environments.fresh, "fixed": environments.fixed}
#: ‖θ*‖.
NORMS = (1, 3, 5, 8)
ROUNDS = (400, 800, 1500, 3000)
DELAY = delays.Geometric(mean=100)


@dataclass(frozen=True)
class Remembered:
    """A problem that keeps the rows it offered."""

    world: GLM
    offered: list[Matrix] = field(default_factory=list)

    @property
    def dim(self) -> int:
        return self.world.dim

    @property
    def family(self) -> Family:
        return self.world.family

    def rounds(self, horizon: int, rng: np.random.Generator) -> Iterator[tuple[Matrix, Vector]]:
        for rows, means in self.world.rounds(horizon, rng):
            self.offered.append(rows)
            yield rows, means

    def reward(self, mean: float, u: float) -> float:
        return self.world.reward(mean, u)


def measure(world: str, norm: int, seed: int) -> Rows:
    """The errors of one run in each of the rounds."""
    problem = WORLDS[world](seed, dim=DIM, norm=norm)
    remembered = Remembered(problem)
    policy = DelayedUCB(DIM, FAMILY)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DelayWarning)
        trace = simulate(policy, remembered, DELAY, horizon=max(ROUNDS), seed=seed)
    chosen = np.stack([rows[i] for rows, i in zip(remembered.offered, trace.actions, strict=True)])
    cell = {"environment": world, "norm": norm, "seed": seed}
    return [
        cell | {"round": t} | _errors(policy, problem.theta, trace, chosen, remembered.offered, t)
        for t in ROUNDS
    ]


def _errors(
    policy: DelayedUCB, theta: Vector, trace: Trace, chosen: Matrix, offered: list[Matrix], t: int
) -> dict[str, float]:
    before = np.arange(1, t)
    arrived = before + trace.delay[: t - 1] <= t - 1
    decided = chosen[: t - 1]
    seen = Observations(DIM)
    seen.extend(decided[arrived], trace.rewards[: t - 1][arrived])
    estimate = Laplace().fit(seen, family=FAMILY, prior=policy.start)
    error = estimate.theta - theta
    weights = FAMILY.slope(decided @ estimate.theta)
    hessian = policy.start.precision + (decided * weights[:, None]).T @ decided
    rows = offered[t - 1]
    off = rows @ error / np.linalg.norm(rows @ root_of(hessian), axis=1)
    return {
        "arrived": int(arrived.sum()),
        "missing": int((~arrived).sum()),
        "inflation": _inflation(policy.start.precision, decided, arrived),
        "gram": float(np.linalg.norm(decided @ error)),
        "hessian": math.sqrt(error @ hessian @ error),
        "rows": float(np.abs(off).max()),
        "best": -float(off[np.argmax(rows @ theta)]),
    }


def _inflation(prior: Matrix, decided: Matrix, arrived: Vector) -> float:
    """ψ = √λ_max(W⁻¹V), the prior in both."""
    root = root_of(prior + decided[arrived].T @ decided[arrived])
    spread = decided @ root
    return math.sqrt(np.linalg.eigvalsh(root.T @ prior @ root + spread.T @ spread)[-1])
