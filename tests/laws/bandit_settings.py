"""Bandits drawn by hypothesis, and when two of them are the same."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta

import numpy as np
from hypothesis import strategies as st

from belated import (
    Bandit,
    DefaultAfter,
    Explicit,
    Gaussian,
)
from belated.core.events import Record
from belated.core.ids import key_of
from belated.core.inputs import Matrix
from belated.core.rewards import Rewards, retention_us
from belated.core.tuning import USUAL, Tuning
from belated.features import Features
from belated.fold.fold import Fold, same_sums
from belated.journals import Journal
from belated.policies import Policy
from belated.testing import ManualClock
from tests.simulator.oracle import Oracle

DIM = 3
#: Names of callers, some of which end up in each partition.
NAMES = [f"order-{n}" for n in range(8)]


def span(microseconds: int) -> timedelta:
    """A time span on the scale of these tests."""
    return timedelta(microseconds=microseconds)


@dataclass(frozen=True)
class Settings:
    """How a bandit is opened."""

    policy: Policy
    rewards: Rewards
    retention: timedelta | None
    features: Features | None = None

    def open(self, journal: Journal, clock: ManualClock, tuning: Tuning = USUAL) -> Bandit:
        """On a journal."""
        return Bandit(
            policy=self.policy,
            rewards=self.rewards,
            retention=self.retention,
            journal=journal,
            clock=clock,
            seed=1,
            tuning=tuning,
        )

    def fold(self, journal: Journal, until: int | None = None) -> Fold:
        """The records of a journal folded one by one: no snapshot, no bulk."""
        retention = retention_us(self.retention, self.rewards)
        fold = Fold(
            self.policy,
            self.rewards,
            features=self.features,
            partitions=journal.partitions,
            retention=retention,
        )
        for record in records_of(journal, until):
            fold.take(record)
        return fold

    def oracles(self, journal: Journal, fold: Fold, until: int | None = None) -> list[Oracle]:
        """The rules as they are written, on the same records."""
        records = records_of(journal, until)
        return [
            Oracle(
                [record for record in records if record.partition == partition],
                rewards=self.rewards,
                min_reward=fold.min_reward,
                max_reward=fold.max_reward,
                retention=fold.retention,
            )
            for partition in range(journal.partitions)
        ]


def records_of(journal: Journal, until: int | None = None) -> list[Record]:
    """All records of all partitions that were stamped by then."""
    return [
        record
        for partition in range(journal.partitions)
        for record in journal.read(partition, 0, 100_000)
        if until is None or record.recorded <= until
    ]


def rows_of(name: str) -> Matrix:
    """What is offered under a name: always the same, as a retry needs it."""
    seed = int.from_bytes(key_of(name))
    return np.random.default_rng(seed).normal(size=(3, DIM)).astype(np.float32)


def assert_same(one: Fold, other: Fold) -> None:
    """Ledgers exactly, sums to rounding, estimates to what is promised."""
    assert one.digest == other.digest
    assert one.counts == other.counts
    assert one.counters == other.counters
    assert one.positions == other.positions
    assert one.version == other.version
    for fold in (one, other):
        model = fold.model
        assert model.pending == fold.counts["pending"]
        assert model.n == fold.counts["rewarded"] + fold.counts["defaulted"]
    assert one.model.decisions == other.model.decisions
    assert same_sums(one, other)
    close = 1e-12 if isinstance(one.learner.policy.family, Gaussian) else 1e-8
    np.testing.assert_allclose(
        one.learner.estimate.theta, other.learner.estimate.theta, rtol=close, atol=close
    )


REWARDS: st.SearchStrategy[Rewards] = st.sampled_from(
    [
        Explicit(),
        Explicit(span(20)),
        Explicit(span(20), reduce="sum"),
        DefaultAfter(span(20)),
        DefaultAfter(span(20), value=1.0, reduce="max"),
    ]
)
VALUES = st.sampled_from([0.0, 0.25, 0.5, 1.0])
names = st.sampled_from(NAMES)
