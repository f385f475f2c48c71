"""mabwiser: LinUCB and LinTS.

Its actions have a θ each. A shared θ is one action that is asked for its expectation on every row;
LinTS then draws a θ for each row instead of one for all, because there is no other way to ask it.
"""

from __future__ import annotations

import numpy as np
from mabwiser.mab import MAB, LearningPolicy

from adapters import Arrival, Problem, with_ridge


class Linear:
    """A linear policy of mabwiser, LinUCB or LinTS."""

    def __init__(self, problem: Problem, *, policy: str, alpha: float, ridge: float) -> None:
        self.problem, self.ridge = problem, ridge
        # Its own ridge is kept at 1: another one starts from its inverse.
        chosen = getattr(LearningPolicy, policy)(alpha=alpha, l2_lambda=1.0)
        arms = [0] if problem.shared else list(range(problem.arms))
        self.bandit = MAB(arms, chosen, seed=problem.seed)
        # It must be fitted before it is asked; a context of zeros teaches it nothing.
        self.bandit.fit([0], [0.0], np.zeros((1, problem.dim)))

    def prepare(self, offered: np.ndarray) -> np.ndarray:
        rows = with_ridge(offered, self.ridge)
        return rows if self.problem.shared else rows[None]

    def choose(self, offer: np.ndarray) -> tuple[int, None]:
        if self.problem.shared:
            expectations = [by_arm[0] for by_arm in self.bandit.predict_expectations(offer)]
            return int(np.argmax(expectations)), None
        return self.bandit.predict(offer), None

    def learn(self, arrivals: list[Arrival]) -> None:
        shared, centre = self.problem.shared, self.problem.centre
        arms = [0 if shared else arrival.index for arrival in arrivals]
        rows = np.array([arrival.offer[arrival.index if shared else 0] for arrival in arrivals])
        self.bandit.partial_fit(arms, [arrival.reward - centre for arrival in arrivals], rows)
