"""Vowpal Wabbit: contextual bandits with features of actions (cb_explore_adf).

Costs are 1 - y, in [0, 1] where rewards are 0 or 1, as its explorers expect. It has an intercept of
its own.
"""

from __future__ import annotations

import numpy as np
from vowpalwabbit import Workspace

from adapters import Arrival, Problem


class Explorer:
    """An exploration of Vowpal Wabbit; settings are options of its command line."""

    def __init__(self, problem: Problem, *, exploration: str, **settings: float) -> None:
        self.problem = problem
        self.rng = np.random.default_rng(problem.seed)
        crossed = "" if problem.shared else "--interactions az --ignore_linear z"
        always = f"--cb_explore_adf --random_seed {problem.seed} --quiet --{exploration}"
        options = " ".join(f"--{name} {value}" for name, value in settings.items())
        self.workspace = Workspace(f"{always} {crossed} {options}")
        self.arms = [f"|a arm{arm}" for arm in range(problem.arms)]

    def prepare(self, offered: np.ndarray) -> list[str]:
        if self.problem.shared:
            return [f"|a {_features(row)}" for row in offered.tolist()]
        return [f"shared |z {_features(offered.tolist())}", *self.arms]

    def choose(self, offer: list[str]) -> tuple[int, float]:
        probabilities = self.workspace.predict(offer)
        # They are float32 and sum to 1 only nearly.
        index = int(np.searchsorted(np.cumsum(probabilities), self.rng.random()))
        index = min(index, len(probabilities) - 1)
        return index, probabilities[index]

    def learn(self, arrivals: list[Arrival]) -> None:
        for offer, index, probability, reward in arrivals:
            lines = offer.copy()
            line = index if self.problem.shared else index + 1
            lines[line] = f"0:{1.0 - reward}:{probability} {offer[line]}"
            self.workspace.learn(lines)


def _features(row: list[float]) -> str:
    return " ".join(f"{i}:{value:.6g}" for i, value in enumerate(row) if value)
