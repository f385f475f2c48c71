"""An exception that interrupts a call leaves a bandit that equals its journal."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

import pytest

from belated import Bandit, Bernoulli, DelayedUCB, Explicit, PerArm
from belated.core.inputs import Row
from belated.exceptions import InvalidInput, JournalUnavailable
from belated.features import Actions
from belated.fold.learner import Learner
from belated.fold.weighting import Constant
from belated.journals import MemoryJournal
from belated.journals.snapshots import Snapshot
from belated.journals.sqlite.store import SQLiteStore
from belated.service import Definition
from belated.service.learning import learners as learners_module
from belated.service.learning.learners import learners_of
from tests.brokers import assign_partitions
from tests.faults.interrupted import KINDS, InterruptedBandit, check_replay
from tests.waiting import eventually

#: Interrupts of one bandit.
EACH = 10


@pytest.mark.parametrize("journal", ["memory", "sqlite"])
@pytest.mark.filterwarnings("ignore::belated.exceptions.BelatedWarning")
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_an_interrupted_call_leaves_a_bandit_that_equals_its_journal(
    journal: str, tmp_path: Path, full: bool
) -> None:
    """Live state equals a replay, nothing stays locked, retries count once, snapshots are right."""
    interrupts, places = 0, set()
    for seed in range(100 if full else 6):
        kind = [*KINDS][seed % len(KINDS)]
        path = tmp_path / f"{seed}.db" if journal == "sqlite" else None
        bandit = InterruptedBandit(kind, path, seed)
        for number in range(EACH):
            places.add(bandit.interrupt(number + seed))
            interrupts += 1
        bandit.reopen(seed)
        bandit.bandit.close()
    assert interrupts == EACH * (100 if full else 6)
    assert len(places) > interrupts / 3


class CountedJournal(MemoryJournal):
    """A journal that counts how often a fold begins, and can be unavailable."""

    begun = 0
    unavailable = False

    def load(self, partition: int) -> Snapshot | None:
        """Return the snapshot."""
        self.begun += 1
        if self.unavailable:
            raise JournalUnavailable("the disk is full")
        return super().load(partition)


class Picky(PerArm):
    """Features that can raise any error."""

    def rows(self, context: Any, actions: Actions) -> Row:
        """Return the rows of a context that has an age."""
        return super().rows([context["age"]], actions)


def opened(journal: MemoryJournal, **settings: Any) -> Bandit:
    """Return a bandit on a journal."""
    dim = settings["features"].dim if settings else 2
    policy = DelayedUCB(dim, Bernoulli())
    return Bandit(policy=policy, rewards=Explicit(), journal=journal, seed=1, **settings)


def interrupt(bandit: Bandit, monkeypatch: pytest.MonkeyPatch) -> None:
    """Interrupt an append after the journal has stored it."""

    def take(fold: Any, record: Any) -> str:
        monkeypatch.undo()
        raise KeyboardInterrupt

    monkeypatch.setattr(type(bandit._fold), "take", take)
    with pytest.raises(KeyboardInterrupt):
        bandit.decide(rows=[[1.0, 0.0], [0.0, 1.0]])


def test_errors_of_a_caller_do_not_rebuild_the_bandit() -> None:
    """Failing features and rejected input do not cause the journal to be read again."""
    journal = CountedJournal()
    bandit = opened(journal, features=Picky(["a", "b"], context=1))
    bandit.decide({"age": 0.5})
    for context in ({}, {"age": "old"}, None):
        with pytest.raises((KeyError, ValueError, TypeError)):
            bandit.decide(context)
        with pytest.raises(InvalidInput):
            bandit.observe("a", 7.0)
    bandit.decide({"age": 0.5})
    assert journal.begun == 1


def test_an_interrupted_bandit_says_nothing_until_it_can_be_rebuilt(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """While the journal cannot be read, the bandit returns nothing wrong; then it recovers."""
    journal = CountedJournal()
    bandit = opened(journal)
    interrupt(bandit, monkeypatch)
    journal.unavailable = True
    for _ in range(2):
        with pytest.raises(JournalUnavailable):
            bandit.decide(rows=[[1.0, 0.0], [0.0, 1.0]])
        with pytest.raises(JournalUnavailable):
            _ = bandit.estimate
    journal.unavailable = False
    assert bandit.pending.count == 1
    check_replay(bandit)


def test_closing_an_interrupted_bandit_saves_what_the_journal_says(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """As for Ctrl-C within a with statement."""
    snapshots: list[Snapshot] = []
    journal = CountedJournal()
    monkeypatch.setattr(journal, "save", snapshots.append)
    bandit = opened(journal)
    with monkeypatch.context() as patch:
        interrupt(bandit, patch)
    bandit.close()
    assert snapshots[0].position == 2  # the configuration, and the decision
    assert bandit.pending.count == 1


@pytest.mark.parametrize("kind", ["one", "many"])
def test_a_learner_that_fails_within_a_record_saves_no_snapshot(
    kind: Literal["one", "many"], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The learner is rebuilt and reads that record again."""
    monkeypatch.setattr(learners_module, "FAILED", 0.01)
    store = SQLiteStore(tmp_path / "offers.db")
    assign_partitions(store, [0], 1)
    policy = DelayedUCB(2, Bernoulli())
    definition = Definition("offers", policy, Explicit(), partitions=1, learners=kind)
    journal = store.journal("offers")
    bandit = Bandit(policy=policy, rewards=Explicit(), journal=journal, seed=1)
    for _ in range(5):
        bandit.decide(rows=[[1.0, 0.0], [0.0, 1.0]])
    journal.close()  # without a snapshot of the bandit
    add_pending, countdown = Learner.add_pending, [3]

    def fails_once(learner: Learner, x: Any, weight: float, began: int) -> None:
        countdown[0] -= 1
        if not countdown[0]:
            raise MemoryError
        add_pending(learner, x, weight, began)

    with monkeypatch.context() as patch:
        patch.setattr(Learner, "add_pending", fails_once)
        patch.setattr(Constant, "takes_pages", False)  # compiled kernels call no method
        learners = learners_of([definition], store)
        learners.start()
        eventually(lambda: learners.failures["offers"] == 1 and countdown[0] < -1)
        learners.stop()
    with Bandit(
        policy=policy, rewards=Explicit(), journal=store.journal("offers"), seed=1
    ) as reopened:
        check_replay(reopened)
        assert reopened.pending.count == 5
