"""Decisions for subjects, and rewards of subjects: which decision a reward counts for."""

from __future__ import annotations

from itertools import permutations
from pathlib import Path

import numpy as np
import pytest

from belated import Bandit, Bernoulli, DelayedUCB, Explicit
from belated.cli.main import main
from belated.core.events import Decision, Event, Reward, SubjectDecision, SubjectReward, Void
from belated.core.ids import key_of, new_id, partition_of, slot_of_subject
from belated.exceptions import BanditOff, InvalidInput
from belated.fold.decision_history import read_current, read_history
from belated.journals import MemoryJournal, SQLiteJournal
from belated.journals.log import Tail
from belated.testing import ManualClock

HOUR = 3_600_000_000
ROWS = [[1.0, 0.0], [0.0, 1.0]]


def opened(journal: MemoryJournal | SQLiteJournal | None = None) -> tuple[Bandit, ManualClock]:
    """A bandit whose rewards of one decision add up, and its clock."""
    clock = ManualClock()
    bandit = Bandit(
        policy=DelayedUCB(2, Bernoulli()),
        rewards=Explicit("1h", reduce="sum"),
        journal=MemoryJournal(clock=clock) if journal is None else journal,
        clock=clock,
        clock_skew="2h",
        seed=7,
    )
    return bandit, clock


def test_a_reward_counts_for_the_latest_decision_before_it() -> None:
    """Neither for an earlier one, nor for that of another subject, nor for a later one."""
    bandit, clock = opened()
    earlier_decision = bandit.decide(rows=ROWS, subject="user-17")
    clock.now += 10
    latest = bandit.decide(rows=ROWS, subject="user-17")
    other_decision = bandit.decide(rows=ROWS, subject="user-18")
    clock.now += 10
    at = clock.now
    clock.now += 10
    later_decision = bandit.decide(rows=ROWS, subject="user-17")
    receipt = bandit.observe(subject="user-17", value=1.0, at=_moment(at), event_id="order-1")
    assert (receipt.id, receipt.status) == ("order-1", "credited")
    states = [
        bandit.entry(decision).state
        for decision in (earlier_decision, latest, other_decision, later_decision)
    ]
    assert states == ["pending", "rewarded", "pending", "pending"]
    assert bandit.entry(latest).reported[0].part == "order-1"


def test_a_credited_reward_is_not_dated_before_its_decision() -> None:
    """It is credited by its time, so it is no issue."""
    bandit, clock = opened()
    clock.now = 1_800_000_000_000_000
    decision = bandit.decide(rows=np.eye(2), subject="ann")
    clock.now += 60_000_000
    bandit.observe(subject="ann", value=1.0, event_id="order")
    assert bandit.entry(decision.id).state == "rewarded"
    assert bandit.issues() == []


def test_an_outcome_counts_once() -> None:
    """A repetition is a duplicate, and another value a conflict that is shown."""
    bandit, _ = opened()
    decision = bandit.decide(rows=ROWS, subject="user-17")
    values = [1.0, 1.0, 0.0]
    statuses = [
        bandit.observe(subject="user-17", value=value, event_id="order-1").status
        for value in values
    ]
    assert statuses == ["credited", "duplicate", "conflict"]
    entry = bandit.entry(decision)
    assert (entry.value, entry.conflict) == (1.0, True)


def test_several_outcomes_are_parts_of_a_reward() -> None:
    """Together with what was reported for the decision itself."""
    bandit, _ = opened()
    decision = bandit.decide(rows=ROWS, subject="user-17")
    bandit.observe(subject="user-17", value=1.0, event_id="order-1")
    bandit.observe(subject="user-17", value=1.0, event_id="order-2")
    bandit.observe(decision, 1.0)
    assert bandit.entry(decision).value == 3.0


def test_a_reward_after_the_window_is_unmatched() -> None:
    """It is counted, and shown with the unmatched ids; at the end of the window it is credited."""
    bandit, clock = opened()
    bandit.decide(rows=ROWS, subject="user-17")
    end = clock.now + HOUR
    for n, moment in enumerate((end, end + 1)):
        bandit.observe(subject="user-17", value=1.0, at=_moment(moment), event_id=f"order-{n}")
    bandit.observe(subject="nobody", value=1.0, event_id="order-9")
    counts = bandit.event_counts
    assert (counts["credited"], counts["unmatched"]) == (1, 2)
    assert bandit._fold.unmatched == {"": 2}


def test_show_and_export_have_the_rewards_of_a_subject(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The history of a decision lists them, and an imported journal comes to the same."""
    address, copied = (f"sqlite:///{tmp_path}/{name}.db?bandit=offers" for name in ("a", "b"))
    bandit, _ = opened(SQLiteJournal(tmp_path / "a.db", bandit="offers"))
    decision = bandit.decide(rows=ROWS, subject="user-17")
    bandit.observe(subject="user-17", value=1.0, event_id="order-1")
    digest = bandit.digest
    bandit.close()
    assert main(["journal", "show", decision.id, address]) == 0
    output = capsys.readouterr().out
    assert "rewarded with 1.0" in output
    assert "order-1" in output
    lines = str(tmp_path / "lines.jsonl")
    assert main(["journal", "export", address, "--output", lines]) == 0
    assert main(["journal", "import", lines, copied, "--partitions", "4"]) == 0
    with Bandit(
        policy=DelayedUCB(2, Bernoulli()),
        rewards=Explicit("1h", reduce="sum"),
        journal=copied,
    ) as reopened:
        assert reopened.digest == digest


def test_a_credited_decision_needs_no_facts_of_its_own() -> None:
    """Its rewards are known by the history of its subject, and add up with its own."""
    bandit, _ = opened()
    decision = bandit.decide(rows=ROWS, subject="user-17")
    ledger = bandit._fold.ledgers[0]
    for n in range(2):
        bandit.observe(subject="user-17", value=1.0, event_id=f"order-{n}")
    assert (bandit.entry(decision).value, ledger._facts) == (2.0, {})
    bandit.observe(decision, 0.5)
    assert bandit.entry(decision).value == 2.5
    bandit.void(decision)
    assert bandit.entry(decision).state == "voided"
    assert [reward.value for reward in bandit.entry(decision).reported] == [0.5]


def test_attribution_may_end_before_the_window() -> None:
    """Then rewards of a subject are credited for that long only."""
    bandit = Bandit(
        policy=DelayedUCB(2, Bernoulli()),
        rewards=Explicit("1h", attribution="30m"),
        clock_skew="1h",
        seed=7,
    )
    decided_at = bandit.decide(rows=ROWS, subject="user-17").at_us
    for n, delay in enumerate((HOUR // 2, HOUR // 2 + 1)):
        bandit.observe(
            subject="user-17", value=1.0, at=_moment(decided_at + delay), event_id=f"order-{n}"
        )
    assert (bandit.event_counts["credited"], bandit.event_counts["unmatched"]) == (1, 1)


def test_the_reward_of_a_voided_decision_goes_to_the_one_before() -> None:
    """And back to none once that is voided, too."""
    bandit, clock = opened()
    decisions = []
    for _ in range(2):
        decisions.append(bandit.decide(rows=ROWS, subject="user-17"))
        clock.now += 1
    bandit.observe(subject="user-17", value=1.0, event_id="order-1")
    for expected in ("voided", "rewarded"), ("voided", "voided"):
        bandit.void(decisions[1 if expected[1] == "rewarded" else 0])
        assert [bandit.entry(decision).state for decision in reversed(decisions)] == list(expected)
    assert bandit.event_counts["unmatched"] == 1


def test_a_decision_whose_reward_moves_to_another_is_settled() -> None:
    """Even if the end of its window was no longer waited for."""
    bandit, clock = opened()
    decision = bandit.decide(rows=ROWS, subject="user-17")
    clock.now += 10
    bandit.observe(subject="user-17", value=1.0, event_id="order-1")
    clock.now += HOUR
    assert bandit.settle() == 0
    at = decision.at_us + 5
    late = Decision(new_id(at, slot_of_subject("user-17")), at, 0, 0, decision.x, 0.5, 1.0, 0)
    bandit.journal.append([late, SubjectDecision("user-17", at, late.id)])
    bandit.sync()
    assert [bandit.entry(id).state for id in (decision.id, late.id)] == ["censored", "rewarded"]
    assert bandit.entry(decision.id).reported == []


def test_the_order_of_arrival_does_not_matter() -> None:
    """Decisions with their subject, outcomes and a void in any order come to the same."""
    clock = ManualClock()
    slot, x = slot_of_subject("user-17"), np.ones(2, dtype=np.float32)
    groups: list[list[Event]] = []
    ids = [new_id(clock.now, slot) for _ in range(2)]
    for n, id in enumerate(ids):
        at = clock.now + 10 * n
        decision = Decision(id, at, 0, 0, x, 0.5, 1.0, 0)
        groups.append([decision, SubjectDecision("user-17", at, id)])
    groups += [
        [SubjectReward("user-17", clock.now + 5, 1.0, "first")],
        [SubjectReward("user-17", clock.now + 15, 0.0, "second")],
        [Void(ids[1], clock.now)],
        [Reward(ids[0], clock.now, 1.0)],
    ]
    digests = set()
    for order in permutations(groups):
        journal = MemoryJournal(clock=clock)
        journal.append([event for group in order for event in group])
        bandit, _ = opened(journal)
        digests.add((bandit.digest, bandit.event_counts["credited"]))
    assert len(digests) == 1


def test_the_index_survives_a_restart(tmp_path: Path) -> None:
    """A snapshot holds which outcomes are known, and of which decisions."""
    path = tmp_path / "offers.db"
    bandit, _ = opened(SQLiteJournal(path, bandit="offers"))
    decision = bandit.decide(rows=ROWS, subject="user-17")
    bandit.observe(subject="user-17", value=1.0, event_id="order-1")
    bandit.observe(subject="user-18", value=1.0, event_id="order-1")
    digest, counts = bandit.digest, bandit.event_counts
    bandit.close()
    bandit, _ = opened(SQLiteJournal(path, bandit="offers"))
    assert (bandit.digest, bandit.event_counts) == (digest, counts)
    assert bandit.observe(subject="user-17", value=1.0, event_id="order-1").status == "duplicate"
    assert bandit.observe(subject="user-17", value=0.5, event_id="order-2").status == "credited"
    assert bandit.entry(decision).value == 1.5
    assert bandit._fold.unmatched == {"": 1}
    bandit.close()


def test_all_decisions_of_a_subject_are_in_one_partition() -> None:
    """Ids made here are of that partition; another one is refused."""
    bandit, _ = opened(MemoryJournal(partitions=4))
    partitions = {
        partition_of(key_of(bandit.decide(rows=ROWS, subject="user-17").id), 4) for _ in range(8)
    }
    assert partitions == {slot_of_subject("user-17") % 4}
    partition = slot_of_subject("user-17") % 4
    names = [f"order-{n}" for n in range(20)]
    fitting, other_id = (
        next(name for name in names if (partition_of(key_of(name), 4) == partition) == fits)
        for fits in (True, False)
    )
    assert bandit.decide(rows=ROWS, id=fitting, subject="user-17").id == fitting
    with pytest.raises(InvalidInput, match="a different partition than the subject 'user-17'"):
        bandit.decide(rows=ROWS, id=other_id, subject="user-17")


def test_the_context_can_name_the_subject() -> None:
    """A bandit can be told which field that is."""
    from belated import PerArm

    features = PerArm(["mail", "call"], context=["visits"])
    bandit = Bandit(
        policy=DelayedUCB(features.dim, Bernoulli()),
        rewards=Explicit(),
        features=features,
        subject="user_id",
    )
    contexts = [{"visits": 0.5, "user_id": 17}, {"visits": 0.5}]
    named, unnamed = bandit.decide_many(contexts)
    assert bandit.observe(subject="17", value=1.0, event_id="order-1").status == "credited"
    assert [bandit.entry(decision).state for decision in (named, unnamed)] == [
        "rewarded",
        "pending",
    ]


def test_many_decisions_each_have_a_subject() -> None:
    """A list names them; nobody is None, and what is no text is refused with its place."""
    bandit, _ = opened()
    _, second, anonymous = bandit.decide_many(
        rows=[ROWS] * 3, subjects=["user-17", "user-18", None]
    )
    assert bandit.observe(subject="user-18", value=1.0, event_id="order-1").status == "credited"
    assert [bandit.entry(decision).state for decision in (second, anonymous)] == [
        "rewarded",
        "pending",
    ]
    with pytest.raises(
        InvalidInput,
        match=r"rows\[1\]: the subject must be text, such as decision\.id, or '17'; got 17",
    ):
        bandit.decide_many(rows=[ROWS] * 2, subjects=["user-17", 17])


def test_a_reward_names_a_decision_or_a_subject() -> None:
    """Both together are refused, and so is an outcome without its id."""
    bandit, _ = opened()
    with pytest.raises(InvalidInput, match="also has an id, a part or a revision"):
        bandit.observe("order-1", 1.0, subject="user-17", event_id="order-1")
    with pytest.raises(InvalidInput, match=r"the event_id must be text.*got None"):
        bandit.observe(subject="user-17", value=1.0)


def test_a_sticky_decision_is_returned_until_its_time_has_passed() -> None:
    """The same one, whoever else is decided for; from then on a new one."""
    bandit, clock = opened()
    first = bandit.decide(rows=ROWS, subject="user-17", sticky="1h")
    clock.now += HOUR - 1
    assert bandit.decide(rows=ROWS, subject="user-18", sticky="1h") != first
    assert bandit.decide(rows=ROWS, subject="user-17", sticky="1h") == first
    assert bandit.decision_counts["pending"] == 2
    clock.now += 1
    assert bandit.decide(rows=ROWS, subject="user-17", sticky="1h") != first


def test_sticky_decision_follows_the_stored_decision() -> None:
    """A second decision under the same id leaves a record of the subject with a later time."""
    journal = MemoryJournal()
    row = np.array(ROWS[0], dtype=np.float32)
    for at in (10, 10 + 2 * HOUR):
        decision = Decision("order-1", at, "red", 0, row, 0.25, 0.5, 0)
        journal.append([decision, SubjectDecision("user-17", at, "order-1")])
    assert read_current(journal, {"user-17": HOUR}) == {}
    assert read_current(journal, {"user-17": 5, "user-18": 5})["user-17"].at_us == 10


@pytest.mark.parametrize(("retention", "own"), [(None, True), (100, True), (10, False)])
def test_a_history_says_that_an_earlier_reward_may_have_been_trimmed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, retention: int | None, own: bool
) -> None:
    """Under an id of the caller's or for a subject, if a ledger remembers it for so long."""
    row = np.array(ROWS[0], dtype=np.float32)
    ids = new_id(50), "order-1", new_id(50, slot_of_subject("user-17"))
    decisions = [Decision(id, 50, "red", 0, row, 0.25, 0.5, 0) for id in ids]
    path = tmp_path / "offers.db"
    with SQLiteJournal(path, bandit="offers", partitions=1, clock=lambda: 50) as journal:
        journal.append([*decisions, SubjectDecision("user-17", 50, ids[2])])
        monkeypatch.setattr(journal, "start", lambda partition: Tail(position=3, stamp=5))
        histories = [
            read_history(
                journal, id, Explicit(), min_reward=0.0, max_reward=1.0, retention=retention
            )
            for id in ids
        ]
    assert [history.incomplete for history in histories] == [False, own, own]


def test_a_sticky_decision_ends_with_its_action() -> None:
    """If it is voided, its action is paused or not on offer, another one is made."""
    bandit, _ = opened()
    first = bandit.decide(rows=ROWS, actions=["red", "blue"], subject="user-17", sticky="1h")
    bandit.void(first)
    second = bandit.decide(rows=ROWS, actions=["red", "blue"], subject="user-17", sticky="1h")
    assert second.id != first.id
    bandit.pause(second.action)
    third = bandit.decide(rows=ROWS, actions=["red", "blue"], subject="user-17", sticky="1h")
    assert third.action != second.action
    fourth = bandit.decide(rows=ROWS, actions=["green", "gray"], subject="user-17", sticky="1h")
    assert fourth.action in ("green", "gray")


def test_only_a_subject_has_sticky_decisions() -> None:
    """A duration without a subject is a mistake."""
    bandit, _ = opened()
    with pytest.raises(InvalidInput, match="the decision has no subject: pass `subject`"):
        bandit.decide(rows=ROWS, sticky="1h")


def test_a_sticky_decision_of_a_bandit_that_is_off() -> None:
    """It decides nothing, not again either."""
    bandit, _ = opened()
    bandit.decide(rows=ROWS, subject="user-17", sticky="1h")
    bandit.change_mode("off")
    with pytest.raises(BanditOff):
        bandit.decide(rows=ROWS, subject="user-17", sticky="1h")


def _moment(at: int) -> str:
    from belated.core.times import as_datetime

    return as_datetime(at).isoformat()
