"""contextualbandits: LinUCB.

Its actions have a θ each; a shared θ is one action whose score is asked on every row.
"""

from __future__ import annotations

import numpy as np
from contextualbandits import online

from adapters import Arrival, Problem


class LinUCB:
    """contextualbandits' LinUCB, in double precision."""

    def __init__(self, problem: Problem, *, alpha: float, ridge: float) -> None:
        self.problem = problem
        self.policy = online.LinUCB(
            2 if problem.shared else problem.arms,  # at least two: the second stays idle
            alpha=alpha,
            lambda_=ridge,
            fit_intercept=False,  # the contexts have one where there is one
            use_float=False,
            random_state=problem.seed + 1,  # it refuses 0
        )

    def prepare(self, offered: np.ndarray) -> np.ndarray:
        return offered if self.problem.shared else offered[None]

    def choose(self, offer: np.ndarray) -> tuple[int, None]:
        if self.problem.shared:
            return int(self.policy.decision_function(offer)[:, 0].argmax()), None
        return int(self.policy.predict(offer)[0]), None

    def learn(self, arrivals: list[Arrival]) -> None:
        shared = self.problem.shared
        arms = np.array([0 if shared else arrival.index for arrival in arrivals])
        rows = np.array([arrival.offer[arrival.index if shared else 0] for arrival in arrivals])
        rewards = np.array([arrival.reward for arrival in arrivals]) - self.problem.centre
        self.policy.partial_fit(rows, arms, rewards)
