"""One policy with one width, and what it makes of pending decisions."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from belated import DelayedUCB
from belated.model.model import Model
from belated.policies import Policy
from belated.simulation.environments import Environment
from experiments.regret.policies import DELAYS as ALL_DELAYS, HORIZON, WORLDS

__all__ = ["DEFAULT", "DELAYS", "HORIZON", "VARIANTS", "WORLDS"]

#: Rewards that never come are another question.
DELAYS = {name: delay for name, delay in ALL_DELAYS.items() if name != "never30"}


@dataclass(frozen=True)
class RootWidthUCB(DelayedUCB):
    """DelayedUCB with the paper's √G_t, times ``missing_weight``, added to its width."""

    missing_weight: float = 0.0

    def width(self, model: Model) -> float:
        return super().width(model) + self.missing_weight * math.sqrt(model.pending)


def ucb(pending: float, missing: float) -> Callable[[Environment], Policy]:
    def make(world: Environment) -> Policy:
        weights = {"pending_weight": pending, "missing_weight": missing}
        return RootWidthUCB(world.dim, world.family, **weights)

    return make


DEFAULT = "pending 1 (default)"
VARIANTS: dict[str, Callable[[Environment], Policy]] = {
    DEFAULT: ucb(1.0, 0.0),
    "pending 0 (blind)": ucb(0.0, 0.0),
    "pending 1 + √G (paper)": ucb(1.0, 1.0),
    "pending 0 + √G": ucb(0.0, 1.0),
    "pending ½": ucb(0.5, 0.0),
}
