"""river: LinUCB, which has a θ for each action.

A shared θ is one Bayesian regression, the model that river's LinUCB has for each action, and its
rule: the row with the greatest mean plus standard deviation of the prediction.
"""

from __future__ import annotations

import numpy as np
from river.bandit import LinUCBDisjoint
from river.linear_model import BayesianLinearRegression

from adapters import Arrival, Problem

Row = dict[int, float]


class LinUCB:
    """river's LinUCB; ``ridge`` is the prior precision and ``beta`` that of the noise."""

    def __init__(self, problem: Problem, *, beta: float, ridge: float) -> None:
        self.problem = problem
        self.arms = list(range(problem.arms))
        self.model = BayesianLinearRegression(alpha=ridge, beta=beta)
        self.policy = LinUCBDisjoint(alpha=ridge, beta=beta, seed=problem.seed)

    def prepare(self, offered: np.ndarray) -> Row | list[Row]:
        if self.problem.shared:
            return [dict(enumerate(row)) for row in offered.tolist()]
        return dict(enumerate(offered.tolist()))

    def choose(self, offer: Row | list[Row]) -> tuple[int, None]:
        if not self.problem.shared:
            return self.policy.pull(self.arms, offer), None
        predicted = [self.model.predict_one(row, with_dist=True) for row in offer]
        bounds = [prediction.mu + prediction.sigma for prediction in predicted]
        return bounds.index(max(bounds)), None

    def learn(self, arrivals: list[Arrival]) -> None:
        for offer, index, _, reward in arrivals:
            centred = reward - self.problem.centre
            if self.problem.shared:
                self.model.learn_one(offer[index], centred)
            else:
                self.policy.update(index, offer, centred)
