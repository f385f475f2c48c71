"""Uniform exploration before another policy takes over."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass
from typing import Any

import numpy as np

from belated.exceptions import InvalidInput
from belated.inputs import as_rounds
from belated.models import Model
from belated.policies.policy import Choice, Policy
from belated.policies.uniform import Uniform


@dataclass(frozen=True)
class Warmup(Policy):
    """Choose uniformly for a while (Alg. 1, l. 2; Alg. 2, l. 2), then as ``then`` does.

    Args:
        then: the policy that takes over.
        rounds: how many decisions are uniform.
        arrivals: how many rewards must have come before the warm-up may end.
    """

    _: KW_ONLY
    then: Policy
    rounds: int = 0
    arrivals: float = 0.0

    def __post_init__(self) -> None:
        super().__post_init__()
        if not isinstance(self.then, Policy):
            raise InvalidInput(f"then is {self.then!r}: a policy was expected", self.then)
        as_rounds(self.rounds, "rounds")
        if not self.arrivals >= 0.0:
            message = f"arrivals is {self.arrivals!r}: a number of at least 0 was expected"
            raise InvalidInput(message, self.arrivals)

    def choose(self, model: Model, rows: Any, rng: np.random.Generator) -> Choice:
        """Uniformly, until the warm-up is over."""
        if model.decisions < self.rounds or model.n < self.arrivals:
            return Uniform.choose(self, model, rows, rng)  # type: ignore[arg-type]
        return self.then.choose(model, rows, rng)


def warmed(then: Policy, *, rounds: int = 0, arrivals: float = 0.0) -> Warmup:
    """``then`` after a warm-up; learning is as ``then`` has it."""
    return Warmup(
        then.dim,
        then.family,
        then=then,
        rounds=rounds,
        arrivals=arrivals,
        prior=then.start,
        pending_weight=then.pending_weight,
        metric=then.metric,
        estimator=then.estimator,
    )
