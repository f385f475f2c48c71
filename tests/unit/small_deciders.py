"""A decider of three actions, and models for it."""

from __future__ import annotations

from itertools import count
from typing import Any

import numpy as np

from belated import Bernoulli, DelayedUCB
from belated.core.events import Decision
from belated.core.inputs import Row
from belated.decider import Decider, LoadedModel, ParsedRequest
from belated.fold.learner import Learner
from belated.fold.published import PublishedModel

DIM = 3
ROWS: Row = np.eye(DIM, dtype=np.float32)


class Served(Decider):
    """A decider with a loaded model, a clock that ticks, and draws of its own."""

    def __init__(self, policy: Any = None, *, partitions: int = 1, **more: Any) -> None:
        policy = policy or DelayedUCB(DIM, Bernoulli())
        self.source = LoadedModel(policy)
        super().__init__(policy, self.source, partitions=partitions, **more)
        self.ticks = count(1_700_000_000_000_000)
        self.rng = np.random.default_rng(1)

    def take(self, published: PublishedModel) -> None:
        """Load a model."""
        self.source.load(published, self.unapplied)

    @property
    def version(self) -> int:
        """Of the model."""
        return self.source.version

    @property
    def ahead(self) -> int:
        """How many decisions the model has not read."""
        return len(self.unapplied)

    def many(self, tables: list[Row], requests: list[ParsedRequest]) -> list[Decision]:
        """Choose and hold."""
        table = np.concatenate(tables)
        made = self.choose(requests, table, now=next(self.ticks), rng=self.rng, hold=True)
        return made.decisions


def decider(policy: Any = None, partitions: int = 1) -> Served:
    """With a clock that ticks."""
    return Served(policy, partitions=partitions)


def choose(one: Served, **request: Any) -> Decision:
    """For one request."""
    (decision,) = one.many([ROWS], [ParsedRequest(DIM, **request)])
    return decision


def published(policy: DelayedUCB, positions: list[int], learner: Learner) -> PublishedModel:
    """What a learner says after those positions."""
    return PublishedModel.of(
        learner.model, policy, positions=positions, version=sum(positions), at=1
    )
