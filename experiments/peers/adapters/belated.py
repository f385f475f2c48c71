"""belated itself: by the calls that ``simulate`` makes and in the same order, or as users do."""

from __future__ import annotations

import numpy as np

import belated
from adapters import Arrival
from belated import Bandit, Bernoulli, Explicit
from belated.fold.learner import Learner
from belated.model import kernels
from belated.model.estimators import Laplace, Online
from belated.simulation.environments import in_blocks


class Delayed:
    """A policy of belated with its default settings; ``fits=False``: steps alone (``Online``)."""

    def __init__(
        self,
        arms: int,
        dim: int,
        shared: bool,
        seed: int,
        *,
        policy: str,
        using: str = "best",
        fits: bool = True,
    ) -> None:
        self.shared = shared
        self.arms = arms
        width = dim if shared else arms * dim
        estimator = Laplace() if fits else Online()
        self.policy = getattr(belated, policy)(width, Bernoulli(), estimator=estimator)
        self.learner = Learner(self.policy, kernels=getattr(kernels, using)())
        self.rng = np.random.default_rng(np.random.SeedSequence(seed).spawn(4)[3])

    def prepare(self, offered: np.ndarray) -> np.ndarray:
        return offered if self.shared else in_blocks(offered, self.arms)

    def choose(self, offer: np.ndarray) -> tuple[int, float]:
        choice = self.policy.choose(self.learner.model, offer, self.rng)
        self.learner.add_pending(offer[choice.index], choice.weight)
        return choice.index, choice.weight

    def learn(self, came: list[Arrival]) -> None:
        for offer, index, weight, reward in came:
            self.learner.learn(offer[index], reward, weight)


class Whole(Delayed):
    """The same policy behind ``decide`` and ``observe``: ids, events, a journal and a ledger."""

    def __init__(
        self, arms: int, dim: int, shared: bool, seed: int, *, policy: str, using: str = "best"
    ) -> None:
        super().__init__(arms, dim, shared, seed, policy=policy, using=using)
        self.bandit = Bandit(
            policy=self.policy,
            rewards=Explicit("7d"),
            kernels=getattr(kernels, using)(),
            seed=seed,
            keep_requests=0.0,
        )

    def choose(self, offer: np.ndarray) -> tuple[int, str]:
        decision = self.bandit.decide(rows=offer)
        return decision.index, decision.id

    def learn(self, came: list[Arrival]) -> None:
        for _, _, name, reward in came:
            self.bandit.observe(name, reward)
