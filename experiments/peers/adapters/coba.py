"""coba: LinUCB over features of actions, crossed with the context where arms have a θ each."""

from __future__ import annotations

from typing import Any

import numpy as np
from coba.learners import LinUCBLearner

from adapters import CENTRE, Arrival


class LinUCB:
    """coba's LinUCB; its ridge is 1."""

    def __init__(self, arms: int, dim: int, shared: bool, seed: int, *, alpha: float) -> None:
        self.shared = shared
        self.learner = LinUCBLearner(alpha=alpha, features=["a" if shared else "ax"], seed=seed)
        self.arms = [tuple(arm) for arm in np.eye(arms).tolist()]

    def prepare(self, offered: np.ndarray) -> tuple[Any, list[tuple[float, ...]]]:
        if self.shared:
            return None, [tuple(row) for row in offered.tolist()]
        return tuple(offered.tolist()), self.arms

    def choose(self, offer: tuple[Any, list[tuple[float, ...]]]) -> tuple[int, float]:
        context, actions = offer
        action, probability = self.learner.predict(context, actions)
        return actions.index(action), probability

    def learn(self, came: list[Arrival]) -> None:
        for (context, actions), index, probability, reward in came:
            self.learner.learn(context, actions[index], reward - CENTRE, probability)
