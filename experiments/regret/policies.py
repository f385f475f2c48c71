"""The policies of the regret table, and the width they are compared with."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from belated import (
    BlindThompson,
    BlindUCB,
    DelayedThompson,
    DelayedUCB,
    Greedy,
    delays,
    environments,
)
from belated.delays import DelayProcess
from belated.model.model import Model
from belated.policies import Policy
from belated.simulation.environments import Environment

HORIZON = 10_000

WORLDS: dict[str, Callable[[int], Environment]] = {
    "fixed": environments.fixed,
    "users": environments.users,
    "fresh": environments.fresh,
}

DELAYS: dict[str, DelayProcess] = {
    "0": delays.Constant(0),
    "geo100": delays.Geometric(mean=100),
    "geo1000": delays.Geometric(mean=1000),
    "lomax": delays.Lomax(shape=1.2, scale=100),
    "const1000": delays.Constant(1000),
    "batch1000": delays.Batched(1000),
    "never30": delays.Mixture(never=0.3, base=delays.Geometric(mean=100)),
}


@dataclass(frozen=True)
class DimensionalUCB(DelayedUCB):
    """The width .4 √(d/2 log(1 + 2n/d) + log 20), which carries the dimension."""

    def width(self, model: Model) -> float:
        return 0.4 * math.sqrt(
            0.5 * self.dim * math.log1p(2.0 * model.n / self.dim) + math.log(20.0)
        )


def _ucb(world: Environment) -> Policy:
    return DelayedUCB(world.dim, world.family)


def _dimensional(world: Environment) -> Policy:
    return DimensionalUCB(world.dim, world.family, ridge=1.0)


def _rayleigh(world: Environment) -> Policy:
    return DelayedUCB(world.dim, world.family, randomized=True)


def _thompson(world: Environment) -> Policy:
    return DelayedThompson(world.dim, world.family)


def _blind(world: Environment) -> Policy:
    return BlindUCB(world.dim, world.family)


def _paper_thompson(world: Environment) -> Policy:
    return BlindThompson(world.dim, world.family, scale=1.0, ridge=1.0)


def _greedy(world: Environment) -> Policy:
    return Greedy(world.dim, world.family, ridge=1.0)


POLICIES: dict[str, Callable[[Environment], Policy]] = {
    "DelayedUCB": _ucb,
    "DelayedUCB, .4 L_t": _dimensional,
    "DelayedUCB, randomized": _rayleigh,
    "DelayedThompson": _thompson,
    "BlindUCB": _blind,
    "BlindThompson, scale 1": _paper_thompson,
    "Greedy": _greedy,
}
