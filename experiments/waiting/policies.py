"""The default policy after a warm-up: of fixed length, or until enough is known."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import KW_ONLY, dataclass, field
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np
from numpy.linalg import eigvalsh

from belated import DelayedUCB
from belated.core.inputs import Matrix, Vector
from belated.model.model import Model
from belated.policies import Choice, Policy, Warmup
from belated.policies.uniform import uniform_choice
from belated.simulation.environments import Environment
from experiments.regret.policies import (
    DELAYS as ALL_DELAYS,
    HORIZON,
    POLICIES,
    WORLDS as ALL_WORLDS,
)

__all__ = ["DEFAULT", "DELAYS", "HORIZON", "LENGTHS", "RULES", "WAITS", "WORLDS"]

WORLDS = {name: ALL_WORLDS[name] for name in ("fixed", "fresh")}
DELAYS = {name: ALL_DELAYS[name] for name in ("0", "geo100", "geo1000")}
DEFAULT = "no warm-up"
LENGTHS = (50, 200, 1000)
#: Eigenvalues that W must reach.
LEAST = (1.0, 4.0, 16.0)


@dataclass(frozen=True)
class WaitingUCB(DelayedUCB):
    """Uniform until λ_min(W) ≥ ``least`` (Alg. 1, l. 2), then the default.

    W is the sum of x xᵀ over the decisions whose rewards have arrived. A model keeps the same sum
    with weights, so this one is kept here.
    """

    _: KW_ONLY
    least: float
    _arrived: WeakKeyDictionary[Model, Matrix | None] = field(
        default_factory=WeakKeyDictionary, init=False, repr=False, compare=False
    )

    def choose(self, model: Model, rows: Any, rng: np.random.Generator) -> Choice:
        if model not in self._arrived:
            self._arrived[model] = count_arrivals(model)
        arrived = self._arrived[model]
        if arrived is not None and eigvalsh(arrived)[0] >= self.least:
            arrived = self._arrived[model] = None  # W only grows
        if arrived is None:
            return super().choose(model, rows, rng)
        return uniform_choice(model, rows, rng)


def count_arrivals(model: Model) -> Matrix:
    """A matrix to which the row of every reward that this model learns is added."""
    arrived = np.zeros((model.dim, model.dim))
    learn = model.learn

    def count(x: Vector, y: float, share: float = 1.0) -> float:
        arrived[:] += np.outer(x, x)
        return learn(x, y, share)

    model.learn = count  # type: ignore[method-assign]
    return arrived


def for_rounds(rounds: int) -> Callable[[Environment], Policy]:
    return lambda world: Warmup(POLICIES["DelayedUCB"](world), rounds=rounds)


def waiting(least: float) -> Callable[[Environment], Policy]:
    return lambda world: WaitingUCB(world.dim, world.family, least=least)


#: Warm-ups of unknown length.
WAITS = {f"λ_min(W) ≥ {least:g}": waiting(least) for least in LEAST}
RULES: dict[str, Callable[[Environment], Policy]] = {
    DEFAULT: POLICIES["DelayedUCB"],
    **{f"{rounds:,} rounds": for_rounds(rounds) for rounds in LENGTHS},
    **WAITS,
}
