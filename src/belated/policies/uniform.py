"""Every action alike."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from belated.models import Model
from belated.policies.policy import Choice, Policy


@dataclass(frozen=True)
class Uniform(Policy):
    """Choose uniformly at random: the honest baseline, and the best data for others to learn on.

    >>> from belated import Bernoulli
    >>> policy = Uniform(2, Bernoulli())
    >>> model = Model(policy.start, policy.family)
    >>> policy.choose(model, np.eye(2), np.random.default_rng(0)).propensity
    0.5
    """

    def choose(self, model: Model, rows: Any, rng: np.random.Generator) -> Choice:
        """Any of the rows."""
        table = model.table(rows)
        index = int(rng.integers(len(table)))
        mean, weight = model.predict(table[index])
        return Choice(index, 1.0 / len(table), mean, weight)
