"""river: LinUCB, which has a θ for each arm.

A shared θ is one Bayesian regression, the model that river's LinUCB has in each arm, and its rule:
the row with the greatest mean plus standard deviation of the prediction.
"""

from __future__ import annotations

import numpy as np
from river.bandit import LinUCBDisjoint
from river.linear_model import BayesianLinearRegression

from adapters import CENTRE, Arrival

Row = dict[int, float]


class LinUCB:
    """river's LinUCB; ``alpha`` is the prior precision and ``beta`` that of the noise."""

    def __init__(
        self, arms: int, dim: int, shared: bool, seed: int, *, alpha: float, beta: float
    ) -> None:
        self.shared = shared
        self.arms = list(range(arms))
        self.model = BayesianLinearRegression(alpha=alpha, beta=beta)
        self.policy = LinUCBDisjoint(alpha=alpha, beta=beta, seed=seed)

    def prepare(self, offered: np.ndarray) -> Row | list[Row]:
        if self.shared:
            return [dict(enumerate(row)) for row in offered.tolist()]
        return dict(enumerate(offered.tolist()))

    def choose(self, offer: Row | list[Row]) -> tuple[int, None]:
        if not self.shared:
            return self.policy.pull(self.arms, offer), None
        predicted = [self.model.predict_one(row, with_dist=True) for row in offer]
        bounds = [one.mu + one.sigma for one in predicted]
        return bounds.index(max(bounds)), None

    def learn(self, came: list[Arrival]) -> None:
        for offer, index, _, reward in came:
            if self.shared:
                self.model.learn_one(offer[index], reward - CENTRE)
            else:
                self.policy.update(index, offer, reward - CENTRE)
