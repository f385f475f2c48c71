"""One file for each library: how it is asked for a choice and told of a reward.

An adapter is made for K arms and rows of d numbers. Where θ is shared, K rows are offered, one for
each arm; where every arm has a θ of its own, one context is offered to all arms.

Linear learners are told y - 1/2 instead of y: they start from a prediction of 0, which with rewards
of 0 and 1 is the worst there is, and do far worse without.
"""

from __future__ import annotations

from typing import Any, NamedTuple, Protocol

import numpy as np

CENTRE = 0.5


class Arrival(NamedTuple):
    """A reward that came, with the decision it belongs to."""

    offer: Any
    index: int
    note: Any
    reward: float


class Adapter(Protocol):
    """A library as the runner sees it."""

    def prepare(self, offered: np.ndarray) -> Any:
        """What was offered, as the library wants it. Not timed."""

    def choose(self, offer: Any) -> tuple[int, Any]:
        """The index of an arm, and what the library wants to be told again with the reward."""

    def learn(self, came: list[Arrival]) -> None:
        """Learn the rewards that came since the last choice."""
