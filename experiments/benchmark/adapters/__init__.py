"""One file for each library: how it is asked for a choice and told of a reward.

An adapter is made for a :class:`Problem`. Where all actions share one θ, the rows of all actions
are offered; where every action has a θ of its own, one context is offered to all.
"""

from __future__ import annotations

from typing import Any, NamedTuple, Protocol

import numpy as np


class Problem(NamedTuple):
    """What an adapter may know before the first round.

    Attributes:
        arms: number of actions.
        dim: length of a row or context.
        shared: whether all actions share one θ.
        numbers: whether rewards are any numbers; otherwise they are 0 or 1.
        seed: of the adapter's own draws.
    """

    arms: int
    dim: int
    shared: bool
    numbers: bool
    seed: int

    @property
    def centre(self) -> float:
        """What linear learners subtract from rewards of 0 and 1.

        They start from a prediction of 0, the worst there is for such rewards.
        """
        return 0.0 if self.numbers else 0.5


class Arrival(NamedTuple):
    """A reward that arrived, with what was offered, the index chosen, and the adapter's note."""

    offer: Any
    index: int
    note: Any
    reward: float


class Adapter(Protocol):
    """A library as the benchmark sees it; settings are further keyword arguments."""

    def __init__(self, problem: Problem, **settings: Any) -> None: ...

    def prepare(self, offered: np.ndarray) -> Any:
        """Return what was offered as the library wants it. Not timed."""

    def choose(self, offer: Any) -> tuple[int, Any]:
        """Return the index of an action, and a note that comes back with the reward."""

    def learn(self, arrivals: list[Arrival]) -> None:
        """Learn the rewards that arrived since the last choice."""


def with_ridge(offered: np.ndarray, ridge: float) -> np.ndarray:
    """Return rows with which a linear learner whose ridge is 1 has this ridge."""
    return offered / np.sqrt(ridge)
