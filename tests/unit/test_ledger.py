"""Examples for each rule of the ledger; tests/laws/test_ledger.py tests them in general."""

from __future__ import annotations

from typing import Any

import pytest

from belated.core.events import Event
from belated.core.rewards import ConversionsOnly, DefaultAfter, Explicit, Rewards
from belated.fold.rules import MAX_PARTS
from tests.unit.checked_ledger import (
    ACTIVATION,
    VOID,
    WINDOW,
    CheckedLedger,
    decision,
    reward,
    settled,
)

NAN, INF = float("nan"), float("inf")


# --- rule 1: which decision --------------------------------------------------------------------


@pytest.mark.parametrize("at", [3, 5, 9])
def test_the_first_committed_decision_under_an_id_counts(at: int) -> None:
    """Times do not matter; the second decision is a conflict, which is flagged."""
    original = decision(at=5)
    run = CheckedLedger(
        (20, original), (21, decision(at=at, which=1)), (22, decision(at=at, which=1))
    )
    assert run.statuses == ["decided", "conflict", "conflict"]
    assert run.entry().conflict
    assert (run.entry().recorded_us, run.entry().position) == (20, 1)
    assert run.oracle.entries["a"].decision == original


def test_a_decision_sent_again_is_a_duplicate() -> None:
    """The first record counts, and no conflict is flagged."""
    run = CheckedLedger((20, decision()), (25, decision()))
    assert run.statuses == ["decided", "duplicate"]
    assert not run.entry().conflict
    assert run.entry().due_us == 30


def test_events_before_their_decision_wait_and_are_then_matched() -> None:
    """They keep their timestamps; a part that was revised before its decision counts once."""
    run = CheckedLedger((20, reward(1.0)), (21, reward(1.0)), (22, reward(2.0, "", 1, at=3)))
    run.fold((23, reward(3.0)))
    assert run.statuses == ["unmatched", "duplicate", "revised", "superseded"]
    assert run.ledger.entry("a") is None
    run.fold((24, reward(5.0, "", 1)), (25, reward(1.0, "b")))
    assert run.ledger.counters["unmatched"] == 2
    run.fold((26, decision()))
    assert (run.value, run.entry().conflict) == (2.0, True)
    assert run.entry().reported[0].recorded_us == 22
    assert +run.ledger.counters == {
        "duplicate": 1, "revised": 2, "superseded": 1, "conflict": 1, "rewarded": 1, "decided": 1,
    }  # fmt: skip


def test_the_first_reward_decides_what_is_late_also_before_the_decision() -> None:
    """A revision after the window that an early activation started does not make it late."""
    events: list[tuple[int, Event]] = [
        (20, ACTIVATION),
        (21, reward(1.0)),
        (45, reward(2.0, "", 1)),
        (46, decision()),
    ]
    run = CheckedLedger(*events)
    assert (run.state, run.value, run.entry().late) == ("rewarded", 2.0, False)


def test_a_later_decision_changes_nothing_but_the_flag() -> None:
    """It changes neither the reward nor whether the decision is live."""
    run = CheckedLedger((20, decision(at=5)), (21, reward(1.0)), (22, decision(at=3, which=1)))
    assert (run.state, run.value, run.entry().conflict) == ("rewarded", 1.0, True)
    dormant, live = decision(at=0, which=1, active=False), decision(at=1)
    assert CheckedLedger((20, live), (21, dormant)).state == "pending"
    assert CheckedLedger((20, dormant), (21, live)).state == "dormant"


# --- rule 2: void ------------------------------------------------------------------------------


def test_a_void_overrides_everything_else() -> None:
    """Rewards before and after it do not count."""
    run = CheckedLedger(
        (20, decision()), (21, reward(1.0)), (22, VOID), (23, reward(2.0, "", 1)), (24, VOID)
    )
    assert run.statuses == ["decided", "rewarded", "voided", "voided", "duplicate"]
    assert (run.state, run.value) == ("voided", None)
    assert run.ledger.counts == [0, 0, 0, 0, 0, 1]


def test_a_void_may_precede_its_decision() -> None:
    """It takes effect when the decision arrives."""
    run = CheckedLedger((20, VOID), (21, decision()))
    assert (run.statuses, run.state) == (["unmatched", "decided"], "voided")


# --- rule 3: live, and due ---------------------------------------------------------------------


def test_a_dormant_decision_is_live_from_its_activation_on() -> None:
    """Its window starts with the first activation."""
    run = CheckedLedger((20, decision(active=False)))
    assert (run.state, run.entry().due_us) == ("dormant", 30)
    run.fold((25, ACTIVATION), (27, ACTIVATION))
    assert run.statuses == ["decided", "activated", "duplicate"]
    assert (run.state, run.entry().due_us) == ("pending", 35)


def test_a_reward_makes_a_dormant_decision_live() -> None:
    """Only decisions that took effect are rewarded."""
    assert CheckedLedger((20, decision(active=False)), (25, reward(1.0))).state == "rewarded"


def test_an_activation_moves_the_window_of_a_live_decision_too() -> None:
    """Even a decision whose window had ended is pending again."""
    run = CheckedLedger((20, decision()), (30, settled(30)))
    assert run.state == "censored"
    assert run.fold((31, ACTIVATION)).state == "pending"
    assert run.entry().due_us == 41
    assert run.fold((41, settled(41))).state == "censored"


def test_an_activation_before_its_decision_starts_the_window() -> None:
    """The window starts when the activation was recorded."""
    run = CheckedLedger((20, ACTIVATION), (25, decision(active=False)))
    assert (run.state, run.entry().due_us) == ("pending", 30)


# --- rule 4: expired and invalid ---------------------------------------------------------------


def test_a_reward_after_the_retention_is_expired_and_ignored() -> None:
    """A reward exactly at the end of the retention still counts."""
    run = CheckedLedger((20, decision()), (41, reward(1.0)), retention=20)
    assert run.statuses[-1] == "expired"
    assert run.state == "pending"
    run = CheckedLedger((20, decision()), (40, reward(1.0)), (41, reward(2.0, "", 1)), retention=20)
    assert run.statuses[-2:] == ["late", "expired"]
    assert run.value == 1.0


@pytest.mark.parametrize("value", [NAN, INF, -INF, 10.5, -10.5])
def test_a_value_out_of_bounds_is_invalid_and_ignored(value: float) -> None:
    """It does not make a dormant decision live, and is not stored for an unknown decision."""
    run = CheckedLedger(
        (20, decision(active=False)), (21, reward(value)), (22, reward(value, id="b"))
    )
    assert run.statuses == ["decided", "invalid", "invalid"]
    assert run.state == "dormant"
    assert run.ledger.counters["unmatched"] == 0


def test_the_bounds_themselves_are_valid() -> None:
    """The smallest and the largest reward are accepted."""
    assert CheckedLedger((20, decision()), (21, reward(10.0))).value == 10.0
    assert CheckedLedger((20, decision()), (21, reward(-10.0))).value == -10.0


# --- rule 5: revisions, ties and parts ---------------------------------------------------------


def test_the_highest_revision_counts_whenever_it_arrives() -> None:
    """A lower revision that arrives later changes nothing."""
    run = CheckedLedger(
        (20, decision()), (21, reward(1.0, "", 1)), (22, reward(2.0, "", 2)), (23, reward(3.0))
    )
    assert run.statuses[1:] == ["rewarded", "revised", "superseded"]
    assert (run.value, run.entry().conflict) == (2.0, False)


@pytest.mark.parametrize("at", [3, 5, 9])
def test_of_two_values_of_one_revision_the_first_committed_counts(at: int) -> None:
    """Times do not matter. The conflict is flagged until a higher revision arrives."""
    for values in ((1.0, 2.0), (2.0, 1.0)):
        run = CheckedLedger((20, decision()), (21, reward(values[0], at=5)))
        run.fold((22, reward(values[1], at=at)))
        assert run.statuses[1:] == ["rewarded", "conflict"]
        assert (run.value, run.entry().conflict) == (values[0], True)
        run.fold((23, reward(3.0, "", 1)))
        assert (run.value, run.entry().conflict) == (3.0, False)


def test_a_retry_of_a_conflicting_value_is_a_conflict_again() -> None:
    """Only the value that counts is remembered."""
    run = CheckedLedger((20, decision()), (21, reward(1.0)), (22, reward(2.0)))
    run.fold((23, reward(1.0)), (24, reward(2.0)), (25, reward(3.0)))
    assert run.statuses[3:] == ["duplicate", "conflict", "conflict"]


def test_a_decision_accepts_a_limited_number_of_parts() -> None:
    """Further parts are over the limit; known parts can still be revised."""
    run = CheckedLedger((20, decision()), rewards=Explicit(WINDOW, reduce="sum"), max_reward=1e3)
    run.fold(*[(21, reward(1.0, f"p{n}")) for n in range(MAX_PARTS + 2)])
    assert run.statuses[-3:] == ["revised", "over_limit", "over_limit"]
    assert run.value == MAX_PARTS
    run.fold((22, reward(3.0, "p0", 1)))
    assert (run.statuses[-1], run.value) == ("revised", MAX_PARTS + 2)


def test_an_unknown_id_has_a_limited_number_of_parts_but_there_is_no_limit_of_ids() -> None:
    """A decision that arrives later gets the events stored for it."""
    run = CheckedLedger(rewards=Explicit(WINDOW, reduce="sum"), max_reward=1e3)
    run.fold(*[(21, reward(1.0, f"p{n}")) for n in range(MAX_PARTS + 2)])
    run.fold((22, reward(1.0, id="b")), (22, reward(1.0, id="c")), (22, VOID))
    assert run.statuses[-4:] == ["over_limit", "unmatched", "unmatched", "unmatched"]
    assert run.ledger.counters["unmatched"] == MAX_PARTS + 3
    assert run.oracle.unmatched == MAX_PARTS + 3
    assert run.ledger.unmatched == {"": 3}
    run.fold((23, decision(id="b")), (23, decision(id="c")))
    assert (run.entry("b").state, run.entry("c").state) == ("rewarded", "rewarded")
    assert run.ledger.unmatched == {"": 1}
    run.fold((24, reward(1.0, id="d")))
    assert run.statuses[-1] == "unmatched"


def test_a_retry_is_a_duplicate() -> None:
    """Part, revision and value are the same; the time does not matter, and -0.0 equals 0.0."""
    run = CheckedLedger((20, decision()), (21, reward(0.0, at=3)), (22, reward(0.0, at=3)))
    run.fold((23, reward(-0.0, at=3)), (24, reward(0.0, at=2)), (25, reward(0.0, at=9)))
    assert run.statuses[2:] == ["duplicate"] * 4
    assert not run.entry().conflict


@pytest.mark.parametrize("part", ["", "a"])
def test_a_retry_with_an_earlier_time_changes_nothing(part: str) -> None:
    """The first report counts, with its time."""
    run = CheckedLedger(
        (20, decision()), (25, reward(1.0, part, at=5)), (35, reward(1.0, part, at=2))
    )
    run.fold((36, reward(2.0, "b", at=3)))
    assert run.statuses[1:] == ["rewarded", "duplicate", "revised"]
    assert (run.value, run.entry().late) == (1.0, False)


@pytest.mark.parametrize(
    ("reduce", "value"), [("latest", 2.0), ("sum", 8.0), ("max", 5.0)], ids=str
)
def test_parts_are_reduced(reduce: Any, value: float) -> None:
    """To the latest, their sum or the maximum."""
    rewards = Explicit(WINDOW, reduce=reduce)
    run = CheckedLedger((20, decision()), (21, reward(1.0, "a", at=2)), rewards=rewards)
    run.fold((22, reward(2.0, "b", at=7)), (23, reward(5.0, "c", at=1)))
    assert run.statuses[1:] == ["rewarded", "revised", "revised"]
    assert run.value == value


def test_of_parts_with_the_same_time_the_greatest_name_is_the_latest() -> None:
    """The order of arrival does not matter."""
    parts = [reward(1.0, "b"), reward(2.0, "a")]
    assert CheckedLedger((20, decision()), *zip((21, 22), parts, strict=True)).value == 1.0
    assert CheckedLedger((20, decision()), *zip((21, 22), parts[::-1], strict=True)).value == 1.0


def test_a_sum_is_limited_to_the_maximum_reward() -> None:
    """The limit is a billion, however many parts there are."""
    parts = [(21, reward(9e8, part)) for part in "abc"]
    run = CheckedLedger((20, decision()), *parts, rewards=Explicit(reduce="sum"), max_reward=1e9)
    assert run.value == 1e9


# --- rule 6: late ------------------------------------------------------------------------------


def test_a_reward_after_the_window_is_late_and_counts() -> None:
    """It does not matter whether the window was settled; at its end a reward is in time."""
    assert CheckedLedger((20, decision()), (30, reward(1.0))).statuses[-1] == "rewarded"
    run = CheckedLedger((20, decision()), (31, reward(1.0)))
    assert (run.statuses[-1], run.state, run.entry().late) == ("late", "rewarded", True)
    run = CheckedLedger((20, decision()), (32, settled(32)), (33, reward(1.0)))
    assert (run.statuses[-1], run.state, run.entry().late) == ("late", "rewarded", True)


def test_the_first_part_determines_whether_a_reward_is_late() -> None:
    """Later parts are revisions."""
    run = CheckedLedger((20, decision()), (25, reward(1.0, "a")), (35, reward(2.0, "b")))
    assert run.statuses[1:] == ["rewarded", "revised"]
    assert not run.entry().late


# --- rule 7: missing rewards -------------------------------------------------------------------

DEFAULT = DefaultAfter(WINDOW, value=0.25)


@pytest.mark.parametrize(
    ("rewards", "state", "value"),
    [
        (Explicit(WINDOW), "censored", None),
        (DEFAULT, "defaulted", 0.25),
        (ConversionsOnly(WINDOW), "defaulted", 0.0),
        (Explicit(), "pending", None),
    ],
    ids=["Explicit", "DefaultAfter", "ConversionsOnly", "no window"],
)
def test_a_missing_reward_means_what_the_semantics_define(
    rewards: Rewards, state: str, value: float | None
) -> None:
    """It takes effect when the watermark reaches the end of the window."""
    run = CheckedLedger((20, decision()), (40, settled(29)), rewards=rewards)
    assert run.state == "pending"
    run.fold((40, settled(30)))
    assert (run.state, run.value) == (state, value)


def test_a_dormant_decision_is_voided_when_its_window_ends() -> None:
    """It never took effect, unless a later reward shows that it did."""
    run = CheckedLedger((20, decision(active=False)), (30, settled(30)), rewards=DEFAULT)
    assert run.state == "voided"
    run.fold((31, reward(1.0)))
    assert (run.statuses[-1], run.state) == ("late", "rewarded")


def test_a_late_reward_replaces_the_default() -> None:
    """The decision still counts once."""
    run = CheckedLedger((20, decision()), (30, settled(30)), (31, reward(1.0)), rewards=DEFAULT)
    assert (run.state, run.value) == ("rewarded", 1.0)
    assert run.ledger.counts == [0, 0, 1, 0, 0, 0]


def test_the_watermark_never_exceeds_the_timestamps_of_the_journal() -> None:
    """A Settled event beyond its own timestamp is limited to it, and the watermark never falls."""
    run = CheckedLedger((20, decision()), (25, settled(10**9)))
    assert (run.ledger.watermark, run.state) == (25, "pending")
    run.fold((26, settled(3)))
    assert run.ledger.watermark == 25
    assert run.statuses[1:] == ["settled", "settled"]


def test_the_next_end_of_a_window_is_known() -> None:
    """It is that of the earliest window that has not ended; None if there is none."""
    assert CheckedLedger().ledger.due is None
    run = CheckedLedger((20, decision()), (22, decision(id="b")))
    assert run.ledger.due == 30
    assert not run.ledger.is_due(29)
    assert run.ledger.is_due(30)
    assert run.fold((23, reward(1.0))).ledger.due == 32
    assert run.fold((32, settled(32))).ledger.due is None
    assert not run.ledger.is_due(10**9)
    assert CheckedLedger((20, decision()), rewards=Explicit()).ledger.due is None
