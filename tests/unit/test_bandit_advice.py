"""A bandit and the service's learner say what the checks find: once, and from the state alone."""

from __future__ import annotations

import logging
import warnings
from typing import Any

import numpy as np
import pytest

from belated import (
    Bandit,
    Bernoulli,
    ConversionsOnly,
    DefaultAfter,
    DelayedUCB,
    Explicit,
    Gaussian,
)
from belated.advice import ROWS, SAMPLE
from belated.core.rewards import Rewards
from belated.exceptions import DuplicateWarning, MissingRewardWarning, WindowWarning
from belated.fold import evidence
from belated.fold.evidence import evidence_of
from belated.fold.fold import Fold
from belated.journals import MemoryJournal, MemoryStore
from belated.policies import Policy
from belated.service.learning import learning_service as module
from belated.service.learning.learning_service import LearningService
from belated.testing import ManualClock

POLICY = DelayedUCB(2, Bernoulli())
MINUTE = 60_000_000


def clicks(bandit: Bandit, clock: ManualClock, count: int, step: int = MINUTE) -> None:
    """Every tenth decision is clicked, at once; nothing else is reported."""
    for n in range(count):
        clock.now += step
        decision = bandit.decide(rows=np.eye(2))
        if n % 10 == 0:
            bandit.observe(decision.id, 1.0)


def opened(clock: ManualClock, journal: Any = None, policy: Policy = POLICY) -> Bandit:
    """A bandit that is told that both outcomes are reported."""
    journal = MemoryJournal(clock=clock) if journal is None else journal
    return Bandit(policy=policy, rewards=Explicit(), journal=journal, clock=clock, seed=1)


def test_a_bandit_warns_once_where_it_is_called() -> None:
    """And again when it is opened again: the warning is that of the state."""
    clock = ManualClock()
    bandit = opened(clock)
    with pytest.warns(MissingRewardWarning, match=r"all rewards so far are 1.*#alike") as issued:
        clicks(bandit, clock, 500)
    assert [warning.filename for warning in issued] == [__file__]
    second = opened(clock, bandit.journal)
    with pytest.warns(MissingRewardWarning) as repeated:
        clicks(second, clock, 100)
    assert len(repeated) == 1


@pytest.mark.parametrize("rewards", [ConversionsOnly("7d"), DefaultAfter("7d")])
def test_a_loop_in_which_no_time_passes_is_warned_of(rewards: Rewards) -> None:
    """Within the first hundred decisions, with what to do about it."""
    clock = ManualClock()
    bandit = Bandit(policy=POLICY, rewards=rewards, clock=clock, seed=1)
    with pytest.warns(WindowWarning) as issued:
        clicks(bandit, clock, 100, step=0)
    (message,) = [str(warning.message) for warning in issued]
    assert "Bandit(clock=...)" in message
    assert ("ConversionsOnly(window)" in message) == isinstance(rewards, DefaultAfter)


def test_a_window_far_longer_than_conversions_take_is_warned_of_once() -> None:
    """A thousand times; not if the bandit is too young to have seen slow ones."""
    clock = ManualClock()
    bandit = Bandit(policy=POLICY, rewards=ConversionsOnly("30d"), clock=clock, seed=1)
    with pytest.warns(WindowWarning, match=r"99% of the conversions arrived within") as issued:
        clicks(bandit, clock, 1_000)
    assert len(issued) == 1
    slow = Bandit(policy=POLICY, rewards=ConversionsOnly("5m"), clock=clock, seed=1)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        pending = []
        for n in range(400):
            clock.now += MINUTE
            pending.append(slow.decide(rows=np.eye(2)).id)
            if n % 10 == 5:
                slow.observe(pending[-4], 1.0)


def test_what_is_refused_as_a_duplicate_counts() -> None:
    """The journal never sees it."""
    bandit = opened(ManualClock())

    def report_twice() -> None:
        for n in range(120):
            decision = bandit.decide(rows=np.eye(2))
            bandit.observe(decision.id, float(n % 2))
            bandit.observe(decision.id, float(n % 2))

    with pytest.warns(DuplicateWarning, match=r"of 1.. rewards had already been reported"):
        report_twice()


def test_reading_the_past_warns_of_nothing() -> None:
    """Whoever looks at an old bandit can do nothing about it."""
    clock = ManualClock()
    bandit = opened(clock)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        clicks(bandit, clock, 300)
    assert bandit.as_of(clock.now).pending.count == 270


@pytest.mark.parametrize(
    "policy",
    [POLICY, DelayedUCB(2, Gaussian(1.0)), DelayedUCB(2, Bernoulli(), learn_after=5)],
    ids=lambda policy: type(policy.family).__name__ + type(policy).__name__,
)
def test_the_evidence_is_what_happened(policy: Policy) -> None:
    """Times, values and rows, whether pending, learned, waiting to be folded in, or in parts."""
    clock = ManualClock()
    bandit = opened(clock, policy=policy)
    rng = np.random.default_rng(0)
    decisions = []
    for n in range(90):
        clock.now += MINUTE
        rows = rng.normal(size=(2, 2)).astype(np.float32)
        decisions.append((clock.now, bandit.decide(rows=rows)))
        if n % 3 == 1:
            bandit.observe(decisions[-1][1].id, 0.25)
        elif n % 9 == 2:
            bandit.observe(decisions[-1][1].id, 0.5, part="sale")
    bandit.void(decisions[0][1].id)
    observed = evidence_of(bandit._fold)
    assert (observed.decisions, observed.pending, observed.rewards) == (89, 49, 40)
    assert observed.made.tolist() == [at for at, _ in decisions[1:]]
    assert observed.now == clock.now
    assert observed.latest == observed.arrived.max() == decisions[88][0]
    expected = [0.25 if n % 3 == 1 else 0.5 for n in range(1, 90) if n % 3 == 1 or n % 9 == 2]
    assert observed.value[observed.rewarded].tolist() == expected
    assert (observed.arrived == observed.made)[observed.rewarded].all()
    assert observed.at.tolist() == list(range(89))
    np.testing.assert_array_equal(observed.rows, [decision.x for _, decision in decisions[1:]])
    digest = bandit.digest
    assert evidence_of(bandit._fold).arrived.tolist() == observed.arrived.tolist()
    assert bandit.digest == digest


def test_a_replay_has_the_same_evidence() -> None:
    """Also with several partitions, and of more decisions than are looked at."""
    clock = ManualClock()
    bandit = opened(clock, MemoryJournal(clock=clock, partitions=4))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for _ in range(SAMPLE // 500 + 2):
            clock.now += MINUTE
            for n, decision in enumerate(bandit.decide_many(rows=[np.eye(2)] * 500)):
                if n % 50 == 0:
                    bandit.observe(decision.id, 1.0)
        reopened = opened(clock, bandit.journal)
    observed, replayed = evidence_of(bandit._fold), evidence_of(reopened._fold)
    assert len(observed.made) == SAMPLE < observed.decisions
    assert len(observed.rows) == ROWS
    for name in ("made", "arrived", "value", "learned", "rows", "at"):
        np.testing.assert_array_equal(getattr(observed, name), getattr(replayed, name))
    assert observed.latest == replayed.latest


def test_of_long_rows_there_are_fewer(monkeypatch: pytest.MonkeyPatch) -> None:
    """So that a look costs no more than it must; but never fewer than an eighth."""
    bandit = opened(ManualClock())
    bandit.decide_many(rows=[np.eye(2)] * 900)
    for numbers, expected in ((2 * ROWS, 900), (ROWS, ROWS // 2), (1, ROWS // 8)):
        monkeypatch.setattr(evidence, "NUMBERS", numbers)
        assert len(evidence_of(bandit._fold).rows) == expected


def test_a_learner_logs_it_once_and_tells_while_it_holds(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """With the bandit and the name of the check, as fields of the line."""
    monkeypatch.setattr(module, "ADVISE", 0.0)
    clock = ManualClock()
    store = MemoryStore(clock=clock)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        bandit = opened(clock, store.journal())
        clicks(bandit, clock, 400)
        learner = LearningService(
            store.journal(), store.coordination(), lambda: Fold(POLICY, Explicit())
        )
        with caplog.at_level(logging.WARNING, "belated.service"):
            while learner.fold is None or learner.fold.version < 400:
                learner.step()
            learner.step()
            clicks(bandit, clock, 50)
            while learner.fold.version < 490:
                learner.step()
            learner.step()
    assert learner.adviser.current == {"alike"}
    (line,) = caplog.records
    assert line.getMessage() == "advice: alike"
    assert line.__dict__["bandit"] == store.journal().bandit
    assert "ConversionsOnly(window)" in line.__dict__["advice"]
    learner.close()
