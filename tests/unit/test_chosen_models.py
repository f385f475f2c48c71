"""Earlier models: which are stored, and how a bandit goes back to one."""

from __future__ import annotations

import msgspec
import numpy as np
import pytest

from belated import Bandit, Bernoulli, DelayedUCB, Explicit
from belated.core.events import ModelChosen
from belated.core.times import as_datetime
from belated.decider.models import model_choice
from belated.exceptions import InvalidInput, OwnerFenced
from belated.fold.published import VERSION, PublishedModel, seal
from belated.journals import MemoryJournal, MemoryStore
from belated.journals.coordination import DAY, HOUR, CoordinationStore, KeptModel
from belated.model.model import Model
from belated.testing import ManualClock

ROWS = [[1.0, 0.0], [0.0, 1.0]]


@pytest.fixture
def clock() -> ManualClock:
    """A clock that tests set."""
    return ManualClock()


def make(journal: MemoryJournal, clock: ManualClock) -> Bandit:
    """Return a bandit with this journal."""
    policy = DelayedUCB(2, Bernoulli())
    return Bandit(policy=policy, rewards=Explicit(), journal=journal, clock=clock, seed=7)


def reward(bandit: Bandit, clock: ManualClock, value: float) -> None:
    """Decide and reward ten times, a minute apart."""
    for _ in range(10):
        clock.now += 60_000_000
        bandit.observe(bandit.decide(rows=ROWS).id, value)


@pytest.fixture
def coordination() -> CoordinationStore:
    """A coordination store with a lease and models."""
    store = MemoryStore()
    store.journal("offers").close()
    coordinator = store.coordination("offers")
    assert coordinator.acquire_lease("me", 1e6) == 1
    return coordinator


def test_a_model_of_each_hour_and_day_is_kept(coordination: CoordinationStore) -> None:
    """The number is bounded, and the cells of other models are deleted."""
    for n in range(10 * 24 * 3):  # every 20 minutes for ten days
        time = n * HOUR // 3
        coordination.keep(KeptModel(n + 1, time, n, 1), b"%d" % (n + 1), 1)
    models = coordination.kept_models()
    assert len(models) == 24 + 6
    assert len({model.at // HOUR for model in models}) == len(models)
    assert len({model.at // DAY for model in models}) == 7
    assert all(coordination.kept_model(model.version) == b"%d" % model.version for model in models)
    assert len(coordination.cells.scan("kept/")) == len(models)
    assert coordination.kept_model(2) is None


def test_only_the_leader_keeps_models(coordination: CoordinationStore) -> None:
    """A learner without the lease stores no models."""
    coordination.release_lease("me")
    coordination.acquire_lease("another", 1e6)
    with pytest.raises(OwnerFenced):
        coordination.keep(KeptModel(1, 1, 1, 1), b"model", 1)
    assert coordination.kept_models() == []


def test_a_model_made_with_other_features_is_refused(coordination: CoordinationStore) -> None:
    """No decider could use it."""
    policy = DelayedUCB(2, Bernoulli())
    model = Model(policy.start, policy.family)
    for version, features in ((1, "before"), (2, "now"), (3, "now")):
        published = PublishedModel.of(model, policy, positions=[version], version=version, at=1)
        data = msgspec.structs.replace(published, features=features).write()
        coordination.keep(KeptModel(version, version * HOUR, 1, len(data)), data, 1)
        coordination.publish(data, 1)
    assert model_choice(coordination, 2, 1, "", "").version == 2
    with pytest.raises(InvalidInput, match="version 1 was trained with different features"):
        model_choice(coordination, 1, 1, "", "")


def test_a_bandit_goes_back_to_what_it_knew(clock: ManualClock) -> None:
    """Decisions do not change it, rewards are learned, other deciders follow."""
    journal = MemoryJournal(clock=clock)
    bandit = make(journal, clock)
    reward(bandit, clock, 1.0)
    moment = clock.now
    theta, version = bandit._decider.model.theta.copy(), bandit._fold.version
    clock.now += 1
    reward(bandit, clock, 0.0)
    bandit.use_model(as_datetime(moment), reason="prices were wrong since")
    decisions = [bandit.decide(rows=ROWS) for _ in range(3)]
    assert {decision.model for decision in decisions} == {version}
    np.testing.assert_allclose(bandit._decider.model.theta, theta, atol=1e-6)
    assert len({decision.mean for decision in decisions}) <= 2
    for decision in decisions:
        bandit.observe(decision.id, 0.0)
    assert bandit.estimate.n == 23
    refolded = make(journal, clock)  # from the beginning
    assert refolded.decide(rows=ROWS).model == version
    assert refolded._fold.chosen == bandit._fold.chosen
    bandit.save()
    reopened = make(journal, clock)  # from a snapshot
    assert reopened.decide(rows=ROWS).model == version
    end, scores = clock.now, bandit.score(rows=ROWS).to_dict()
    clock.now += 1
    bandit.use_model(None)
    assert bandit.decide(rows=ROWS).model > version
    assert bandit.score(rows=ROWS).to_dict() != scores
    assert bandit.as_of(as_datetime(end)).score(rows=ROWS).to_dict() == scores


@pytest.mark.parametrize("kind", ["later release", "no model", "other shape", "other policy"])
def test_a_model_that_cannot_be_used_decides_nothing(clock: ManualClock, kind: str) -> None:
    """The newest model is used instead, without interruption."""
    journal = MemoryJournal(clock=clock)
    bandit = make(journal, clock)
    reward(bandit, clock, 1.0)
    model = bandit._fold.export_model(clock.now)
    data = {
        "later release": b"\xffof a release to come",
        "no model": seal(VERSION, b"\xc0"),
        "other shape": msgspec.structs.replace(model, theta=bytes(24)).write(),
        "other policy": msgspec.structs.replace(model, fingerprint="another").write(),
    }[kind]
    journal.append([ModelChosen(clock.now, 3, data)])
    bandit.sync()
    assert bandit.decide(rows=ROWS).model > 3
