"""A learner folds its journal a second time in the background, and reports differences."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import closing
from datetime import timedelta

import numpy as np
import pytest

from belated import Bernoulli, DefaultAfter, DelayedUCB
from belated.core.events import Decision, Erased, Event, Record, Retracted, Reward, Settled, Void
from belated.core.ids import erased_key_of, new_id
from belated.core.rewards import retention_us
from belated.fold.fold import Fold
from belated.journals import Journal, Store
from belated.service.learning.learning_service import LearningService
from belated.service.learning.refold import PAUSE, REST, SLICE, Refold, same_entries
from tests.integration.forger import forger

POLICY = DelayedUCB(2, Bernoulli())
REWARDS = DefaultAfter(timedelta(hours=1))
RETENTION = retention_us(timedelta(hours=3), REWARDS)
PARTITIONS, HOUR, START = 2, 3_600_000_000, 1_700_000_000_000_000


def empty() -> Fold:
    """Return an empty fold."""
    return Fold(POLICY, REWARDS, partitions=PARTITIONS, retention=RETENTION)


def fill(journal: Journal, seed: int, count: int = 600) -> None:
    """Append decisions in every state, some of them forgotten, with every kind of reward."""
    rng = np.random.default_rng(seed)
    ids: list[str] = []
    events: list[Event] = []
    stamps = (START + seed * 100 * HOUR + np.sort(rng.integers(20 * HOUR, size=count))).tolist()
    for stamp in stamps:
        kind = rng.random()
        if kind < 0.5 or not ids:
            ids.append(new_id(stamp))
            x = rng.random(2, dtype=np.float32)
            events.append(Decision(ids[-1], stamp, 0, 0, x, 0.5, 1.0, 0, bool(rng.random() < 0.8)))
        elif kind < 0.9:
            id = ids[-1 - int(rng.integers(min(len(ids), 30)))]
            events.append(Reward(id, stamp, float(rng.integers(2)), "", int(rng.integers(3))))
        elif kind < 0.95:
            events.append(Void(ids[-1 - int(rng.integers(min(len(ids), 30)))], stamp))
        else:
            events.append(Settled(int(rng.integers(PARTITIONS)), stamp))
    journal.append(events, recorded=stamps)


class Clock:
    """A manual clock."""

    now = 0.0

    def __call__(self) -> float:
        """Return the time."""
        return self.now


@pytest.fixture
def journal(store: Store, bandit: str) -> Iterator[Journal]:
    """A journal to append to."""
    with store.journal(bandit, partitions=PARTITIONS) as bandit_journal:
        fill(journal=bandit_journal, seed=1)
        yield bandit_journal


def again(refold: Refold, live: Fold, clock: Clock) -> list[str]:
    """Fold everything once more; return the differences."""
    findings, goal = [], refold.compared + PARTITIONS
    clock.now += REST
    for _ in range(100):
        clock.now += 2 * PAUSE
        if finding := refold.step(live):
            findings.append(finding)
        if refold.compared == goal:
            return findings
    raise AssertionError("it never came as far")


def test_they_agree(journal: Journal) -> None:
    """Also if one began with a snapshot, continues meanwhile, and has forgotten some decisions."""
    live_fold = empty()
    live_fold.catch_up(journal)
    live_fold.save(journal)
    loaded_fold, clock = empty(), Clock()
    loaded_fold.load(journal)
    refold = Refold(journal, clock)
    for seed in range(2, 6):
        fill(journal, seed, 300)
        loaded_fold.catch_up(journal)
        assert again(refold, loaded_fold, clock) == []
    assert refold.disagreements == 0
    assert sum(ledger._forgotten for ledger in loaded_fold.ledgers.values()) > 0
    assert min(loaded_fold.counts[state] for state in ("rewarded", "defaulted", "voided")) > 0


def _value(live: Fold) -> None:
    rows = live.ledgers[1]._table
    i = next(i for i in range(len(rows)) if rows.value[i] == 1.0 and not rows.flags[i] & 8)
    rows.value[i] = 0.0


def _state(live: Fold) -> None:
    live.ledgers[1]._table.state[len(live.ledgers[1]._table) - 1] ^= 1


def _count(live: Fold) -> None:
    live.ledgers[1].counts[0] += 1


@pytest.mark.parametrize("wrong", [_value, _state, _count])
def test_a_live_ledger_that_went_wrong(journal: Journal, wrong: Callable[[Fold], None]) -> None:
    """A single value of one decision is enough."""
    live_fold, clock = empty(), Clock()
    live_fold.catch_up(journal)
    wrong(live_fold)
    refold = Refold(journal, clock)
    (finding,) = again(refold, live_fold, clock)
    assert "partition 1" in finding
    assert "different decisions" in finding
    assert refold.disagreements == 1


def test_what_agrees_has_the_same_digest(journal: Journal) -> None:
    """The comparison by columns agrees with digests and the number of forgotten decisions."""
    fold, other_fold = empty(), empty()
    fold.catch_up(journal)
    for partition in range(PARTITIONS):
        ledger, other_ledger = fold.ledgers[partition], other_fold.ledgers[partition]
        for record in journal.read(partition, 0, 10_000):
            is_equal = ledger.digest == other_ledger.digest
            # A record may change nothing but let a decision be forgotten: no digest tells that.
            is_equal = is_equal and ledger._forgotten_digest == other_ledger._forgotten_digest
            assert same_entries(ledger, other_ledger) is is_equal
            other_fold.take(record)
        assert ledger.digest == other_ledger.digest
        assert same_entries(ledger, other_ledger)


def test_an_old_record_that_was_changed_under_a_learner(
    store: Store,
    address: str,
    bandit: str,
    journal: Journal,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """The learner has already read it; the change is logged and counted, and learning continues."""
    learner = LearningService(store.journal(bandit), store.coordination(bandit), empty)
    while learner.step():
        pass
    with closing(forger(store, address, bandit)) as meddler:
        rows = meddler.rows()
        rows[5] = rows[5]._replace(recorded=rows[5].recorded + 1)
        meddler.replace(rows)
    clock = Clock()
    learner.refold = Refold(learner.journal, clock)
    with caplog.at_level(logging.ERROR):
        while not learner.refold.compared:
            clock.now += 2 * PAUSE
            learner.step()
    assert learner.refold.disagreements == 1
    assert "refold disagrees: the records of partition 0" in caplog.text
    learner.step()
    assert learner.leads()
    learner.close()


def test_a_slice_is_small_and_seldom(journal: Journal, monkeypatch: pytest.MonkeyPatch) -> None:
    """So that learning is not delayed."""
    live_fold, clock = empty(), Clock()
    live_fold.catch_up(journal)
    refold, limits = Refold(journal, clock), []
    read_records = type(journal).read

    def noted(journal: Journal, partition: int, after: int, limit: int) -> list[Record]:
        limits.append(limit)
        return read_records(journal, partition, after, limit)

    monkeypatch.setattr(type(journal), "read", noted)
    for _ in range(50):
        clock.now += PAUSE / 10
        refold.step(live_fold)
    assert 3 <= len(limits) <= 6
    assert set(limits) == {SLICE}


def test_what_was_undone_is_passed_over_by_both(journal: Journal) -> None:
    """The second fold knows it from the start, too."""
    first_id = next(
        record.event.id
        for record in journal.read(0, 0, 1_000)
        if isinstance(record.event, Decision)
    )
    retractions = [Retracted(p, 0, 0, journal.now(), "") for p in range(PARTITIONS)]
    journal.append([Erased(erased_key_of(first_id), 0), *retractions])
    live_fold, clock = empty(), Clock()
    live_fold.load(journal)
    live_fold.catch_up(journal)
    assert live_fold.counters["erased"] > 0
    assert live_fold.counters["retracted"] > 0
    assert again(Refold(journal, clock), live_fold, clock) == []
