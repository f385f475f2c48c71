"""bayesianbandits: a Bayesian logistic regression by Laplace's approximation, or a linear one.

Its learners are asked directly, one for all rows or one for each action: around them its agents
only take the greatest value, for Thompson of a draw and for greedy of the mean.
"""

from __future__ import annotations

from itertools import groupby

import numpy as np
from bayesianbandits import BayesianGLM, NormalRegressor

from adapters import Arrival, Problem


class Bayesian:
    """Thompson sampling, or greedy; ``ridge`` is the prior precision."""

    def __init__(self, problem: Problem, *, thompson: bool, ridge: float) -> None:
        self.problem, self.thompson = problem, thompson
        rng = np.random.default_rng(problem.seed)
        self.learners = [
            NormalRegressor(alpha=ridge, beta=1.0, random_state=rng)
            if problem.numbers
            else BayesianGLM(alpha=ridge, link="logit", random_state=rng)
            for _ in range(1 if problem.shared else problem.arms)
        ]

    def prepare(self, offered: np.ndarray) -> np.ndarray:
        return offered if self.problem.shared else offered[None]

    def choose(self, offer: np.ndarray) -> tuple[int, None]:
        values = [
            learner.sample(offer) if self.thompson else learner.predict(offer)
            for learner in self.learners
        ]
        return int(np.argmax(values)), None

    def learn(self, arrivals: list[Arrival]) -> None:
        if self.problem.shared:
            self._fit(0, [arrival.offer[[arrival.index]] for arrival in arrivals], arrivals)
            return
        for index, group in groupby(sorted(arrivals, key=_index), key=_index):
            of_index = list(group)
            self._fit(index, [arrival.offer for arrival in of_index], of_index)

    def _fit(self, learner: int, rows: list[np.ndarray], arrivals: list[Arrival]) -> None:
        rewards = np.array([arrival.reward for arrival in arrivals])
        self.learners[learner].partial_fit(np.concatenate(rows), rewards)


def _index(arrival: Arrival) -> int:
    return arrival.index
