"""Random sequences of decisions and rewards, applied to a learner."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
import pytest

from belated import DelayedUCB
from belated.core.inputs import Matrix, Vector
from belated.fold.learner import Learner
from belated.model.estimators import Estimate, Laplace
from belated.model.families import Family
from belated.model.statistics import Seen

Metric = Literal["hessian", "gram"]
every_share = pytest.mark.parametrize("share", [0.0, 0.5, 1.0])
every_metric = pytest.mark.parametrize("metric", ["hessian", "gram"])


@dataclass(eq=False)
class Event:
    """A decision: its row, its weight when it was made, its reward, and its learned weight."""

    x: Vector
    frozen: float
    y: float
    learned: float = math.nan
    #: Its weight in ``decided``: the frozen weight, and from the next renewal on the learned one.
    counted: float = math.nan


@dataclass
class LearnerRun:
    """A learner and the decisions that were added to it."""

    learner: Learner
    pending: list[Event] = field(default_factory=list)
    arrived: list[Event] = field(default_factory=list)
    decisions: int = 0
    #: Numbers of decisions at which the roots were recomputed.
    renewals: list[int] = field(default_factory=list)

    def __post_init__(self) -> None:
        model = self.learner.model
        step, renew = model.learn, model.renew

        def learn(x: Any, y: float, share: float = 1.0) -> float:
            self.weight = step(x, y, share)
            return self.weight

        def renewed(observed: Matrix, decided: Matrix) -> None:
            self.renewals.append(self.decisions)
            renew(observed, decided)

        model.learn = learn  # type: ignore[method-assign]
        model.renew = renewed  # type: ignore[method-assign]

    def add_pending(self, event: Event) -> None:
        """Add a pending decision."""
        self.decisions += 1
        before = len(self.renewals)
        self.learner.add_pending(event.x, event.frozen)
        self.pending.append(event)
        self._update_counted(before)

    def learn(self, event: Event) -> None:
        """Add the reward of a decision."""
        before = len(self.renewals)
        self.learner.learn(event.x, event.y, event.frozen)
        event.learned, event.counted = self.weight, event.frozen
        self.pending.remove(event)
        self.arrived.append(event)
        self._update_counted(before)

    def remove_pending(self, event: Event) -> None:
        """End the pending state of a decision without a reward."""
        before = len(self.renewals)
        self.learner.remove_pending(event.x, event.frozen)
        self.pending.remove(event)
        self._update_counted(before)

    def _update_counted(self, before: int) -> None:
        if len(self.renewals) > before:
            for event in self.arrived:
                event.counted = event.learned

    def add_random_events(self, steps: int, rng: np.random.Generator) -> None:
        """Add random events: half are decisions, a third rewards, the others withdrawals."""
        family, dim = self.learner.policy.family, self.learner.policy.dim
        for _ in range(steps):
            kind = rng.random()
            if kind < 0.5 or not self.pending:
                x = rng.normal(size=dim).astype(np.float32).astype(np.float64) / math.sqrt(dim)
                weight = self.learner.model.predict(x)[1]
                y = float(family.sample(x[:1], rng)[0])
                self.add_pending(Event(x, weight, y))
            else:
                event = self.pending[int(rng.integers(len(self.pending)))]
                (self.learn if kind < 0.85 else self.remove_pending)(event)


def new_run(family: Family, share: float, metric: Metric, estimator: Any = None) -> LearnerRun:
    """Return a run without events, for rows of four numbers."""
    policy = DelayedUCB(
        4,
        family,
        ridge=0.5,
        pending_weight=share,
        metric=metric,
        estimator=estimator or Laplace(),
    )
    return LearnerRun(Learner(policy))


def assert_root(root: Matrix, precision: Matrix, close: float = 1e-9) -> None:
    """Assert that S Sᵀ H = I."""
    np.testing.assert_allclose(root @ root.T @ precision, np.eye(4), rtol=0.0, atol=close)


@dataclass(frozen=True)
class Counting(Laplace):
    """A Laplace estimator that stores the number of rewards of each fit."""

    fits: list[int] = field(default_factory=list, compare=False)

    def fit(self, data: Seen, **options: Any) -> Estimate:
        """Fit as Laplace does."""
        self.fits.append(data.n)
        return super().fit(data, **options)


def learned(
    family: Family, count: int, **options: Any
) -> tuple[Learner, list[int], Matrix, Vector]:
    """Return a learner after some rewards, the sizes of its fits, the rows and the rewards."""
    estimator = Counting()
    learner = Learner(DelayedUCB(4, family, estimator=estimator, **options))
    rng = np.random.default_rng(9)
    X = rng.normal(size=(count, 4)).astype(np.float32).astype(np.float64)
    y = family.sample(X @ np.array([0.5, -0.5, 0.2, 0.0]), rng, 0.09)
    for x, reward in zip(X, y.tolist(), strict=True):
        learner.add_pending(x, 0.25)
        learner.learn(x, reward, 0.25)
    return learner, estimator.fits, X, y
