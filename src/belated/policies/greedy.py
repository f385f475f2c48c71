"""Greedy and epsilon-greedy policies."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass, field
from typing import Literal

from belated.policies.delayed_ucb import DelayedUCB


@dataclass(frozen=True)
class Greedy(DelayedUCB):
    """Choose the largest predicted mean. Suitable only if contexts vary enough to explore.

    This is :class:`DelayedUCB` with width 0; settings that affect the width cannot be changed.

    >>> import numpy as np
    >>> from belated import Bernoulli
    >>> from belated.model.model import Model
    >>> policy = Greedy(2, Bernoulli())
    >>> model = Model(policy.start, policy.family)
    >>> model.add_pending(np.array([1.0, 0.0]), 0.25)
    >>> weight = model.learn(np.array([1.0, 0.0]), 1.0)
    >>> policy.choose(model, np.eye(2), np.random.default_rng(0)).index
    0
    """

    alpha: float | None = field(default=0.0, init=False, repr=False)
    randomized: bool = field(default=False, init=False, repr=False)
    pending_weight: float = field(default=0.0, init=False, repr=False)
    metric: Literal["hessian", "gram"] = field(default="hessian", init=False, repr=False)


@dataclass(frozen=True)
class EpsilonGreedy(Greedy):
    """Choose greedily, except for a share ``floor`` of uniformly random choices.

    >>> from belated import Bernoulli
    >>> EpsilonGreedy(2, Bernoulli()).floor
    0.05
    """

    _: KW_ONLY
    floor: float = 0.05
