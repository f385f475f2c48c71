"""One of each policy, and a model that has learned, for tests of policies."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from belated import (
    Bernoulli,
    BlindThompson,
    BlindUCB,
    DelayedThompson,
    DelayedUCB,
    EpsilonGreedy,
    Greedy,
    Uniform,
    WaitForWindow,
    paper_dts,
    paper_dts_lcb,
    paper_ducb,
)
from belated.fold.learner import Learner
from belated.model.kernels import Kernels
from belated.policies import Policy

B = Bernoulli()
MAKE: dict[str, Callable[[], Policy]] = {
    "ucb": lambda: DelayedUCB(3, B),
    "ucb-floor": lambda: DelayedUCB(3, B, floor=0.1),
    "ucb-gram": lambda: DelayedUCB(3, B, metric="gram"),
    "randomized": lambda: DelayedUCB(3, B, randomized=True),
    "randomized-floor": lambda: DelayedUCB(3, B, randomized=True, floor=0.1),
    "thompson": lambda: DelayedThompson(3, B),
    "thompson-floor": lambda: DelayedThompson(3, B, floor=0.1),
    "blind-ucb": lambda: BlindUCB(3, B),
    "blind-thompson": lambda: BlindThompson(3, B),
    "waiting": lambda: WaitForWindow(3, B, window=5),
    "greedy": lambda: Greedy(3, B),
    "epsilon-greedy": lambda: EpsilonGreedy(3, B),
    "uniform": lambda: Uniform(3, B),
    "ducb": lambda: paper_ducb(3, B, 1.0, warmup=0, ridge=1.0),
    "dts": lambda: paper_dts(3, B),
    "dts-lcb": lambda: paper_dts_lcb(3),
    "warming": lambda: paper_dts(3, B, warmup=1000),
}
every_policy = pytest.mark.parametrize("name", MAKE)


def rng(seed: int = 0) -> np.random.Generator:
    """A generator."""
    return np.random.default_rng(seed)


def busy(policy: Policy, decisions: int = 40, using: Kernels | None = None) -> Learner:
    """A learner after so many decisions on random rows, and three quarters of their rewards."""
    source = rng(3)
    learner = Learner(policy, kernels=using)
    rows = source.normal(size=(decisions, policy.dim)).astype(np.float32).astype(np.float64) / 2.0
    for number, x in enumerate(rows):
        weight = learner.model.predict(x)[1]
        learner.add_pending(x, weight)
        if number % 4:
            learner.learn(x, float(source.random() < 0.3 + 0.4 * (x[0] > 0)), weight)
    return learner
