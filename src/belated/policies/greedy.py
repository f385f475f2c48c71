"""What looks best now."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass, field
from typing import Literal

from belated.policies.delayed_ucb import DelayedUCB


@dataclass(frozen=True)
class Greedy(DelayedUCB):
    """Choose the greatest predicted mean. Fine where contexts vary, a disaster where they do not.

    It is :class:`DelayedUCB` of width 0, so nothing that widens it can be set.

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
    """Greedy, but for a share of uniformly random choices: greedy with another ``floor``.

    >>> from belated import Bernoulli
    >>> EpsilonGreedy(2, Bernoulli()).floor
    0.05
    """

    _: KW_ONLY
    floor: float = 0.05
