"""A bandit over its journal: snapshots, bursts of others, and what is forgotten."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from itertools import pairwise

import numpy as np
import pytest

from belated import (
    Bernoulli,
    DefaultAfter,
    DelayedThompson,
    DelayedUCB,
    Explicit,
    Gaussian,
    PerArm,
    Poisson,
    paper_ducb,
)
from belated.core.events import Reward
from belated.core.times import as_datetime
from belated.core.tuning import Tuning
from belated.fold.rules import State
from belated.journals import MemoryJournal
from belated.policies import Policy
from belated.testing import ManualClock
from tests.unit.small_bandits import DAY, DAY_US, ROWS, opened, table


@pytest.fixture
def clock() -> ManualClock:
    """Moved by hand."""
    return ManualClock()


# --- snapshots ---------------------------------------------------------------------------------


def test_a_snapshot_counts_decisions_that_left(clock: ManualClock) -> None:
    """A warm-up goes by decisions made: it does not start again after a restart."""
    policy = paper_ducb(2, Bernoulli(), 1.0, warmup=50, ridge=1.0)
    bandit = opened(clock, policy=policy)
    for n in range(40):
        decision = bandit.decide(rows=ROWS)
        if n % 4 == 0:
            bandit.observe(decision.id, 1.0)
        elif n % 4 == 1:
            bandit.void(decision.id)
        clock.now += DAY_US // 10
    bandit.decide(rows=ROWS, activated=False)
    bandit.settle()
    bandit.save()
    reopened = opened(clock, policy=policy, journal=bandit.journal)
    fresh = bandit.as_of(clock.now)
    assert bandit.decision_counts["censored"] > 0
    assert bandit.decision_counts["voided"] > 0
    counted = bandit._fold.model.decisions
    assert reopened._fold.model.decisions == fresh._fold.model.decisions == counted == 40
    assert reopened._fold.version == fresh._fold.version == bandit._fold.version


def test_a_snapshot_of_other_settings_is_not_used(clock: ManualClock) -> None:
    """The journal is read again, and learning is not reset."""
    bandit = opened(clock)
    for n in range(10):
        bandit.observe(bandit.decide(rows=ROWS).id, float(n % 2))
    bandit.decide(rows=ROWS)
    bandit.save()
    clock.now += 2 * DAY_US
    reopened = opened(clock, journal=bandit.journal, rewards=DefaultAfter(DAY))
    assert reopened.estimate.n == 10
    assert reopened.settle() == 1
    assert reopened.estimate.n == 11


@pytest.mark.parametrize("partitions", [1, 4])
def test_snapshots_of_two_processes_do_not_mix(clock: ManualClock, partitions: int) -> None:
    """Full blocks are stored once; after another's snapshot all is stored again, and fits."""
    journal, tuning = MemoryJournal(partitions=partitions, clock=clock), Tuning(block=4)
    first = opened(clock, journal=journal, tuning=tuning)
    second = opened(clock, journal=journal, tuning=tuning)
    for n in range(40):
        bandit = (first, second)[n % 2]
        clock.now += 1
        decision = bandit.decide(rows=table(n))
        if n % 5:
            bandit.observe(decision.id, float(n % 3 == 0))
        first.sync()
        second.sync()
        if n % 3 == 0:
            bandit.save()
    fresh = opened(clock, journal=journal, tuning=tuning)
    assert fresh.digest == first.digest == second.digest
    np.testing.assert_allclose(fresh.estimate.theta, first.estimate.theta, atol=1e-8)


def test_what_is_pending_counts_as_much_after_a_restart(clock: ManualClock) -> None:
    """Also where the variance is estimated, and has changed since the choice."""
    policy = DelayedUCB(2, Gaussian("estimate"))
    bandit = opened(clock, policy=policy, rewards=Explicit())
    rng = np.random.default_rng(0)
    ids: list[str] = []
    for n in range(200):
        ids.append(bandit.decide(rows=rng.normal(size=(3, 2))).id)
        if n >= 20:
            bandit.observe(ids[n - 20], 0.1 * rng.normal())
    bandit.save()
    reopened = opened(clock, policy=policy, rewards=Explicit(), journal=bandit.journal)
    decisions = [bandit.entry(id).decision for id in ids[-20:]]
    rows = np.array(
        [decision.x for decision in decisions if decision is not None], dtype=np.float64
    )
    for replica in (bandit, reopened, bandit.as_of("9999-12-31T00:00Z")):
        learner = replica._fold.learner
        learner.renew()
        model = learner.model
        total = np.linalg.inv(model.decided @ model.decided.T)
        pending = total - np.linalg.inv(model.observed @ model.observed.T)
        np.testing.assert_allclose(pending, rows.T @ rows / model.dispersion, rtol=1e-6)


def test_grown_features_learn_from_older_rows(clock: ManualClock) -> None:
    """A new action has a block of its own, beside those of before."""
    small = PerArm(["blue", "red"], context=1)
    large = small.with_actions(["green"])
    policies = DelayedUCB(4, Gaussian()), DelayedUCB(6, Gaussian())
    journal = MemoryJournal(clock=clock)
    first = opened(clock, journal=journal, policy=policies[0], features=small)
    choices = [first.decide([float(n)], ["blue", "red"], id=f"{n}") for n in range(6)]
    for decision in choices[:3]:
        first.observe(decision.id, 2.0)
    first.save()
    second = opened(clock, journal=journal, policy=policies[1], features=large)
    assert (second.pending.count, second.estimate.n) == (3, 3)
    np.testing.assert_allclose(second.estimate.theta[:2], first.estimate.theta, atol=1e-12)
    np.testing.assert_allclose(second.estimate.theta[2:], 0.0, atol=1e-12)
    for decision in choices[3:]:
        second.observe(decision.id, 2.0)
    assert second.decide([0.0], ["blue", "red"], id="0") == choices[0]  # a retry across the growth
    second.observe(second.decide([1.0], ["green"]).id, 5.0)
    second.void(choices[0].id)
    second.save()
    third = opened(clock, journal=journal, policy=policies[1], features=large)
    assert third.digest == second.digest
    np.testing.assert_allclose(third.estimate.theta, second.estimate.theta, atol=1e-10)
    assert third.estimate.theta[2, 0] > 0.5


def test_closing_saves_and_closes(clock: ManualClock) -> None:
    """Within a with statement too."""
    journal = MemoryJournal(clock=clock)
    with opened(clock, journal=journal) as bandit:
        bandit.decide(rows=ROWS)
        bandit.save()
        assert journal.load(0) is not None
    assert bandit.decision_counts["pending"] == 1  # what was known is known


@pytest.mark.parametrize(
    "policy",
    [
        DelayedThompson(2, Bernoulli()),
        DelayedUCB(2, Poisson()),
        DelayedUCB(2, Gaussian("estimate")),
    ],
)
@pytest.mark.filterwarnings("ignore::belated.exceptions.InterceptWarning")
def test_replay_of_many_records_is_a_bulk(clock: ManualClock, policy: Policy) -> None:
    """More than a thousand records are folded with one fit, to the same estimate."""
    bandit = opened(clock, policy=policy, rewards=Explicit())
    rng = np.random.default_rng(0)
    decisions = []
    for n in range(700):
        decisions.append(bandit.decide(rows=table(n)))
        if n % 7 != 3:
            index = int(rng.integers(len(decisions)))
            bandit.observe(decisions.pop(index).id, float(rng.random() < 0.4))
    reopened = opened(clock, policy=policy, rewards=Explicit(), journal=bandit.journal)
    assert reopened.digest == bandit.digest
    assert reopened.pending.count == bandit.pending.count == len(decisions)
    np.testing.assert_allclose(reopened.estimate.theta, bandit.estimate.theta, rtol=1e-8, atol=1e-8)
    model, live = reopened._fold.model, bandit._fold.model
    assert (model.n, model.decisions) == (live.n, live.decisions)


def test_a_burst_of_others_is_folded_in_bulk_unless_a_fit_of_all_costs_more(
    clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Behind a thousand records a caller fits once; behind a few of very many, step by step."""
    journal = MemoryJournal(clock=clock)
    busy = opened(clock, journal=journal, rewards=Explicit())
    idle = opened(clock, journal=journal, rewards=Explicit())
    fits: list[int] = []
    learner = idle._fold.learner

    def fit() -> None:
        fits.append(learner.model.n)
        type(learner).fit(learner)

    monkeypatch.setattr(learner, "fit", fit)
    first = idle.decide(rows=ROWS, id="first")

    def burst(rounds: int) -> None:
        for n in range(rounds):
            busy.observe(busy.decide(rows=table(n)).id, float(n % 3 == 0))

    burst(600)
    fits.clear()
    assert idle.observe(first.id, 1.0).status == "rewarded"
    assert fits == [601]  # after 1,201 records
    assert idle.digest == opened(clock, journal=journal, rewards=Explicit()).digest
    idle._fold.tuning = replace(idle._fold.tuning, bulk=10)
    burst(12)
    fits.clear()
    idle.decide(rows=ROWS, id="last")
    assert fits == []  # 25 new ones among 600 are no reason for a fit


def test_behind_a_full_page_there_is_much(clock: ManualClock) -> None:
    """However many observations there are: how many records follow is not known."""
    fold = opened(clock, rewards=Explicit())._fold
    fold.learner.model.n = 10**6
    assert fold.is_much(fold.tuning.page)
    assert not fold.is_much(fold.tuning.page - 1)


def test_events_of_others_have_their_own_times(clock: ManualClock) -> None:
    """Positions and stamps are the journal's; ``at`` is for people."""
    bandit = opened(clock)
    bandit.decide(rows=ROWS, id="a")
    event_time = clock.now - 5
    assert bandit.observe("a", 1.0, at=as_datetime(event_time)).status == "rewarded"
    record = bandit.journal.read(0, 2, 1)[0]
    assert record.event == Reward("a", event_time, 1.0)
    assert record.recorded == clock.now
    stamps = [record.recorded for record in bandit.journal.read(0, 0, 10)]
    assert all(a <= b for a, b in pairwise(stamps))


@pytest.mark.parametrize("window", [None, timedelta(microseconds=10)])
def test_retention_forgets_without_a_window_that_ends(
    clock: ManualClock, window: timedelta | None
) -> None:
    """What was rewarded is let go of, and what was parked is given up."""
    retention = timedelta(microseconds=20)
    bandit = opened(clock, rewards=Explicit(window), retention=retention)
    for _ in range(5):
        bandit.observe(bandit.decide(rows=ROWS).id, 1.0)
    bandit.observe("never-made", 1.0)
    clock.now += 1_000
    bandit.decide(rows=ROWS)
    assert bandit.event_counts["orphaned"] == 1
    assert bandit.decision_counts["rewarded"] == 5
    assert len(bandit._fold.ledgers[0].numbers(State.REWARDED)) == 0
