"""Decisions wait in a dictionary before they are put into the columns: nobody may notice when."""

from __future__ import annotations

import random
from datetime import timedelta

import numpy as np
import pytest

from belated import DelayedUCB, Gaussian
from belated.events import Activation, Decision, Event, Record, Reward, Settled, Void
from belated.ids import new_id
from belated.learner import Learner, LearnerAdapter
from belated.ledger import Ledger
from belated.rewards import DefaultAfter
from belated.testing import Oracle
from belated.tuning import Tuning

WEEK = DefaultAfter(timedelta(microseconds=400), value=0.0)


def history(count: int = 700, seed: int = 3) -> list[Record]:
    """Decisions with all that can happen to them, soon and late."""
    rng = random.Random(seed)
    later: list[tuple[int, Event]] = []
    for t in range(count):
        id, x = new_id(1000 * t), np.array([rng.random(), 1.0], dtype=np.float32)
        made = Decision(id, t, 0, 0, x, 0.5, 1.0, t, rng.random() < 0.95)
        later.append((t, made))
        for _ in range(rng.choice([0, 1, 1, 1, 2, 3])):
            kind = rng.random()
            at = t + rng.choice([-3, 0, 1, 50, 300, 600])
            told: Event = Reward(id, at, rng.choice([0.0, 1.0]), "", rng.choice([0, 0, 1]))
            if kind < 0.1:
                told = Void(id, at)
            elif kind < 0.2:
                told = Activation(id, at)
            elif kind < 0.3:
                told = made
            later.append((at, told))
        if t % 100 == 99:
            later.append((t, Settled(0, t)))
    later.sort(key=lambda one: one[0])
    return [Record(0, n, max(at, 0), event) for n, (at, event) in enumerate(later, 1)]


def folded(records: list[Record], recent: int) -> tuple[Ledger, Learner, list[str]]:
    """What they come to."""
    tuning = Tuning(recent=recent)
    learner = Learner(DelayedUCB(2, Gaussian(0.25)))
    account = LearnerAdapter(learner, tuning=tuning)
    book = Ledger(WEEK, account, min_reward=-10.0, max_reward=10.0, retention=900, tuning=tuning)
    return book, learner, [book.fold(record) for record in records]


@pytest.mark.parametrize("recent", [1, 2, 37, 256, 10**6])
def test_when_decisions_are_put_away_changes_nothing(recent: int) -> None:
    """Statuses, counts, digest and sums are those of putting each away at once."""
    records = history()
    at_once, learned, statuses = folded(records, recent=1)
    book, learner, said = folded(records, recent=recent)
    assert said == statuses
    assert (book.counts, book.digest) == (at_once.counts, at_once.digest)
    np.testing.assert_array_equal(learner.estimate.theta, learned.estimate.theta)
    assert learner.model.pending == learned.model.pending
    oracle = Oracle(records, rewards=WEEK, min_reward=-10.0, max_reward=10.0, retention=900)
    assert book.counts == list(oracle.counts.values())
    assert {"rewarded", "late", "revised", "unmatched", "duplicate", "voided"} <= set(said)
