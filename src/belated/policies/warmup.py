"""Uniform exploration before another policy takes over."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass, field, fields, replace
from typing import Any, Literal, Self

import numpy as np

from belated.core.inputs import as_rounds, must_be
from belated.core.times import Duration
from belated.exceptions import InvalidInput
from belated.model.estimators import Estimator
from belated.model.families import Family
from belated.model.model import Model
from belated.model.priors import Prior
from belated.policies.fingerprint import UNNAMED
from belated.policies.policy import Choice, Policy
from belated.policies.uniform import uniform_choice


@dataclass(frozen=True)
class Warmup(Policy):
    """Choose uniformly during a warm-up (Alg. 1, l. 2; Alg. 2, l. 2), then with another policy.

    Learning uses the settings of ``then`` throughout.

    Args:
        then: the policy after the warm-up.
        rounds: minimum number of decisions in the warm-up.
        arrivals: minimum number of rewards that must arrive before the warm-up ends.

    >>> from belated import Bernoulli, BlindUCB
    >>> Warmup(BlindUCB(2, Bernoulli()), rounds=100).pending_weight
    0.0
    """

    # Copied from ``then``.
    dim: int = field(init=False, repr=False)
    family: Family = field(init=False, repr=False)
    ridge: float | Literal["auto"] = field(init=False, repr=False)
    prior: Prior | None = field(init=False, repr=False)
    pending_weight: float = field(init=False, repr=False)
    metric: Literal["hessian", "gram"] = field(init=False, repr=False)
    floor: float = field(init=False, repr=False)
    estimator: Estimator = field(init=False, repr=False)
    half_life: Duration | Literal["auto"] | None = field(
        default=None, init=False, repr=False, metadata=UNNAMED
    )

    learn_after: int | None = field(default=None, init=False, repr=False, metadata=UNNAMED)

    then: Policy
    _: KW_ONLY
    rounds: int = 0
    arrivals: float = 0.0

    def __post_init__(self) -> None:
        if not isinstance(self.then, Policy):
            raise InvalidInput(f"`then` must be a policy, got {self.then!r}", self.then)
        for setting in fields(Policy):
            object.__setattr__(self, setting.name, getattr(self.then, setting.name))
        super().__post_init__()
        as_rounds(self.rounds, "rounds")
        if not self.arrivals >= 0.0:
            raise must_be("arrivals", "a number of at least 0", self.arrivals)

    def bound_to(self, features: Any) -> Self:
        """Return this policy for rows from ``features``."""
        then = self.then.bound_to(features)
        return self if then is self.then else replace(self, then=then)

    @property
    def learns_after(self) -> int | None:
        """The setting of ``then``."""
        return self.then.learns_after

    @property
    def learns_late(self) -> bool:
        """The setting of ``then``."""
        return self.then.learns_late

    def choose(self, model: Model, rows: Any, rng: np.random.Generator) -> Choice:
        """Choose uniformly until the warm-up is over, then with ``then``."""
        if model.decisions < self.rounds or model.n < self.arrivals:
            return uniform_choice(model, rows, rng)
        return self.then.choose(model, rows, rng)
