"""Operators pause, resume and retire actions; only open actions are ever chosen."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from belated import (
    Bandit,
    Bernoulli,
    DelayedThompson,
    DelayedUCB,
    EpsilonGreedy,
    Explicit,
    Hashed,
    Holdout,
    PerArm,
    Uniform,
)
from belated.core.events import ActionChanged, Decision
from belated.core.times import as_datetime
from belated.core.tuning import Tuning
from belated.decider import ParsedRequest
from belated.decider.actions import state_at
from belated.exceptions import ActionsPaused, InvalidInput
from belated.fold.trimming import last_to_drop, make_bases, trim
from belated.journals import MemoryJournal, SQLiteJournal
from belated.policies import Policy
from belated.testing import ManualClock
from tests.unit.policy_examples import MAKE, every_policy
from tests.unit.small_deciders import DIM, ROWS, Served

NAMES = ["gift", "mail", "call"]
B = Bernoulli()
HOUR = 3_600_000_000


@pytest.fixture
def clock() -> ManualClock:
    """A clock that tests set."""
    return ManualClock()


def opened(clock: ManualClock, policy: Policy | None = None, **settings: Any) -> Bandit:
    """A bandit with three actions that stores every request."""
    features = PerArm(NAMES)
    policy = policy or EpsilonGreedy(features.dim, B, floor=0.5)
    settings.setdefault("journal", MemoryJournal(clock=clock))
    defaults: dict[str, Any] = {
        "rewards": Explicit(),
        "features": features,
        "seed": 3,
        "clock": clock,
    }
    return Bandit(policy=policy, **(defaults | settings))


def learned(bandit: Bandit, rounds: int = 60) -> None:
    """Train the bandit until the gift is the best action."""
    for _ in range(rounds):
        decision = bandit.decide()
        bandit.observe(decision.id, float(decision.action == "gift"))


# --- what policies choose from --------------------------------------------------------------------


@every_policy
def test_a_paused_action_is_never_chosen(name: str) -> None:
    """No policy chooses it, in single decisions or in batches."""
    decider = Served(MAKE[name]())
    decider.actions = {"0": ActionChanged(1, "0", "pause")}
    decisions = [*decider.many([ROWS] * 50, [ParsedRequest(DIM)] * 50)]
    decisions += [decider.many([ROWS], [ParsedRequest(DIM)])[0] for _ in range(20)]
    assert {decision.action for decision in decisions} <= {1, 2}
    for decision in decisions:  # the index is that of the request, and so is the row
        assert decision.index == decision.action
        np.testing.assert_array_equal(decision.x, ROWS[decision.index])


@pytest.mark.parametrize(
    "policy",
    [
        DelayedThompson(DIM, B),
        DelayedThompson(DIM, B, floor=0.1),
        DelayedUCB(DIM, B),
        DelayedUCB(DIM, B, floor=0.1),
        DelayedUCB(DIM, B, randomized=True, floor=0.1),
        EpsilonGreedy(DIM, B),
        Uniform(DIM, B),
    ],
    ids=repr,
)
def test_propensities_are_those_of_the_actions_that_remain(
    policy: Policy, clock: ManualClock
) -> None:
    """They equal those of a request without the paused action, and add up to 1."""
    bandit = opened(clock, policy)
    learned(bandit)
    bandit.pause("gift")
    decisions = [bandit.decide(), bandit.decide(None, NAMES[1:])]
    requests = [bandit.entry(decision.id).request for decision in decisions]
    for decision, request in zip(decisions, requests, strict=True):
        assert request is not None
        assert request.actions == NAMES[1:]
        if policy.floor:  # else only the probability of the chosen one is stated
            assert request.propensities is not None
            assert sum(request.propensities) == pytest.approx(1.0)
            index = NAMES[1:].index(str(decision.action))
            assert request.propensities[index] == decision.propensity
    scores = bandit.score().actions
    assert [score.action for score in scores] == NAMES[1:]
    subset = bandit.score(None, NAMES[1:]).actions
    np.testing.assert_allclose([s.mean for s in scores], [s.mean for s in subset])
    if policy.floor:
        assert sum(score.propensity or 0.0 for score in scores) == pytest.approx(1.0)


def test_thompson_chooses_with_the_propensities_it_states(clock: ManualClock) -> None:
    """Frequencies equal the stated propensities of the two remaining actions."""
    bandit = opened(clock, DelayedThompson(DIM, B))
    learned(bandit, 4)
    bandit.pause("mail")
    bandit.change_mode("freeze")
    decisions = bandit.decide_many([None] * 4_000)
    assert {decision.action for decision in decisions} == {"gift", "call"}
    is_gift = np.array([decision.action == "gift" for decision in decisions])
    propensities = np.array([decision.propensity for decision in decisions])
    expected = np.where(is_gift, propensities, 1.0 - propensities)
    error = np.sqrt((expected * (1.0 - expected)).sum()) / len(decisions)
    assert abs(is_gift.mean() - expected.mean()) < 4.0 * error


def test_neither_holdout_nor_baseline_chooses_it(clock: ManualClock) -> None:
    """If a fixed action is paused, the first remaining action is chosen instead."""
    bandit = opened(clock, holdout=Holdout(0.5, baseline="gift"), baseline="gift")
    assert {d.action for d in bandit.decide_many([None] * 50) if d.source == "holdout"} == {"gift"}
    bandit.pause("gift")
    decisions = bandit.decide_many([None] * 200)
    assert {decision.action for decision in decisions} == {"mail", "call"}
    holdout = [decision for decision in decisions if decision.source == "holdout"]
    assert {(decision.action, decision.propensity) for decision in holdout} == {("mail", 1.0)}
    for decision in decisions:  # over both groups
        assert decision.overall is not None
        assert 0.0 < decision.overall <= 1.0
    bandit.change_mode("baseline")
    assert {d.action for d in bandit.decide_many([None] * 20)} == {"mail"}
    bandit.change_mode("learn")
    uniform = opened(clock, holdout=Holdout(0.5, "uniform"))
    uniform.pause("gift")
    decisions = uniform.decide_many([None] * 200)
    assert {d.propensity for d in decisions if d.source == "holdout"} == {0.5}
    assert "gift" not in {decision.action for decision in decisions}


def test_the_fallback_does_not_choose_it(clock: ManualClock) -> None:
    """The fallback after a failure of the policy respects pauses too."""

    class Failing(Uniform):
        def choose(self, *_: Any) -> Any:
            raise ArithmeticError

    bandit = opened(clock, Failing(DIM, B), baseline="gift")
    bandit.pause("gift")
    with pytest.warns(UserWarning, match="the baseline decided"):
        assert bandit.decide().action == "mail"


def test_if_all_are_paused_nothing_is_decided(clock: ManualClock) -> None:
    """The error names the actions; other requests are served, and rewards count."""
    bandit = opened(clock)
    decision = bandit.decide()
    for name in NAMES[:2]:
        bandit.pause(name)
    bandit.retire("call")
    with pytest.raises(ActionsPaused, match="'gift', 'mail', 'call'") as error:
        bandit.decide()
    assert error.value.actions == tuple(NAMES)
    assert pickle.loads(pickle.dumps(error.value)).actions == tuple(NAMES)
    with pytest.raises(ActionsPaused):
        bandit.score()
    with pytest.raises(ActionsPaused, match=r"retired \('mail'\): offer another"):
        bandit.decide_many([(None, ["mail"])])
    assert bandit.observe(decision.id, 1.0).status == "rewarded"
    assert bandit.decision_counts["rewarded"] == 1
    bandit.resume("call")
    assert bandit.decide().action == "call"


# --- times, and what an operator may do -----------------------------------------------------------


def test_a_pause_begins_and_ends_at_its_times(clock: ManualClock) -> None:
    """The decider's clock determines both, to the microsecond."""
    bandit = opened(clock)
    start, until = clock.now + HOUR, clock.now + 2 * HOUR
    bandit.pause("gift", start=as_datetime(start), until=as_datetime(until), reason="a sale")
    for now, state in (
        (start - 1, "open"),
        (start, "paused"),
        (until - 1, "paused"),
        (until, "open"),
    ):
        clock.now = now
        gift = bandit.actions[0]
        assert (gift.action, gift.state, gift.since) == ("gift", state, as_datetime(start))
        assert (gift.until, gift.reason) == (as_datetime(until), "a sale")
        actions = {decision.action for decision in bandit.decide_many([None] * 60)}
        assert ("gift" in actions) == (state == "open")
    for decision in (record.event for record in bandit.journal.read(0, 0, 1000)):
        if isinstance(decision, Decision) and decision.action == "gift":
            assert not start <= decision.at_us < until


def test_a_retired_action_stays_so_until_it_is_resumed(clock: ManualClock) -> None:
    """The end of an earlier pause does not reopen it."""
    bandit = opened(clock)
    bandit.retire("gift", start=clock.now + HOUR)
    gift = bandit.actions[0]
    clock.now += 1000 * HOUR
    assert (gift.state, bandit.actions[0].state) == ("open", "retired")
    with pytest.raises(InvalidInput, match="is retired: resume it first"):
        bandit.pause("gift", until=clock.now + HOUR)
    bandit.resume("gift", reason="back")
    assert (bandit.actions[0].state, bandit.actions[0].reason) == ("open", "back")
    bandit.pause("gift")
    assert bandit.actions[0].state == "paused"


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda b: b.pause("gitf"), "unknown action 'gitf'; known actions: gift, mail, call"),
        (lambda b: b.pause(""), "the name of an action"),
        (lambda b: b.pause(None), "the name of an action"),
        (lambda b: b.pause(True), "the name of an action"),
        (lambda b: b.pause("gift", until="2001-01-01T00:00:00Z"), "must be in the future"),
        (lambda b: b.pause("gift", until="2101-01-01"), "no time zone"),
        (
            lambda b: b.pause("gift", start="2101-01-02T00:00Z", until="2101-01-01T00:00Z"),
            "after the start of the pause",
        ),
        (
            lambda b: b._change_action(change="resume", action="gift", start=HOUR),
            "only a pause can have a start",
        ),
        (
            lambda b: b._change_action(change="retire", action="gift", until=HOUR),
            "only a pause can have a start",
        ),
    ],
)
def test_what_cannot_be_is_refused(clock: ManualClock, change: Any, said: str) -> None:
    """The error says what to do, and nothing is recorded."""
    bandit = opened(clock)
    end = bandit.journal.end(0)
    with pytest.raises(InvalidInput, match=said):
        change(bandit)
    assert bandit.journal.end(0) == end


def test_actions_without_declaration_go_by_their_text(clock: ManualClock) -> None:
    """If features name no actions, any name can be paused; 1 is "1"."""
    features = Hashed(16)
    bandit = opened(clock, EpsilonGreedy(features.dim, B, floor=0.9), features=features)
    offers = {1: {"size": 1.0}, "b": {"size": 2.0}, 3: {"size": 3.0}}
    bandit.pause("1")
    decisions = bandit.decide_many([(None, offers)] * 60)
    assert {(decision.action, decision.index) for decision in decisions} == {("b", 1), (3, 2)}
    request = bandit.entry(decisions[0].id).request
    assert request is not None
    assert request.actions == ["b", 3]
    assert request.records == [{"size": 2.0}, {"size": 3.0}]
    bandit.resume(1)
    bandit.pause(3)
    decisions = bandit.decide_many([(None, offers)] * 60)
    assert {decision.action for decision in decisions} == {1, "b"}
    assert [(state.action, state.state) for state in bandit.actions] == [
        ("1", "open"),
        ("3", "paused"),
    ]


def test_a_retry_gets_the_same_decision(clock: ManualClock) -> None:
    """A retry returns the decision even if actions were paused before or since."""
    bandit = opened(clock)
    bandit.pause("gift")
    first = bandit.decide(id="a")
    assert first.action in ("mail", "call")
    bandit.pause(first.action)
    assert bandit.decide(id="a") == first
    bandit.resume("gift")
    assert bandit.decide(id="a") == first


# --- time travel ----------------------------------------------------------------------------------


def test_time_travel_shows_what_was_open_then(clock: ManualClock) -> None:
    """``as_of`` only chooses actions that were open at that time."""
    bandit = opened(clock)
    learned(bandit)
    moments = [clock.now]
    for change in (bandit.pause, bandit.resume, bandit.retire):
        clock.now += HOUR
        change("gift", reason=f"to {change.__name__}")
        moments.append(clock.now)
        clock.now += HOUR
        bandit.decide()
    states = []
    for moment in moments:
        past = bandit.as_of(moment)
        gift = past.actions[0]
        states.append((gift.state, gift.reason))
        actions = [score.action for score in past.score().actions]
        assert ("gift" in actions) == (gift.state == "open")
    assert states == [
        ("open", ""),
        ("paused", "to pause"),
        ("open", "to resume"),
        ("retired", "to retire"),
    ]
    clock.now += HOUR
    bandit.resume("gift")
    bandit.pause("mail", until=clock.now + HOUR)
    assert bandit.as_of(clock.now).actions[1].state == "paused"
    moment = clock.now
    clock.now += 3 * HOUR
    assert bandit.actions[1].state == "open"
    assert bandit.as_of(moment).actions[1].state == "paused"  # by the time that it shows


def test_a_replay_a_snapshot_and_a_base_agree(clock: ManualClock) -> None:
    """They agree even after the records of the changes were trimmed."""
    settings: dict[str, Any] = {"tuning": Tuning(link=16), "journal": MemoryJournal(clock=clock)}
    bandit = opened(clock, **settings)
    journal = bandit.journal
    bandit.pause("gift", reason="sold out")
    bandit.retire("mail")
    for _ in range(40):
        clock.now += HOUR
        bandit.observe(bandit.decide().id, 1.0)
    states = bandit.actions
    assert [state.state for state in states] == ["paused", "retired", "open"]
    assert bandit.as_of(clock.now).actions == states
    bandit.save()
    assert opened(clock, **settings).actions == states
    position = last_to_drop(journal, 0, clock.now, journal.end(0), 16)
    (base,) = make_bases(journal, bandit._new_fold(), [position])
    trim(journal, base, position, 0, reason="", actor="")
    assert journal.drop(0, 1_000) > 16
    assert bandit.as_of(clock.now).actions == states
    reopened = opened(clock, **settings)
    assert reopened.actions == states
    assert {decision.action for decision in reopened.decide_many([None] * 9)} == {"call"}
    assert reopened.report().data["health"]["closed_actions"][0]["action"] == "gift"


def test_other_processes_obey(tmp_path: Path, clock: ManualClock) -> None:
    """Other processes follow once they have read the change, at the second call."""
    files = [SQLiteJournal(tmp_path / "j.db", bandit="offers", clock=clock) for _ in range(2)]
    first, second = (opened(clock, journal=journal) for journal in files)
    second.decide()
    first.pause("gift")
    assert "gift" not in {decision.action for decision in first.decide_many([None] * 50)}
    second.decide()
    assert "gift" not in {decision.action for decision in second.decide_many([None] * 50)}
    first.close()
    second.close()


# --- evaluation and report ------------------------------------------------------------------------


def test_another_policy_is_evaluated_on_what_was_open(clock: ManualClock) -> None:
    """An evaluated policy does not choose paused actions either."""
    bandit = opened(clock, EpsilonGreedy(DIM, B, floor=0.5))
    bandit.pause("gift")
    for decision in bandit.decide_many([None] * 400):
        bandit.observe(decision.id, float(decision.action == "call"))
    value = bandit.evaluate("uniform")
    assert value.low < 0.5 < value.high
    assert value.high - value.low < 0.3
    table = bandit.frame(requests=True)
    assert set(table["action"]) == {"mail", "call"}


def test_the_report_shows_them(clock: ManualClock) -> None:
    """The report shows the reason and the time of the change."""
    bandit = opened(clock)
    learned(bandit)
    bandit.pause("gift", reason="<b>sold out</b>")
    clock.now += HOUR
    learned(bandit)
    report = bandit.report()
    (entry,) = report.data["health"]["closed_actions"]
    assert (entry["action"], entry["state"], entry["reason"]) == (
        "gift",
        "paused",
        "<b>sold out</b>",
    )
    assert "never chosen: gift (paused)" in report.html()
    assert "&lt;b&gt;sold out&lt;/b&gt;" in report.html()
    bandit.resume("gift")
    assert "never chosen" not in bandit.report().html()


def test_what_a_newer_release_does_closes_an_action() -> None:
    """A change of an unknown kind counts as a pause, which is the safe choice."""
    assert state_at(ActionChanged(5, "a", "throttle"), 9) == "paused"
