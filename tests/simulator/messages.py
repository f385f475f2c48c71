"""What clients say to servers, and what these answer."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from belated.events import Activation, Decision, Reward, Void
from belated.inputs import Row
from tests.simulator.schedule import stream


@dataclass(frozen=True)
class DecisionRequest:
    """Decisions are wanted: one under a name, or some under ids that the bandit makes."""

    name: str | None
    count: int = 1
    activated: bool = True


DecisionEvent = Activation | Reward | Void
Request = DecisionRequest | DecisionEvent
#: Decisions, or the status of what was told.
Answer = list[Decision] | str
Reply = Callable[[Answer], None]

#: Where a value cannot be taken: to try again would be of no use.
REFUSED = "refused"


class Server(Protocol):
    """Who answers clients."""

    def receive(self, what: Request, reply: Reply) -> None:
        """Answer, or not."""


def rows_of(name: str, dim: int) -> Row:
    """What is offered under a name: the same again in a retry.

    >>> rows_of("order-17", 2).shape
    (3, 2)
    """
    rng = stream(0, name)
    return np.array([[rng.gauss(0, 1) for _ in range(dim)] for _ in range(3)], dtype=np.float32)
