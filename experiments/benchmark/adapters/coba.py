"""coba: LinUCB over features of actions, crossed with the context where actions have a θ each."""

from __future__ import annotations

from typing import Any

import numpy as np
from coba.learners import LinUCBLearner

from adapters import Arrival, Problem, with_ridge

Row = tuple[float, ...]


class LinUCB:
    """coba's LinUCB."""

    def __init__(self, problem: Problem, *, alpha: float, ridge: float) -> None:
        self.problem, self.ridge = problem, ridge
        features = ["a" if problem.shared else "ax"]
        self.learner = LinUCBLearner(alpha=alpha, features=features, seed=problem.seed)
        self.arms = [tuple(arm) for arm in np.eye(problem.arms).tolist()]

    def prepare(self, offered: np.ndarray) -> tuple[Any, list[Row]]:
        rows = with_ridge(offered, self.ridge)
        if self.problem.shared:
            return None, [tuple(row) for row in rows.tolist()]
        return tuple(rows.tolist()), self.arms

    def choose(self, offer: tuple[Any, list[Row]]) -> tuple[int, float]:
        context, actions = offer
        action, probability = self.learner.predict(context, actions)
        return actions.index(action), probability

    def learn(self, arrivals: list[Arrival]) -> None:
        for (context, actions), index, probability, reward in arrivals:
            centred = reward - self.problem.centre
            self.learner.learn(context, actions[index], centred, probability)
