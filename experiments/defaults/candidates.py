"""Candidates for the default: widths and priors of UCB, randomized UCB, scales of Thompson."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from belated import DelayedThompson, DelayedUCB
from belated.model.model import Model
from belated.policies import Policy
from belated.simulation.environments import Environment


@dataclass(frozen=True)
class DimensionalUCB(DelayedUCB):
    """The width .4 √(d/2 log(1 + 2n/d) + log 20), which carries the dimension."""

    def width(self, model: Model) -> float:
        return 0.4 * math.sqrt(
            0.5 * self.dim * math.log1p(2.0 * model.n / self.dim) + math.log(20.0)
        )


def _of(kind: type[Policy], **settings: Any) -> Callable[[Environment], Policy]:
    def make(world: Environment) -> Policy:
        return kind(world.dim, world.family, **settings)

    make.__name__ = f"{kind.__name__} {settings}"  # tells runs apart when a sweep goes on
    return make


CANDIDATES: dict[str, Callable[[Environment], Policy]] = {
    "UCB .95": _of(DelayedUCB, alpha=0.95, ridge="auto"),
    "UCB .95, ridge 1": _of(DelayedUCB, alpha=0.95, ridge=1.0),
    "UCB .75": _of(DelayedUCB, alpha=0.75, ridge="auto"),
    "UCB .4 L, ridge 1": _of(DimensionalUCB, ridge=1.0),
    "Rayleigh .85": _of(DelayedUCB, alpha=0.85, randomized=True, ridge="auto"),
    "Thompson .5": _of(DelayedThompson, scale=0.5, ridge="auto"),
    "Thompson .7": _of(DelayedThompson, scale=0.7, ridge="auto"),
    "Thompson .7, ridge 1": _of(DelayedThompson, scale=0.7, ridge=1.0),
}
