"""A learner that takes over publishes nothing older than what its predecessor published."""

from __future__ import annotations

import time
from collections.abc import Callable

import numpy as np
import pytest

from belated import Bandit, Bernoulli, DelayedUCB, Explicit
from belated.core.tuning import Tuning
from belated.fold.fold import Fold
from belated.fold.published import PublishedModel
from belated.journals import MemoryStore
from belated.service.learning import learning_service as module
from belated.service.learning.learning_service import LearningService

POLICY = DelayedUCB(2, Bernoulli())


def learner(store: MemoryStore, holder: str, page: int) -> LearningService:
    """One that reads so many records at a time."""

    def fold() -> Fold:
        return Fold(POLICY, Explicit(), tuning=Tuning(page=page))

    return LearningService(store.journal(), store.coordination(), fold, holder=holder)


def published(store: MemoryStore) -> list[int]:
    """How far the last model had read."""
    entry = store.coordination().published()
    assert entry is not None
    return PublishedModel.read(entry[1]).positions


def until(is_so: Callable[[], bool], one: LearningService) -> None:
    """Step until something holds."""
    deadline = time.monotonic() + 30
    while not is_so():
        one.step()
        assert time.monotonic() < deadline


def test_a_successor_publishes_no_older_model(monkeypatch: pytest.MonkeyPatch) -> None:
    """It has no snapshot and reads one record at a time; deciders keep the model meanwhile."""
    for seconds in ("PUBLISH", "PUBLISH_SHARE"):
        monkeypatch.setattr(module, seconds, 0.0)
    store = MemoryStore()
    bandit = Bandit(policy=POLICY, rewards=Explicit(), journal=store.journal(), seed=1)
    for _ in range(20):
        bandit.observe(bandit.decide(rows=np.eye(2)).id, 1.0)
    first = learner(store, "first", page=1_000)
    until(lambda: first.fold is not None and first.fold.positions == [41], first)
    until(lambda: published(store) == [41], first)
    first.lease.close()
    second = learner(store, "second", page=1)
    steps = 0
    while second.fold is None or second.fold.positions != [41]:
        second.step()
        steps += 1
        assert published(store) == [41]
    assert steps >= 41
    bandit.decide(rows=np.eye(2))
    until(lambda: published(store) == [42], second)
    for service in (first, second):
        service.close()


def test_a_fenced_learner_does_not_fence_its_successor(monkeypatch: pytest.MonkeyPatch) -> None:
    """By its own clock its lease is still valid, as after a jump of the store's clock."""
    for seconds in ("PUBLISH", "PUBLISH_SHARE"):
        monkeypatch.setattr(module, seconds, 0.0)
    store = MemoryStore()
    bandit = Bandit(policy=POLICY, rewards=Explicit(), journal=store.journal(), seed=1)
    bandit.observe(bandit.decide(rows=np.eye(2)).id, 1.0)
    first, second = (learner(store, holder, page=1_000) for holder in ("first", "second"))
    until(lambda: first.fold is not None and published(store) == [3], first)
    store.coordination().release_lease("first")
    until(lambda: second.fold is not None, second)
    successor = second.fold
    bandit.decide(rows=np.eye(2))
    for _ in range(3):
        first.step()
    assert not first.leads()
    until(lambda: published(store) == [4], second)
    assert second.fold is successor
    assert successor is not None
    successor.save(second.shelf)  # raises OwnerFenced if the first learner took over again
    for service in (first, second):
        service.close()
