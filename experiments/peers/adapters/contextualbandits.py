"""contextualbandits: LinUCB.

Its arms have a θ each; a shared θ is one arm whose score is asked on every row.
"""

from __future__ import annotations

import numpy as np
from contextualbandits import online

from adapters import CENTRE, Arrival


class LinUCB:
    """contextualbandits' LinUCB, in double precision; its ridge is 1."""

    def __init__(self, arms: int, dim: int, shared: bool, seed: int, *, alpha: float) -> None:
        self.shared = shared
        self.policy = online.LinUCB(
            2 if shared else arms,  # it takes no fewer than two arms: the second stays idle
            alpha=alpha,
            fit_intercept=False,  # the contexts have one where there is one
            use_float=False,
            random_state=seed + 1,  # it refuses 0
        )

    def prepare(self, offered: np.ndarray) -> np.ndarray:
        return offered if self.shared else offered[None]

    def choose(self, offer: np.ndarray) -> tuple[int, None]:
        if self.shared:
            return int(self.policy.decision_function(offer)[:, 0].argmax()), None
        return int(self.policy.predict(offer)[0]), None

    def learn(self, came: list[Arrival]) -> None:
        arms = np.array([0 if self.shared else one.index for one in came])
        rows = np.array([one.offer[one.index if self.shared else 0] for one in came])
        rewards = np.array([one.reward for one in came]) - CENTRE
        self.policy.partial_fit(rows, arms, rewards)
