"""One learner leads, others stand by; publishing and saving are fenced."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from datetime import timedelta

import numpy as np
import pytest

from belated import Bandit, Bernoulli, DefaultAfter, DelayedUCB, Explicit
from belated.core.events import Decision, Opaque, Record, Void
from belated.core.rewards import Rewards
from belated.decider import ParsedRequest
from belated.exceptions import JournalError, OwnerFenced, UnknownEvent
from belated.fold.fold import Fold, same_sums
from belated.fold.published import PublishedModel
from belated.journals import Store
from belated.journals.steady_clock import system_clock
from belated.service import Definition
from belated.service.learning import learning_service as module
from belated.service.learning.learning_service import LearningService
from belated.service.runtime import ThreadRuntime
from belated.service.serving.served_bandits import ServedBandits
from tests.learners import learning_service
from tests.waiting import eventually

DIM = 3
POLICY = DelayedUCB(DIM, Bernoulli())


def definition(name: str, rewards: Rewards | None = None) -> Definition:
    """Return the definition of a bandit."""
    return Definition(name, POLICY, rewards or Explicit(timedelta(days=1)), partitions=2)


@pytest.fixture
def writer(store: Store, bandit: str) -> Iterator[Bandit]:
    """Return a bandit that decides and gets rewards."""
    with Bandit(
        policy=POLICY,
        rewards=Explicit(timedelta(days=1)),
        journal=store.journal(bandit, partitions=2),
        seed=3,
    ) as new_bandit:
        yield new_bandit


def play(writer: Bandit, rounds: int) -> None:
    """Make some decisions, and reward most of them."""
    for n in range(rounds):
        decision = writer.decide(rows=np.eye(DIM))
        if n % 4:
            writer.observe(decision.id, float(n % 3 == 0))


def until_idle(learner: LearningService) -> None:
    """Step until there is nothing to do, not even a fit."""
    deadline = time.monotonic() + 30
    while learner.step() or learner._fit is not None:
        assert time.monotonic() < deadline


def hang(learner: LearningService) -> None:
    """Stop renewing its lease, as if the whole process hung or were dead."""
    learner.lease._renewal.stop()


def test_the_model_that_is_published_is_that_of_the_journal(
    store: Store, bandit: str, writer: Bandit, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Positions, counts and θ̂, including the result of a concurrent fit."""
    for seconds in ("PUBLISH", "PUBLISH_SHARE"):  # every step publishes what it changed
        monkeypatch.setattr(module, seconds, 0.0)
    play(writer, 60)
    learner = learning_service(definition(bandit), store)
    until_idle(learner)
    learner.step()
    coordination = store.coordination(bandit)
    publication = coordination.published()
    assert publication is not None
    number, data = publication
    published_model = PublishedModel.read(data)
    assert published_model.positions == writer._fold.positions
    assert (published_model.n, published_model.pending) == (45, 15)
    model = published_model.model(POLICY)
    deviations = np.sqrt(np.diag(writer.estimate.covariance))
    assert np.abs((model.theta - writer.estimate.theta) / deviations).max() < 1e-6
    assert coordination.published(number) is None
    play(writer, 5)
    until_idle(learner)
    learner.step()
    newer_publication = coordination.published(number)
    assert newer_publication is not None
    assert newer_publication[0] > number
    coordination.close()
    learner.close()


def test_a_learner_that_is_far_behind_folds_all_at_once(
    store: Store, bandit: str, writer: Bandit, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After some full pages, with the same result."""
    monkeypatch.setattr(module, "PAGE", 10)
    monkeypatch.setattr(module, "FAR", 41)
    play(writer, 200)
    learner = learning_service(definition(bandit), store)
    steps = [learner.step() for _ in range(5)]
    assert max(steps[:3]) <= 20
    assert steps[3] > 200
    until_idle(learner)
    assert learner.fold is not None
    assert learner.fold.digest == writer._fold.digest
    assert same_sums(learner.fold, writer._fold)
    learner.close()


def test_stamps_ahead_of_the_clock_are_told(store: Store, bandit: str, writer: Bandit) -> None:
    """As they are read, and at once by a new leader: the clock has jumped."""
    play(writer, 3)
    learner = learning_service(definition(bandit), store)
    until_idle(learner)
    assert learner.clock.ahead() < 1
    assert abs(learner.clock.offset) < 1  # the same machine
    with store.journal(bandit) as journal:
        journal.append([Void("a", 1)], recorded=[journal.now() + 86_400_000_000])
    until_idle(learner)
    assert 86_000 < learner.clock.ahead() <= 86_400
    learner.close()
    learner_again = learning_service(definition(bandit), store)
    until_idle(learner_again)
    assert learner_again.clock.last_stamp > 0
    assert learner_again.clock.ahead() > 86_000
    learner_again.close()


def test_one_leads_and_the_other_takes_over(store: Store, bandit: str, writer: Bandit) -> None:
    """At once if the first one releases the lease; after the lease expires if it has died."""
    play(writer, 30)
    first, second = (learning_service(definition(bandit), store, lease=2.0) for _ in range(2))
    until_idle(first)
    assert second.step() == 0
    assert (first.leads(), second.leads()) == (True, False)
    first.close()
    until_idle(second)
    assert second.leads()
    assert second.fold is not None
    assert second.fold.digest == writer.digest
    # It began where the first one's snapshot ends.
    assert second.fold.positions == writer._fold.positions
    third = learning_service(definition(bandit), store, lease=2.0)
    hang(second)  # as if it were dead
    eventually(lambda: third.step() >= 0 and third.leads(), seconds=20)
    for learner in (second, third):
        learner.close()


def test_superseded_learner_can_neither_publish_nor_save(
    store: Store, bandit: str, writer: Bandit
) -> None:
    """It stands by after its next step, and starts from the snapshot when it leads again."""
    play(writer, 10)
    stale_learner = learning_service(definition(bandit), store, lease=0.3)
    successor = learning_service(definition(bandit), store)
    until_idle(stale_learner)
    fold, epoch = stale_learner.fold, stale_learner.epoch
    assert fold is not None
    hang(stale_learner)  # it hangs, the thread that renews its lease too
    time.sleep(0.5)
    until_idle(successor)
    assert successor.leads()
    with pytest.raises(OwnerFenced):
        stale_learner.coordination.publish(b"old", epoch)
    with pytest.raises(OwnerFenced):
        fold.save(stale_learner.shelf)
    stale_learner.lease._ends = time.monotonic() + 100  # it believes that it still leads
    stale_learner._publish_at = 0.0
    play(writer, 1)
    assert stale_learner.step() == 0
    assert not stale_learner.leads()
    successor.close()
    stale_learner.lease._ends = 0.0
    until_idle(stale_learner)
    assert stale_learner.leads()
    assert stale_learner.fold is not None
    assert stale_learner.fold.digest == writer.digest
    stale_learner.close()


def test_what_was_folded_late_is_no_lag_any_more(store: Store, bandit: str) -> None:
    """A learner that has folded everything has no lag: idle nights raise no alert."""
    learner = learning_service(definition(bandit), store)
    journal = store.journal(bandit)
    hour_ago = journal.now() - 3_600_000_000
    journal.append([Void("an hour ago", hour_ago)], recorded=[hour_ago])
    while learner.fold is None or not sum(learner.fold.positions):
        learner.step()
    assert 3_600 <= learner.lag < 3_700
    until_idle(learner)
    assert learner.lag == 0.0
    learner.close()
    journal.close()


def test_it_halts_before_what_only_a_newer_release_knows(
    store: Store, bandit: str, writer: Bandit
) -> None:
    """The error has the position; earlier records are saved, the model stays, the lease is free."""
    play(writer, 20)
    learner = learning_service(definition(bandit), store)
    until_idle(learner)
    coordination = store.coordination(bandit)
    publication = coordination.published()
    journal = store.journal(bandit)
    end = journal.end(1)
    journal.import_records(
        [Record(1, 0, system_clock(), Opaque(b"\x02\x92\x63\xa1a"))]
    )  # kind 99 of "a"
    journal.append([Void(f"after {n}", 5) for n in range(20)])
    assert journal.end(1) > end + 1
    with pytest.raises(UnknownEvent, match=f"partition 1 at position {end + 1} \\(kind 99\\)"):
        learner.step()
    learner.close()
    assert coordination.published() == publication
    assert coordination.leader() is None
    snapshot = journal.load(1)
    assert snapshot is not None
    assert snapshot.position == end
    # One that knows no more begins there, and comes no further.
    with pytest.raises(UnknownEvent, match=f"partition 1 at position {end + 1} "):
        (learner_again := learning_service(definition(bandit), store)).step()
    learner_again.close()
    journal.close()
    coordination.close()


@pytest.mark.parametrize("model", [b"\x63 of a later release", b"\x01 damaged"])
def test_a_decider_starts_whatever_was_published(store: Store, bandit: str, model: bytes) -> None:
    """As in a downgrade: it decides, but is not ready until it can read a model."""
    learner = learning_service(definition(bandit), store)
    assert learner._lead()
    learner.coordination.publish(model, learner.epoch)
    loop = asyncio.new_event_loop()
    bandits = ServedBandits([definition(bandit)], store, loop, ThreadRuntime())
    served_bandit = bandits[bandit]
    try:
        assert served_bandit.is_stale(600.0)
        rows, rng = np.eye(DIM, dtype=np.float32), np.random.default_rng(0)
        assert served_bandit.decider.choose(
            [ParsedRequest(DIM)], rows, now=5, rng=rng, hold=True
        ).decisions
        until_idle(learner)

        def taken() -> bool:
            loop.run_until_complete(asyncio.sleep(0))  # what the polling thread has left for it
            return not served_bandit.is_stale(600.0)

        eventually(taken)
    finally:
        bandits.close()
        learner.close()
        loop.close()


def test_it_settles_what_is_due(store: Store, bandit: str) -> None:
    """A missing reward becomes the default after the window: the learner records the time."""
    delayed_rewards = definition(bandit, DefaultAfter(timedelta(seconds=10)))
    with store.journal(bandit, partitions=2) as journal:
        x = np.ones(DIM, dtype=np.float32)
        journal.append([Decision(f"d{n}", system_clock(), 0, 0, x, 0.5, 1.0, 0) for n in range(20)])
    learner = learning_service(delayed_rewards, store)
    until_idle(learner)
    assert learner.fold is not None
    assert learner.fold.counts["pending"] == 20
    fold = learner.fold
    eventually(lambda: learner.step() >= 0 and fold.counts["defaulted"] == 20)
    learner.close()


def test_fits_beside_the_fold_lose_nothing(store: Store, bandit: str, writer: Bandit) -> None:
    """After hundreds of rewards, folded a few at a time with concurrent fits: the same sums."""
    learner = learning_service(definition(bandit), store)
    for _ in range(8):
        play(writer, 40)
        learner.step()
    until_idle(learner)
    assert learner.fold is not None
    assert same_sums(learner.fold, writer._fold)
    replay = Fold(POLICY, writer.rewards, partitions=2)
    replay.catch_up(writer.journal)
    assert learner.fold.digest == replay.digest
    deviations = np.sqrt(np.diag(writer.estimate.covariance))
    gap = (learner.fold.model.theta - writer.estimate.theta) / deviations
    assert np.abs(gap).max() < 0.1
    learner.close()


def test_decisions_are_found_by_their_ids(store: Store, bandit: str) -> None:
    """The first of two under one id; rewards and unknown ids are not included."""
    x = np.ones(DIM, dtype=np.float32)
    with store.journal(bandit, partitions=4) as journal:
        decisions = [Decision(f"d{n}", n + 10, n, 0, x, 0.5, 1.0, 0) for n in range(50)]
        duplicate = Decision("d7", 5, 99, 0, x, 0.5, 1.0, 0)
        journal.append([*decisions, duplicate])
        decisions_by_id = journal.decisions(["d3", "d7", "nobody", "d49"])
        assert decisions_by_id == {"d3": decisions[3], "d7": decisions[7], "d49": decisions[49]}
        assert journal.decisions([]) == {}


def test_coordination_needs_a_journal(store: Store) -> None:
    """Not for a bandit that was never opened."""
    with pytest.raises(JournalError, match="by opening its journal"):
        store.coordination("nobody has opened this")


def test_who_leads_can_be_seen(store: Store, bandit: str, writer: Bandit) -> None:
    """Its name, its epoch, and the remaining seconds of its lease."""
    coordination = store.coordination(bandit)
    assert coordination.leader() is None
    assert coordination.acquire_lease("one", 60.0) == 1
    assert coordination.acquire_lease("two", 60.0) is None
    assert coordination.acquire_lease("one", 60.0) == 1
    leader = coordination.leader()
    assert leader is not None
    assert (leader.holder, leader.epoch) == ("one", 1)
    assert 40.0 < leader.seconds <= 60.0
    coordination.release_lease("two")
    assert coordination.leader() is not None
    coordination.release_lease("one")
    assert coordination.leader() is None
    assert (coordination.acquire_lease("two", 5.0) or 0) > 1
    coordination.close()


def test_a_long_step_does_not_lose_the_lead(store: Store, bandit: str, writer: Bandit) -> None:
    """The lease is renewed in the background, so that no other learner takes over."""
    play(writer, 5)
    leader, standby = (learning_service(definition(bandit), store, lease=1.5) for _ in range(2))
    make = leader._make_fold

    def slowly() -> Fold:
        """Load slowly, like a large snapshot."""
        for _ in range(25):
            time.sleep(0.1)
            assert not standby.step()
            assert not standby.leads()
        return make()

    leader._make_fold = slowly
    until_idle(leader)
    assert leader.leads()
    assert leader.epoch == 1
    for learner in (leader, standby):
        learner.close()


def test_one_that_is_stuck_loses_the_lead(
    store: Store, bandit: str, writer: Bandit, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A thread renews the lease only while the learner makes progress."""
    play(writer, 5)
    leader, standby = (learning_service(definition(bandit), store, lease=0.3) for _ in range(2))
    until_idle(leader)
    monkeypatch.setattr("belated.service.learning.lease.PATIENCE", 0.2)
    eventually(lambda: standby.step() >= 0 and standby.leads(), seconds=10)
    assert leader.step() == 0
    assert not leader.leads()
    for learner in (leader, standby):
        learner.close()
