"""Uniformly random choices."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np

from belated.model.model import Model
from belated.policies.policy import Choice, Policy


@dataclass(frozen=True)
class Uniform(Policy):
    """Choose uniformly at random: an unbiased baseline, and the best data for other policies.

    >>> from belated import Bernoulli
    >>> policy = Uniform(2, Bernoulli())
    >>> model = Model(policy.start, policy.family)
    >>> policy.choose(model, np.eye(2), np.random.default_rng(0)).propensity
    0.5
    """

    # Choices do not depend on the model.
    pending_weight: float = field(default=0.0, init=False, repr=False)
    metric: Literal["hessian", "gram"] = field(default="hessian", init=False, repr=False)
    floor: float = field(default=0.0, init=False, repr=False)

    def choose(self, model: Model, rows: Any, rng: np.random.Generator) -> Choice:
        """Choose a row uniformly at random."""
        return uniform_choice(model, rows, rng)


def uniform_choice(model: Model, rows: Any, rng: np.random.Generator) -> Choice:
    """Choose a row uniformly at random."""
    table = model.table(rows)
    index = int(rng.integers(len(table)))
    mean, weight = model.predict(table[index])
    share = 1.0 / len(table)
    return Choice(index, share, mean, weight, (share,) * len(table))
