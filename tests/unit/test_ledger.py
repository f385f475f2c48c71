"""The rules of the ledger by example, one by one; tests/laws/test_ledger.py has the proofs."""

from __future__ import annotations

from typing import Any

import pytest

from belated.core.events import Event
from belated.core.rewards import ConversionsOnly, DefaultAfter, Explicit, Rewards
from belated.fold.rules import MAX_PARTS
from tests.unit.told_ledger import ACTIVE, GONE, WINDOW, ToldLedger, decided, settled, told

NAN, INF = float("nan"), float("inf")


# --- rule 1: which decision --------------------------------------------------------------------


@pytest.mark.parametrize("at", [3, 5, 9])
def test_the_first_committed_decision_under_an_id_counts(at: int) -> None:
    """Whatever their clocks said; the other is a conflict, and the entry is flagged."""
    first = decided(at=5)
    story = ToldLedger((20, first), (21, decided(at=at, which=1)), (22, decided(at=at, which=1)))
    assert story.statuses == ["decided", "conflict", "conflict"]
    assert story.entry().conflict
    assert (story.entry().recorded_us, story.entry().position) == (20, 1)
    assert story.oracle.entries["a"].decision == first


def test_a_decision_sent_again_is_a_duplicate() -> None:
    """The first record of it counts, and nothing is flagged."""
    story = ToldLedger((20, decided()), (25, decided()))
    assert story.statuses == ["decided", "duplicate"]
    assert not story.entry().conflict
    assert story.entry().due_us == 30


def test_events_before_their_decision_wait_and_are_then_matched() -> None:
    """With the stamps they had; a part that was revised meanwhile waits once."""
    story = ToldLedger((20, told(1.0)), (21, told(1.0)), (22, told(2.0, "", 1, at=3)))
    story.tell((23, told(3.0)))
    assert story.statuses == ["unmatched", "duplicate", "revised", "superseded"]
    assert story.ledger.entry("a") is None
    story.tell((24, told(5.0, "", 1)), (25, told(1.0, "b")))
    assert story.ledger.counters["unmatched"] == 2
    story.tell((26, decided()))
    assert (story.value, story.entry().conflict) == (2.0, True)
    assert story.entry().reported[0].recorded_us == 22
    assert +story.ledger.counters == {
        "duplicate": 1, "revised": 2, "superseded": 1, "conflict": 1, "rewarded": 1, "decided": 1,
    }  # fmt: skip


def test_the_first_reward_decides_what_is_late_also_before_the_decision() -> None:
    """A revision that came after the window of an early activation replaces it, and is in time."""
    early: list[tuple[int, Event]] = [
        (20, ACTIVE),
        (21, told(1.0)),
        (45, told(2.0, "", 1)),
        (46, decided()),
    ]
    story = ToldLedger(*early)
    assert (story.state, story.value, story.entry().late) == ("rewarded", 2.0, False)


def test_a_later_decision_changes_nothing_but_the_flag() -> None:
    """Neither the reward, nor whether it is live."""
    story = ToldLedger((20, decided(at=5)), (21, told(1.0)), (22, decided(at=3, which=1)))
    assert (story.state, story.value, story.entry().conflict) == ("rewarded", 1.0, True)
    dormant, live = decided(at=0, which=1, active=False), decided(at=1)
    assert ToldLedger((20, live), (21, dormant)).state == "pending"
    assert ToldLedger((20, dormant), (21, live)).state == "dormant"


# --- rule 2: void ------------------------------------------------------------------------------


def test_a_voided_decision_is_voided_whatever_else_is_known() -> None:
    """Rewards before and after it do not count."""
    story = ToldLedger(
        (20, decided()), (21, told(1.0)), (22, GONE), (23, told(2.0, "", 1)), (24, GONE)
    )
    assert story.statuses == ["decided", "rewarded", "voided", "voided", "duplicate"]
    assert (story.state, story.value) == ("voided", None)
    assert story.ledger.counts == [0, 0, 0, 0, 0, 1]


def test_a_void_may_be_parked() -> None:
    """It is then there when the decision comes."""
    story = ToldLedger((20, GONE), (21, decided()))
    assert (story.statuses, story.state) == (["unmatched", "decided"], "voided")


# --- rule 3: live, and due ---------------------------------------------------------------------


def test_a_dormant_decision_is_live_from_its_activation_on() -> None:
    """Its window starts with the first activation."""
    story = ToldLedger((20, decided(active=False)))
    assert (story.state, story.entry().due_us) == ("dormant", 30)
    story.tell((25, ACTIVE), (27, ACTIVE))
    assert story.statuses == ["decided", "activated", "duplicate"]
    assert (story.state, story.entry().due_us) == ("pending", 35)


def test_a_reward_makes_a_dormant_decision_live() -> None:
    """Nobody rewards what did not happen."""
    assert ToldLedger((20, decided(active=False)), (25, told(1.0))).state == "rewarded"


def test_an_activation_moves_the_window_of_a_live_decision_too() -> None:
    """Even one that was settled already is pending again."""
    story = ToldLedger((20, decided()), (30, settled(30)))
    assert story.state == "censored"
    assert story.tell((31, ACTIVE)).state == "pending"
    assert story.entry().due_us == 41
    assert story.tell((41, settled(41))).state == "censored"


def test_a_parked_activation_starts_the_window_before_the_decision_was_recorded() -> None:
    """The journal took it first, and that is what counts."""
    story = ToldLedger((20, ACTIVE), (25, decided(active=False)))
    assert (story.state, story.entry().due_us) == ("pending", 30)


# --- rule 4: expired and invalid ---------------------------------------------------------------


def test_a_reward_after_the_retention_is_expired_and_ignored() -> None:
    """At its end to the microsecond it still counts."""
    story = ToldLedger((20, decided()), (41, told(1.0)), retention=20)
    assert story.statuses[-1] == "expired"
    assert story.state == "pending"
    story = ToldLedger((20, decided()), (40, told(1.0)), (41, told(2.0, "", 1)), retention=20)
    assert story.statuses[-2:] == ["late", "expired"]
    assert story.value == 1.0


@pytest.mark.parametrize("value", [NAN, INF, -INF, 10.5, -10.5])
def test_a_value_out_of_bounds_is_invalid_and_ignored(value: float) -> None:
    """It does not even make a dormant decision live, and is not parked."""
    story = ToldLedger((20, decided(active=False)), (21, told(value)), (22, told(value, id="b")))
    assert story.statuses == ["decided", "invalid", "invalid"]
    assert story.state == "dormant"
    assert story.ledger.counters["unmatched"] == 0


def test_the_bounds_themselves_are_valid() -> None:
    """Both ends belong to what is taken."""
    assert ToldLedger((20, decided()), (21, told(10.0))).value == 10.0
    assert ToldLedger((20, decided()), (21, told(-10.0))).value == -10.0


# --- rule 5: revisions, ties and parts ---------------------------------------------------------


def test_the_highest_revision_counts_whenever_it_came() -> None:
    """A lower one that comes later changes nothing."""
    story = ToldLedger(
        (20, decided()), (21, told(1.0, "", 1)), (22, told(2.0, "", 2)), (23, told(3.0))
    )
    assert story.statuses[1:] == ["rewarded", "revised", "superseded"]
    assert (story.value, story.entry().conflict) == (2.0, False)


@pytest.mark.parametrize("at", [3, 5, 9])
def test_of_two_values_of_one_revision_the_first_committed_counts(at: int) -> None:
    """Whatever time they tell. The entry is flagged until a higher revision settles it."""
    for values in ((1.0, 2.0), (2.0, 1.0)):
        story = ToldLedger((20, decided()), (21, told(values[0], at=5)))
        story.tell((22, told(values[1], at=at)))
        assert story.statuses[1:] == ["rewarded", "conflict"]
        assert (story.value, story.entry().conflict) == (values[0], True)
        story.tell((23, told(3.0, "", 1)))
        assert (story.value, story.entry().conflict) == (3.0, False)


def test_a_retry_of_what_does_not_count_is_a_conflict_again() -> None:
    """Only the value that counts is known."""
    story = ToldLedger((20, decided()), (21, told(1.0)), (22, told(2.0)))
    story.tell((23, told(1.0)), (24, told(2.0)), (25, told(3.0)))
    assert story.statuses[3:] == ["duplicate", "conflict", "conflict"]


def test_a_decision_takes_so_many_parts_and_no_more() -> None:
    """What is beyond has a status of its own; the parts that are known are revised as before."""
    story = ToldLedger((20, decided()), rewards=Explicit(WINDOW, reduce="sum"), max_reward=1e3)
    story.tell(*[(21, told(1.0, f"p{n}")) for n in range(MAX_PARTS + 2)])
    assert story.statuses[-3:] == ["revised", "over_limit", "over_limit"]
    assert story.value == MAX_PARTS
    story.tell((22, told(3.0, "p0", 1)))
    assert (story.statuses[-1], story.value) == ("revised", MAX_PARTS + 2)


def test_an_unknown_id_has_so_many_parts_and_any_number_of_ids_may_wait() -> None:
    """A decision that comes later finds what was kept for it."""
    story = ToldLedger(rewards=Explicit(WINDOW, reduce="sum"), max_reward=1e3)
    story.tell(*[(21, told(1.0, f"p{n}")) for n in range(MAX_PARTS + 2)])
    story.tell((22, told(1.0, id="b")), (22, told(1.0, id="c")), (22, GONE))
    assert story.statuses[-4:] == ["over_limit", "unmatched", "unmatched", "unmatched"]
    assert story.ledger.counters["unmatched"] == MAX_PARTS + 3
    assert story.oracle.unmatched == MAX_PARTS + 3
    assert story.ledger.unmatched == {"": 3}
    story.tell((23, decided(id="b")), (23, decided(id="c")))
    assert (story.entry("b").state, story.entry("c").state) == ("rewarded", "rewarded")
    assert story.ledger.unmatched == {"": 1}
    story.tell((24, told(1.0, id="d")))
    assert story.statuses[-1] == "unmatched"


def test_a_retry_is_a_duplicate() -> None:
    """The same part, revision and value, whatever the time; -0.0 is 0.0."""
    story = ToldLedger((20, decided()), (21, told(0.0, at=3)), (22, told(0.0, at=3)))
    story.tell((23, told(-0.0, at=3)), (24, told(0.0, at=2)), (25, told(0.0, at=9)))
    assert story.statuses[2:] == ["duplicate"] * 4
    assert not story.entry().conflict


@pytest.mark.parametrize("part", ["", "a"])
def test_a_retry_of_an_earlier_time_changes_nothing(part: str) -> None:
    """The first that says it counts, with its time."""
    story = ToldLedger((20, decided()), (25, told(1.0, part, at=5)), (35, told(1.0, part, at=2)))
    story.tell((36, told(2.0, "b", at=3)))
    assert story.statuses[1:] == ["rewarded", "duplicate", "revised"]
    assert (story.value, story.entry().late) == (1.0, False)


@pytest.mark.parametrize(
    ("reduce", "value"), [("latest", 2.0), ("sum", 8.0), ("max", 5.0)], ids=str
)
def test_parts_are_reduced(reduce: Any, value: float) -> None:
    """To the latest, their sum or the greatest."""
    rewards = Explicit(WINDOW, reduce=reduce)
    story = ToldLedger((20, decided()), (21, told(1.0, "a", at=2)), rewards=rewards)
    story.tell((22, told(2.0, "b", at=7)), (23, told(5.0, "c", at=1)))
    assert story.statuses[1:] == ["rewarded", "revised", "revised"]
    assert story.value == value


def test_of_parts_of_one_time_the_greatest_name_is_the_latest() -> None:
    """So that the order of arrival does not matter."""
    parts = [told(1.0, "b"), told(2.0, "a")]
    assert ToldLedger((20, decided()), *zip((21, 22), parts, strict=True)).value == 1.0
    assert ToldLedger((20, decided()), *zip((21, 22), parts[::-1], strict=True)).value == 1.0


def test_a_sum_is_at_most_what_a_reward_may_be() -> None:
    """A billion, however many parts there are."""
    parts = [(21, told(9e8, part)) for part in "abc"]
    story = ToldLedger((20, decided()), *parts, rewards=Explicit(reduce="sum"), max_reward=1e9)
    assert story.value == 1e9


# --- rule 6: late ------------------------------------------------------------------------------


def test_a_reward_after_the_window_is_late_and_counts() -> None:
    """Whether or not the window was settled; at its end it is in time."""
    assert ToldLedger((20, decided()), (30, told(1.0))).statuses[-1] == "rewarded"
    story = ToldLedger((20, decided()), (31, told(1.0)))
    assert (story.statuses[-1], story.state, story.entry().late) == ("late", "rewarded", True)
    story = ToldLedger((20, decided()), (32, settled(32)), (33, told(1.0)))
    assert (story.statuses[-1], story.state, story.entry().late) == ("late", "rewarded", True)


def test_the_first_part_decides_what_is_late() -> None:
    """Later parts revise."""
    story = ToldLedger((20, decided()), (25, told(1.0, "a")), (35, told(2.0, "b")))
    assert story.statuses[1:] == ["rewarded", "revised"]
    assert not story.entry().late


# --- rule 7: silence ---------------------------------------------------------------------------

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
def test_silence_means_what_the_semantics_say(
    rewards: Rewards, state: str, value: float | None
) -> None:
    """From the moment the watermark reaches the end of the window."""
    story = ToldLedger((20, decided()), (40, settled(29)), rewards=rewards)
    assert story.state == "pending"
    story.tell((40, settled(30)))
    assert (story.state, story.value) == (state, value)


def test_a_dormant_decision_is_voided_when_its_window_ends() -> None:
    """It never took effect; a reward that comes all the same says that it did."""
    story = ToldLedger((20, decided(active=False)), (30, settled(30)), rewards=DEFAULT)
    assert story.state == "voided"
    story.tell((31, told(1.0)))
    assert (story.statuses[-1], story.state) == ("late", "rewarded")


def test_a_late_reward_replaces_the_default() -> None:
    """And it counts once."""
    story = ToldLedger((20, decided()), (30, settled(30)), (31, told(1.0)), rewards=DEFAULT)
    assert (story.state, story.value) == ("rewarded", 1.0)
    assert story.ledger.counts == [0, 0, 1, 0, 0, 0]


def test_nobody_settles_what_the_journal_has_not_reached() -> None:
    """A Settled beyond its own stamp is held at it, and the watermark never falls."""
    story = ToldLedger((20, decided()), (25, settled(10**9)))
    assert (story.ledger.watermark, story.state) == (25, "pending")
    story.tell((26, settled(3)))
    assert story.ledger.watermark == 25
    assert story.statuses[1:] == ["settled", "settled"]


def test_what_is_due_next_is_known() -> None:
    """The earliest window that has not ended; None where there is none."""
    assert ToldLedger().ledger.due is None
    story = ToldLedger((20, decided()), (22, decided(id="b")))
    assert story.ledger.due == 30
    assert not story.ledger.is_due(29)
    assert story.ledger.is_due(30)
    assert story.tell((23, told(1.0))).ledger.due == 32
    assert story.tell((32, settled(32))).ledger.due is None
    assert not story.ledger.is_due(10**9)
    assert ToldLedger((20, decided()), rewards=Explicit()).ledger.due is None
