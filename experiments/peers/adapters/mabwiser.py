"""mabwiser: LinUCB and LinTS.

Its arms have a θ each. A shared θ is one arm that is asked for its expectation on every row; LinTS
then draws a θ for each row instead of one for all, for there is no other way to ask it.
"""

from __future__ import annotations

import numpy as np
from mabwiser.mab import MAB, LearningPolicy

from adapters import CENTRE, Arrival


class Linear:
    """A linear policy of mabwiser, LinUCB or LinTS."""

    def __init__(
        self, arms: int, dim: int, shared: bool, seed: int, *, policy: str, alpha: float
    ) -> None:
        self.shared = shared
        chosen = getattr(LearningPolicy, policy)(alpha=alpha, l2_lambda=1.0)
        self.bandit = MAB([0] if shared else list(range(arms)), chosen, seed=seed)
        # It must be fitted before it is asked; a context of zeros teaches it nothing.
        self.bandit.fit([0], [0.0], np.zeros((1, dim)))

    def prepare(self, offered: np.ndarray) -> np.ndarray:
        return offered if self.shared else offered[None]

    def choose(self, offer: np.ndarray) -> tuple[int, None]:
        if self.shared:
            expectations = [of[0] for of in self.bandit.predict_expectations(offer)]
            return int(np.argmax(expectations)), None
        return self.bandit.predict(offer), None

    def learn(self, came: list[Arrival]) -> None:
        arms = [0 if self.shared else one.index for one in came]
        rows = np.array([one.offer[one.index if self.shared else 0] for one in came])
        self.bandit.partial_fit(arms, [one.reward - CENTRE for one in came], rows)
