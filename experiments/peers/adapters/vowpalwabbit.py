"""Vowpal Wabbit: contextual bandits with features of actions (cb_explore_adf).

Costs are 1 - y, in [0, 1], as its explorers expect; it has an intercept of its own.
"""

from __future__ import annotations

import numpy as np
from vowpalwabbit import Workspace

from adapters import Arrival


class Explorer:
    """An exploration of Vowpal Wabbit, given by its options."""

    def __init__(self, arms: int, dim: int, shared: bool, seed: int, *, options: str) -> None:
        self.shared = shared
        self.rng = np.random.default_rng(seed)
        crossed = "" if shared else "--interactions az --ignore_linear z"
        always = f"--cb_explore_adf --random_seed {seed} --quiet"
        self.workspace = Workspace(f"{always} {crossed} {options}")
        self.arms = [f"|a arm{arm}" for arm in range(arms)]

    def prepare(self, offered: np.ndarray) -> list[str]:
        if self.shared:
            return [f"|a {_features(row)}" for row in offered.tolist()]
        return [f"shared |z {_features(offered.tolist())}", *self.arms]

    def choose(self, offer: list[str]) -> tuple[int, float]:
        probabilities = self.workspace.predict(offer)
        # They are float32 and sum to 1 only nearly.
        index = int(np.searchsorted(np.cumsum(probabilities), self.rng.random()))
        index = min(index, len(probabilities) - 1)
        return index, probabilities[index]

    def learn(self, came: list[Arrival]) -> None:
        for offer, index, probability, reward in came:
            lines = offer.copy()
            line = index if self.shared else index + 1
            lines[line] = f"0:{1.0 - reward}:{probability} {offer[line]}"
            self.workspace.learn(lines)


def _features(row: list[float]) -> str:
    return " ".join(f"{i}:{value:.6g}" for i, value in enumerate(row) if value)
