"""bayesianbandits: a Bayesian logistic regression by Laplace's approximation.

Its learners are asked directly, one for all rows or one for each arm: around them its agents do no
more than take the greatest value, for Thompson of a draw and for greedy of the mean.
"""

from __future__ import annotations

from itertools import groupby

import numpy as np
from bayesianbandits import BayesianGLM

from adapters import Arrival


class Logistic:
    """Thompson sampling, or greedy; ``alpha`` is the prior precision."""

    def __init__(
        self, arms: int, dim: int, shared: bool, seed: int, *, thompson: bool, alpha: float
    ) -> None:
        self.shared = shared
        self.thompson = thompson
        rng = np.random.default_rng(seed)
        self.learners = [
            BayesianGLM(alpha=alpha, link="logit", random_state=rng)
            for _ in range(1 if shared else arms)
        ]

    def prepare(self, offered: np.ndarray) -> np.ndarray:
        return offered if self.shared else offered[None]

    def choose(self, offer: np.ndarray) -> tuple[int, None]:
        values = [
            learner.sample(offer) if self.thompson else learner.predict(offer)
            for learner in self.learners
        ]
        return int(np.argmax(values)), None

    def learn(self, came: list[Arrival]) -> None:
        if self.shared:
            rows = np.array([one.offer[one.index] for one in came])
            self.learners[0].partial_fit(rows, np.array([one.reward for one in came]))
            return
        for arm, group in groupby(sorted(came, key=_arm), key=_arm):
            of = list(group)
            rows = np.concatenate([one.offer for one in of])
            self.learners[arm].partial_fit(rows, np.array([one.reward for one in of]))


def _arm(one: Arrival) -> int:
    return one.index
