"""A journal that loses or changes folded records is detected before the next model is published."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import closing
from datetime import timedelta
from typing import Any

import numpy as np
import pytest

from belated import Bandit, Bernoulli, DelayedUCB, Explicit
from belated.core.events import Decision, Event, Record, Reward
from belated.core.ids import key_of, new_id, partition_of
from belated.exceptions import (
    HistoryChanged,
    HistoryWarning,
    JournalReadUnavailable,
)
from belated.fold.fold import Fold
from belated.fold.published import PublishedModel
from belated.journals import Journal, MemoryJournal, Store, open_store
from belated.journals.log import AppendedAfter
from belated.service import Definition
from belated.service.learning import learning_service as module
from belated.service.learning.leader import HistoryChanges
from belated.service.learning.learning_service import LearningService
from belated.service.learning.shared_learner import SharedLearner
from tests.brokers import assign_partitions
from tests.integration.forger import Forger, forger
from tests.learners import learning_service, shared_learner

POLICY = DelayedUCB(2, Bernoulli())
REWARDS = Explicit(timedelta(days=1))
PARTITIONS = 2


def some(rng: np.random.Generator, count: int) -> list[Event]:
    """Return decisions, and rewards for most of them."""
    events: list[Event] = []
    for _ in range(count):
        id, x = new_id(5), rng.random(2, dtype=np.float32)
        events.append(Decision(id, 5, 0, 0, x, 0.5, 1.0, 0))
        if rng.random() < 0.8:
            events.append(Reward(id, 6, float(rng.integers(2))))
    return events


def fresh(journal: Journal) -> Fold:
    """Return a fold of the journal."""
    fold = Fold(POLICY, REWARDS, partitions=journal.partitions)
    fold.catch_up(journal)
    return fold


@pytest.fixture
def journal(store: Store, bandit: str) -> Iterator[Journal]:
    """A journal to append to."""
    with store.journal(bandit, partitions=PARTITIONS) as bandit_journal:
        yield bandit_journal


@pytest.fixture
def meddler(store: Store, address: str, bandit: str, journal: Journal) -> Iterator[Forger]:
    """An attacker with access to the tables."""
    with closing(forger(store, address, bandit)) as attacker:
        yield attacker


class Publications:
    """Records published models, with the number of changes detected by then."""

    def __init__(self, learner: LearningService) -> None:
        self.noticed: list[int] = []
        self.positions: list[int] = []
        self.n = -1
        publish = learner.coordination.publish

        def noting(data: bytes, epoch: int) -> None:
            self.noticed.append(learner.history_changes.count)
            model = PublishedModel.read(data)
            self.positions, self.n = model.positions, model.n
            publish(data, epoch)

        learner.coordination.publish = noting  # type: ignore[method-assign]


def until_published(learner: LearningService, journal: Journal, seen: Publications) -> None:
    """Step until a model of all records is published."""
    deadline = time.monotonic() + 30
    # The learner too appends something: what its bandit is.
    while seen.positions != [journal.end(partition) for partition in range(PARTITIONS)]:
        learner.step()
        assert time.monotonic() < deadline


def test_truncated_and_replaced_tails_under_a_running_learner(
    store: Store,
    bandit: str,
    journal: Journal,
    meddler: Forger,
    full: bool,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Each is detected before the next model is published, which reflects the current records."""
    for seconds in ("PUBLISH", "PUBLISH_SHARE"):
        monkeypatch.setattr(module, seconds, 0.0)
    monkeypatch.setattr(module, "SNAPSHOT", 0.0)  # one of every state: those of lost ones too
    rng = np.random.default_rng(5)
    learner = learning_service(Definition(bandit, POLICY, REWARDS, partitions=PARTITIONS), store)
    publications = Publications(learner)
    journal.append(some(rng, 20))
    for n in range(1, 1 + (500 if full else 10)):
        journal.append(some(rng, 5))
        until_published(learner, journal, publications)
        partition = int(rng.integers(PARTITIONS))
        end = journal.end(partition)
        meddler.cut(partition, end - int(rng.integers(1, min(end, 20) + 1)))
        if n % 2:  # the journal grows again: to the same end or another one
            while journal.end(partition) < end + rng.integers(-3, 4):
                journal.append(some(rng, 1))
        publications.positions = []
        until_published(learner, journal, publications)
        assert publications.noticed[-1] == n
        assert set(publications.noticed) == set(range(n + 1))
        assert learner.fold is not None
        replayed = fresh(journal)
        assert learner.fold.digest == replayed.digest
        assert learner.fold.head == replayed.head
        assert publications.n == replayed.learner.model.n
    errors = [record for record in caplog.records if record.levelname == "ERROR"]
    assert len(errors) == n
    assert vars(errors[0])["bandit"] == bandit
    learner.close()


def test_bandit_rebuilds(store: Store, bandit: str, meddler: Forger, journal: Journal) -> None:
    """With a warning; the call that detected the change succeeds."""
    with Bandit(policy=POLICY, rewards=REWARDS, journal=store.journal(bandit), seed=1) as restarted:
        restarted.save()
        for n in range(12):
            decision = restarted.decide(rows=np.eye(2))
            if n < 11:
                restarted.observe(decision.id, 1.0)
        partition = partition_of(key_of(decision.id), PARTITIONS)
        meddler.cut(partition, journal.end(partition) - 1)
        with pytest.warns(HistoryWarning, match=f"partition {partition}"):
            next_decision = restarted.decide(rows=np.eye(2))
        assert restarted.entry(next_decision.id).state == "pending"
        assert restarted.entry(decision.id).state == "unknown"
        assert restarted.digest == fresh(journal).digest
        assert restarted.observe(next_decision.id, 1.0).status == "rewarded"


def test_a_tail_that_was_replaced_while_no_one_looked(
    store: Store, bandit: str, journal: Journal, meddler: Forger
) -> None:
    """The snapshot belongs to another history: it is discarded, and the journal is read."""
    rng = np.random.default_rng(3)
    journal.append(some(rng, 30))
    saved_fold = fresh(journal)
    saved_fold.save(journal)
    end = journal.end(0)
    meddler.cut(0, end - 3)
    while journal.end(0) < end:
        journal.append(some(rng, 1))
    with pytest.raises(HistoryChanged):
        saved_fold.save(journal)
    fold = Fold(POLICY, REWARDS, partitions=PARTITIONS)
    changes = fold.load(journal)
    assert [(change.partition, change.position) for change in changes] == [
        (0, saved_fold.positions[0])
    ]
    assert fold.positions == [0, saved_fold.positions[1]]
    fold.catch_up(journal)
    assert fold.digest == fresh(journal).digest
    assert fold.head == fresh(journal).head
    with pytest.warns(HistoryWarning, match="partition 0"):
        Bandit(policy=POLICY, rewards=REWARDS, journal=store.journal(bandit)).close()


@pytest.mark.parametrize("learners", ["one", "many"])
def test_a_learner_that_starts_tells_of_records_that_were_lost_before(
    address: str,
    bandit: str,
    journal: Journal,
    meddler: Forger,
    learners: str,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """As an error, once, and not as a damaged snapshot: an alert depends on it."""
    monkeypatch.setattr(module, "SNAPSHOT", 0.0)
    store = open_store(address)
    assign_partitions(store, range(PARTITIONS), PARTITIONS)
    definition = Definition(bandit, POLICY, REWARDS, partitions=PARTITIONS)

    def started() -> HistoryChanges:
        learner: LearningService | SharedLearner
        if learners == "one":
            learner = learning_service(definition, store)
            changes = learner.history_changes
        else:
            learner = shared_learner(definition, store)
            changes = learner.worker.history_changes
        while learner.step():
            pass
        learner.close()
        return changes

    journal.append(some(np.random.default_rng(8), 30))
    assert started().count == 0
    meddler.cut(0, journal.end(0) - 3)
    caplog.clear()
    assert started().count == 1
    assert [
        record.levelname for record in caplog.records if "history changed" in record.message
    ] == ["ERROR"]
    assert started().count == 0  # the snapshot is of what is there again


def test_a_snapshot_goes_on_with_the_chain(journal: Journal) -> None:
    """Across a link, and within one."""
    rng = np.random.default_rng(4)
    fold = Fold(POLICY, REWARDS, partitions=PARTITIONS)
    for count in (900, 700, 3):
        journal.append(some(rng, count))
        loaded_fold = Fold(POLICY, REWARDS, partitions=PARTITIONS)
        loaded_fold.load(journal)
        assert loaded_fold.positions == fold.positions
        assert loaded_fold.head == fold.head
        for either_fold in (fold, loaded_fold):
            either_fold.catch_up(journal)
        assert loaded_fold.head == fold.head == fresh(journal).head
        fold.save(journal)
    assert max(fold.positions) > 1_024


def test_what_is_appended_and_gone_again_is_an_error() -> None:
    """The bandit does not wait for it."""
    journal = MemoryJournal()
    bandit = Bandit(policy=POLICY, rewards=REWARDS, journal=journal)
    bandit.decide(rows=np.eye(2))
    append = journal.append_after

    def losing(*args: Any, **options: Any) -> AppendedAfter:
        positions = append(*args, **options).positions
        journal._streams[0].pop()
        return AppendedAfter(positions, [])

    journal.append_after = losing  # type: ignore[method-assign]
    with pytest.warns(HistoryWarning), pytest.raises(HistoryChanged):
        bandit.decide(rows=np.eye(2))


def test_journal_is_unavailable_during_a_rebuild(monkeypatch: pytest.MonkeyPatch) -> None:
    """Decisions do not need it: the bandit is behind, and catches up later."""
    journal = MemoryJournal()
    bandit = Bandit(policy=POLICY, rewards=REWARDS, journal=journal)
    lost_decision = bandit.decide(rows=np.eye(2))
    journal._streams[0].pop()
    bandit._follower.behind = True

    def away(partition: int) -> list[Record]:
        raise JournalReadUnavailable("away")

    monkeypatch.setattr(journal, "undone", away)
    with pytest.warns(HistoryWarning):
        kept_decision = bandit.decide(rows=np.eye(2))
    monkeypatch.undo()
    bandit.sync()
    assert bandit.entry(kept_decision.id).state == "pending"
    assert bandit.entry(lost_decision.id).state == "unknown"
    assert bandit.pending.count == 1
