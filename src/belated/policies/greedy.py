"""What looks best now."""

from __future__ import annotations

from dataclasses import dataclass

from belated.models import Model
from belated.policies.delayed_ucb import DelayedUCB


@dataclass(frozen=True)
class Greedy(DelayedUCB):
    """Choose the greatest predicted mean. Fine where contexts vary, a disaster where they do not.

    >>> import numpy as np
    >>> from belated import Bernoulli
    >>> policy = Greedy(2, Bernoulli())
    >>> model = Model(policy.start, policy.family)
    >>> model.expect(np.array([1.0, 0.0]), 0.25)
    >>> weight = model.learn(np.array([1.0, 0.0]), 1.0)
    >>> policy.choose(model, np.eye(2), np.random.default_rng(0)).index
    0
    """

    def width(self, model: Model) -> float:
        """None."""
        return 0.0
