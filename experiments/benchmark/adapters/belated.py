"""belated: a `Bandit` as users have it, with ids, a journal and a ledger.

Fits are made in the calling thread, so that a run can be repeated exactly.
"""

from __future__ import annotations

import numpy as np

from adapters import Arrival, Problem
from belated import Bandit, Bernoulli, DelayedThompson, DelayedUCB, Explicit, Gaussian, PerArm
from belated.policies import Policy

POLICIES = {"DelayedUCB": DelayedUCB, "DelayedThompson": DelayedThompson}


class Default:
    """The default bandit, or another policy with its defaults."""

    def __init__(
        self, problem: Problem, *, policy: str | None = None, floor: float | None = None
    ) -> None:
        self.problem = problem
        self.family = Gaussian() if problem.numbers else Bernoulli()
        self.floor = floor
        chosen = None if policy is None else POLICIES[policy](**self.common)
        self.bandit = self.open(chosen)

    @property
    def common(self) -> dict:
        """Arguments of all policies."""
        dim = self.problem.dim if self.problem.shared else 0
        floor = 0.02 if self.floor is None else self.floor
        return {"dim": dim, "family": self.family, "floor": floor}

    def open(self, policy: Policy | None) -> Bandit:
        shared = self.problem.shared
        names = list(range(self.problem.arms))
        # The contexts have an intercept where there is one.
        features = None if shared else PerArm(names, context=self.problem.dim, intercept=False)
        if policy is None and shared:
            policy = DelayedUCB(**self.common)
        options = {"family": self.family, "floor": self.floor} if policy is None else {}
        return Bandit(
            features,
            rewards=Explicit(),
            policy=policy,
            seed=self.problem.seed,
            background_fits=False,
            **options,
        )

    def prepare(self, offered: np.ndarray) -> np.ndarray:
        return offered

    def choose(self, offer: np.ndarray) -> tuple[int, str]:
        if self.problem.shared:
            decision = self.bandit.decide(rows=offer)
        else:
            decision = self.bandit.decide(offer)
        return decision.index, decision.id

    def learn(self, arrivals: list[Arrival]) -> None:
        for arrival in arrivals:
            self.bandit.observe(arrival.note, arrival.reward)


class Tuned(Default):
    """`DelayedUCB` without a floor, with its width and ridge set."""

    def __init__(self, problem: Problem, *, alpha: float, ridge: float) -> None:
        self.problem, self.floor = problem, 0.0
        self.family = Gaussian() if problem.numbers else Bernoulli()
        self.bandit = self.open(DelayedUCB(alpha=alpha, ridge=ridge, **self.common))
