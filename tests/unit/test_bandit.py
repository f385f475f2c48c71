"""What a bandit answers."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import numpy as np
import pytest

from belated import (
    Bernoulli,
    DefaultAfter,
    DelayedUCB,
    Explicit,
    Gaussian,
    PerArm,
    Uniform,
)
from belated.core.events import Settled
from belated.core.ids import new_id
from belated.core.times import as_datetime
from belated.exceptions import InvalidInput
from belated.journals import MemoryJournal
from belated.journals.identity import semantics_of
from belated.testing import ManualClock
from tests.unit.small_bandits import DAY, DAY_US, ROWS, UCB, opened, table


@pytest.fixture
def clock() -> ManualClock:
    """Moved by hand."""
    return ManualClock()


# --- decisions ---------------------------------------------------------------------------------


def test_a_decision_is_what_the_journal_holds(clock: ManualClock) -> None:
    """It is written down before it is told, whole."""
    bandit = opened(clock)
    decision = bandit.decide(rows=ROWS, actions=["blue", "red"])
    assert decision.action == ["blue", "red"][decision.index]
    assert decision.x.tolist() == ROWS[decision.index]
    assert (decision.at_us, decision.mean, decision.activated) == (clock.now, 0.5, True)
    assert [record.event for record in bandit.journal.read(0, 1, 10)] == [decision]
    assert bandit.entry(decision.id).decision == decision


@pytest.mark.parametrize("kind", ["list", "tuple", "int", "float32", "float64", "fortran", "bool"])
def test_rows_of_any_type_are_the_same_rows(clock: ManualClock, kind: str) -> None:
    """Lists and arrays of numbers give the same decision."""
    tables: Any = {
        "list": ROWS,
        "tuple": ((1, 0), (0, 1)),
        "int": np.eye(2, dtype=np.int64),
        "float32": np.eye(2, dtype=np.float32),
        "float64": np.eye(2),
        "fortran": np.asfortranarray(np.eye(2)),
        "bool": np.eye(2, dtype=np.bool_),
    }[kind]
    decision = opened(clock).decide(rows=tables)
    assert decision.x.dtype == np.float32
    assert decision.x.tolist() == ROWS[decision.index]


def test_a_decision_keeps_its_own_row(clock: ManualClock) -> None:
    """What the caller does to the rows afterwards changes nothing."""
    bandit = opened(clock)
    rows = np.eye(2, dtype=np.float32)
    decision = bandit.decide(rows=rows)
    row = decision.x.tolist()
    rows[:] = 7.0
    assert decision.x.tolist() == row


def test_the_same_id_gives_the_same_decision(clock: ManualClock) -> None:
    """A retry does not decide again, whatever has been learned meanwhile."""
    bandit = opened(clock)
    first = bandit.decide(rows=ROWS, id="order-17")
    for _ in range(20):
        bandit.observe(bandit.decide(rows=ROWS).id, 1.0)
    assert bandit.decide(rows=ROWS, id="order-17") == first
    assert bandit.decision_counts["pending"] == 1


def test_a_retry_at_another_process_gives_the_same_decision(clock: ManualClock) -> None:
    """The other one looks into the journal before it decides under an id it was given."""
    first_bandit = opened(clock)
    second_bandit = opened(clock, journal=first_bandit.journal)
    first = first_bandit.decide(rows=ROWS, id="order-17")
    clock.now += 1
    assert second_bandit.decide(rows=ROWS, id="order-17") == first
    assert second_bandit.event_counts == {"configured": 1, "decided": 1}


def test_the_journal_says_what_the_bandit_is(clock: ManualClock) -> None:
    """Once, and again only when that has changed, whoever opens it."""
    features = PerArm(["blue", "red"], context=["age"])
    journal = MemoryJournal(clock=clock)

    def settings(**more: Any) -> dict[str, str]:
        more = {"policy": DelayedUCB(4, Bernoulli()), "features": features} | more
        opened(clock, journal=journal, **more)
        configured = journal.configured()
        assert configured is not None
        assert configured.at_us == clock.now
        return configured.settings

    first = settings(rewards=Explicit(timedelta(days=7)), retention=timedelta(days=90, seconds=5))
    assert first["policy"].startswith("DelayedUCB(dim=4, family=Bernoulli()")
    assert {name: value for name, value in first.items() if name != "policy"} == {
        "rewards": "Explicit",
        "reduce": "latest",
        "window": "7d",
        "retention": "90d5s",
        "features": "PerArm(actions=('blue', 'red'), context=('age',), intercept=True)",
        "names": "blue: intercept, blue: age, red: intercept, red: age",
        "actions": "blue, red",
    }
    settings(rewards=Explicit(timedelta(days=7)), retention=timedelta(days=90, seconds=5))
    assert journal.end(0) == 1
    clock.now += 5
    default = DefaultAfter(timedelta(milliseconds=1500), value=0.25, reduce="sum", bounds=(0, 1))
    assert settings(rewards=default)["window"] == "1s500000us"
    assert semantics_of(settings(rewards=default)) == (default, None)
    assert journal.end(0) == 2
    assert semantics_of(first) == (Explicit(timedelta(days=7)), 90 * DAY_US + 5_000_000)
    with pytest.raises(InvalidInput, match="upgrade belated, or pass the options"):
        semantics_of(first | {"rewards": "OfALaterRelease"})


def test_many_decisions_are_those_of_one_after_the_other(clock: ManualClock) -> None:
    """Each sees the ones before it as pending; the sums are not touched twice."""
    for policy in (UCB, DelayedUCB(2, Bernoulli(), metric="gram"), Uniform(2, Bernoulli())):
        batched, sequential = opened(clock, policy=policy), opened(clock, policy=policy)
        offers = [table(n) for n in range(30)]
        batch = batched.decide_many(rows=offers)
        single = [sequential.decide(rows=rows) for rows in offers]
        assert [d.index for d in batch] == [d.index for d in single]
        assert [d.mean for d in batch] == pytest.approx([d.mean for d in single])
        assert batched.pending.count == sequential.pending.count == 30
        models = batched._fold.model, sequential._fold.model
        assert models[0].decisions == models[1].decisions == 30
        np.testing.assert_allclose(
            models[0].decided @ models[0].decided.T, models[1].decided @ models[1].decided.T
        )


def test_many_decisions_with_features(clock: ManualClock) -> None:
    """An offer is a context with its actions; no offer at all is no decision."""
    features = PerArm(["blue", "red"])
    bandit = opened(clock, features=features)
    decisions = bandit.decide_many([(None, ["red"]), (None, ["blue", "red"])])
    assert decisions[0].action == "red"
    assert bandit.decide_many([]) == []
    assert bandit.decision_counts["pending"] == 2


def test_restarts_do_not_repeat_draws(clock: ManualClock) -> None:
    """The stream of choices goes by the seed and by where the journal was at the opening."""
    journal, uniform = MemoryJournal(clock=clock), Uniform(2, Bernoulli())
    rows = table(0, 50)

    def drawn() -> list[int]:
        bandit = opened(clock, journal=journal, policy=uniform)
        return [bandit.decide(rows=rows).index for _ in range(20)]

    first = drawn()
    assert drawn() != first
    journal = MemoryJournal(clock=clock)
    assert drawn() == first


# --- rewards -----------------------------------------------------------------------------------


def test_every_status(clock: ManualClock) -> None:
    """What a reward is depends on what was known when it came."""
    bandit = opened(clock, retention=timedelta(days=30))
    for id in ("a", "b", "c", "d"):
        bandit.decide(rows=ROWS, id=id)
    assert bandit.observe("a", 1.0).status == "rewarded"
    assert bandit.observe("a", 1.0).status == "duplicate"
    assert bandit.observe("a", 0.5, part="sale").status == "revised"
    assert bandit.observe("a", 0.0, revision=1).status == "revised"
    assert bandit.observe("nobody", 1.0).status == "unmatched"
    assert bandit.void("b").status == "voided"
    assert bandit.observe("b", 1.0).status == "voided"
    clock.now += DAY_US + 1
    assert bandit.observe("c", 1.0).status == "late"
    clock.now += 30 * DAY_US
    assert bandit.observe("d", 1.0).status == "expired"
    assert bandit.decision_counts == {
        "dormant": 0, "pending": 0, "rewarded": 2, "defaulted": 0, "censored": 1, "voided": 1,
    }  # fmt: skip


@pytest.mark.parametrize("days", [0, 40, -40])
def test_a_client_clock_that_is_wrong_loses_no_reward(clock: ManualClock, days: int) -> None:
    """The reward comes before its decision, which another process still holds, and is learned."""
    bandit = opened(clock, rewards=Explicit("7d"), retention="30d")
    id = new_id(clock.now - days * DAY_US)
    assert bandit.observe(id, 1.0).status == "unmatched"
    bandit.decide(rows=ROWS, id=id)
    entry = bandit.entry(id)
    assert entry is not None
    assert (entry.state, bandit.estimate.n) == ("rewarded", 1)


def test_an_expired_reward_while_the_decision_is_remembered(clock: ManualClock) -> None:
    """It is written down, counted and not learned; once forgotten, an id is not known any more."""
    bandit = opened(clock, rewards=Explicit(), retention=DAY)
    bandit.decide(rows=ROWS, id="a")
    clock.now += DAY_US + 1
    assert bandit.observe("a", 1.0).status == "expired"
    assert (bandit.decision_counts["pending"], bandit.estimate.n) == (1, 0)


def test_a_parked_reward_is_learned_when_its_decision_comes(clock: ManualClock) -> None:
    """Even before the decision is known, nothing is lost; a retry of it changes nothing."""
    bandit = opened(clock)
    assert bandit.observe("a", 1.0).status == "unmatched"
    assert bandit.observe("a", 1.0).status in ("unmatched", "duplicate")
    assert bandit.entry("a").state == "unknown"
    bandit.decide(rows=ROWS, id="a")
    assert bandit.entry("a").state == "rewarded"
    assert (bandit.pending.count, bandit.estimate.n) == (0, 1)


def test_the_default_comes_at_the_windows_end(clock: ManualClock) -> None:
    """A later reward replaces it, and it is the only one that is learned."""
    gaussian = DelayedUCB(2, Gaussian())
    bandit = opened(clock, policy=gaussian, rewards=DefaultAfter(DAY, value=-1.0))
    decision = bandit.decide(rows=ROWS)
    clock.now += DAY_US
    assert bandit.settle() == 1
    assert bandit.settle() == 0
    assert bandit.entry(decision.id).value == -1.0
    assert bandit.estimate.theta[decision.index] == pytest.approx(-0.5)
    clock.now += 1
    assert bandit.observe(decision.id, 3.0).status == "late"
    assert bandit.estimate.n == 1
    assert bandit.estimate.theta[decision.index] == pytest.approx(1.5)


def test_silence_leaves_what_is_explored(clock: ManualClock) -> None:
    """After the window a decision is censored; its reward counts all the same when it comes."""
    bandit = opened(clock)
    before = bandit._fold.model.decided.copy()
    decision = bandit.decide(rows=ROWS)
    clock.now += DAY_US
    assert bandit.sync() == 1
    assert bandit.entry(decision.id).state == "censored"
    np.testing.assert_allclose(bandit._fold.model.decided, before, atol=1e-12)
    clock.now += 1
    assert bandit.observe(decision.id, 1.0).status == "late"
    assert bandit.estimate.n == 1


def test_every_call_settles_what_is_due(clock: ManualClock) -> None:
    """Both decide and observe write it down first."""
    for call in ("decide", "observe"):
        bandit = opened(clock)
        bandit.decide(rows=ROWS, id="a")
        clock.now += DAY_US
        if call == "decide":
            bandit.decide(rows=ROWS)
        else:
            bandit.observe("nobody", 1.0)
        assert bandit.entry("a").state == "censored"
        kinds = [type(record.event) for record in bandit.journal.read(0, 0, 10)]
        assert kinds[2] is Settled


def test_the_window_starts_with_the_activation(clock: ManualClock) -> None:
    """Until then a decision is dormant: not pending, not explored."""
    bandit = opened(clock)
    bandit.decide(rows=ROWS, id="a", activated=False)
    bandit.decide(rows=ROWS, id="b", activated=False)
    assert (bandit.pending.count, bandit.decision_counts["dormant"]) == (0, 2)
    clock.now += DAY_US // 2
    assert bandit.activate("a").status == "activated"
    assert bandit.activate("a").status == "duplicate"
    assert bandit.pending.count == 1
    clock.now += DAY_US // 2
    assert bandit.settle() == 1  # b never took effect
    assert (bandit.entry("a").state, bandit.entry("b").state) == ("pending", "voided")
    clock.now += DAY_US // 2
    bandit.settle()
    assert bandit.entry("a").state == "censored"


def test_a_voided_decision_teaches_nothing(clock: ManualClock) -> None:
    """Before or after its reward."""
    bandit = opened(clock, policy=DelayedUCB(2, Gaussian()))
    for id in ("a", "b"):
        bandit.decide(rows=ROWS, id=id)
    bandit.observe("a", 1.0)
    bandit.void("a")
    bandit.void("b")
    bandit.observe("b", 1.0)
    assert (bandit.estimate.n, bandit.pending.count) == (0, 0)
    np.testing.assert_allclose(bandit.estimate.theta, 0.0, atol=1e-12)
    np.testing.assert_allclose(bandit._fold.model.theta, 0.0, atol=1e-12)


def test_parts_that_add_up_beyond_the_family_are_held(clock: ManualClock) -> None:
    """Each part is a reward of the family, but their sum is not: it is learned as the greatest."""
    bandit = opened(clock, rewards=Explicit(reduce="sum"))
    bandit.decide(rows=ROWS, id="a")
    for part in ("click", "sale"):
        bandit.observe("a", 0.75, part=part)
    reopened = opened(clock, rewards=Explicit(reduce="sum"), journal=bandit.journal)
    assert reopened.digest == bandit.digest
    assert bandit._fold.learner.observed.moments().cross.sum() == 1.0
    bandit.void("a")
    assert bandit.estimate.n == 0


# --- what is known -----------------------------------------------------------------------------


def test_pending_tells_the_oldest(clock: ManualClock) -> None:
    """The count, the oldest, and each with the time of its record."""
    bandit = opened(clock, journal=MemoryJournal(partitions=4, clock=clock))
    assert (bandit.pending.count, bandit.pending.oldest, list(bandit.pending)) == (0, None, [])
    start = clock.now
    decisions = []
    for _ in range(5):
        decisions.append(bandit.decide(rows=ROWS))
        clock.now += 10
    bandit.observe(decisions[0].id, 1.0)
    pending = bandit.pending
    assert pending.count == len(pending) == 4
    assert pending.oldest == as_datetime(start + 10)
    assert dict(pending) == {
        d.id: as_datetime(start + 10 * n) for n, d in enumerate(decisions) if n
    }


def test_a_story_is_whole(clock: ManualClock) -> None:
    """State, value, times and every reward."""
    bandit = opened(clock)
    decision = bandit.decide(rows=ROWS)
    start = clock.now
    clock.now += 5
    bandit.observe(decision.id, 1.0, at=as_datetime(start + 2))
    entry = bandit.entry(decision.id)
    assert (entry.state, entry.value, entry.late, entry.conflict) == ("rewarded", 1.0, False, False)
    assert (entry.recorded, entry.due) == (as_datetime(start), as_datetime(start + DAY_US))
    [report] = entry.reported
    assert (report.recorded, report.at) == (as_datetime(start + 5), as_datetime(start + 2))
    assert report.value == 1.0
    assert bandit.entry("nobody").decision is None


def test_a_conflict_that_no_one_could_see_is_flagged(clock: ManualClock) -> None:
    """Two processes report different values at once: the entry says so, in both alike."""
    first = opened(clock)
    second = opened(clock, journal=first.journal)
    first.decide(rows=ROWS, id="a")
    first.observe("a", 1.0)
    assert second.observe("a", 0.0).status == "conflict"
    first.sync()
    assert first.entry("a").conflict
    assert first.entry("a") == second.entry("a")
    assert first.digest == second.digest


def test_two_on_one_journal_see_each_other(clock: ManualClock) -> None:
    """Each folds what the other wrote at its next call; both agree after a sync."""
    first = opened(clock)
    second = opened(clock, journal=first.journal)
    decision = first.decide(rows=ROWS)
    assert second.observe(decision.id, 1.0).status == "rewarded"
    second.decide(rows=ROWS)
    assert first.sync() == 2
    assert first.sync() == 0
    assert first.digest == second.digest
    assert first.decision_counts == second.decision_counts
    np.testing.assert_allclose(first.estimate.theta, second.estimate.theta, atol=1e-10)


def test_the_past_is_as_it_was_known(clock: ManualClock) -> None:
    """By a time with its zone or by microseconds; the moment itself belongs to it."""
    bandit = opened(clock)
    decision = bandit.decide(rows=ROWS)
    instant = clock.now
    clock.now += 1
    bandit.observe(decision.id, 1.0)
    assert bandit.as_of(instant).entry(decision.id).state == "pending"
    moment = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=instant)
    assert bandit.as_of(moment).digest == bandit.as_of(instant).digest
    assert bandit.as_of(instant + 1).digest == bandit.digest
    assert bandit.as_of(instant - 1).entry(decision.id).state == "unknown"
    assert bandit.as_of(instant).as_of(instant + 1).digest == bandit.digest
    assert bandit.as_of(instant).estimate.n == 0
