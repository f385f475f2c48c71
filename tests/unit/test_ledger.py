"""The rules of the ledger by example, one by one; tests/laws/test_ledger.py has the proofs."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import msgspec
import numpy as np
import pytest

from belated import Bernoulli, DelayedUCB, Gaussian
from belated.events import (
    Activation,
    Decision,
    Event,
    Opaque,
    Record,
    Reward,
    Settled,
    Void,
)
from belated.exceptions import UnknownEvent
from belated.learner import Learner, LearnerAdapter
from belated.ledger import DecisionStatus, Ledger, NullListener, State
from belated.ledger.entries import MAX_PARTS
from belated.ledger.packing import pack
from belated.rewards import ConversionsOnly, DefaultAfter, Explicit, Rewards
from belated.testing import Oracle

WINDOW = timedelta(microseconds=10)
X = np.array([[1.0, 0.5], [-0.5, 1.0]], dtype=np.float32)
NAN, INF = float("nan"), float("inf")


class ToldLedger:
    """A ledger and an oracle that are told the same; ``statuses`` are what the ledger said."""

    def __init__(
        self,
        *told: tuple[int, Event],
        rewards: Rewards | None = None,
        retention: int | None = None,
        min_reward: float = -10.0,
        max_reward: float = 10.0,
        max_unmatched_ids: int = 100_000,
    ) -> None:
        given = Explicit(WINDOW) if rewards is None else rewards
        options: dict[str, Any] = {
            "min_reward": min_reward,
            "max_reward": max_reward,
            "retention": retention,
            "max_unmatched_ids": max_unmatched_ids,
        }
        self.ledger = Ledger(given, NullListener(), **options)
        self.oracle = Oracle(rewards=given, **options)
        self.statuses: list[str] = []
        self.tell(*told)

    def tell(self, *told: tuple[int, Event]) -> ToldLedger:
        """Fold more events, each with its stamp, and compare with the oracle."""
        for recorded, event in told:
            record = Record(0, len(self.statuses) + 1, recorded, event)
            self.statuses.append(self.ledger.fold(record))
            self.oracle.apply_record(record)
        for id, outcome in self.oracle.entries.items():
            entry = self.entry(id)
            assert (entry.state, entry.value) == (outcome.state, outcome.value)
            assert (entry.late, entry.conflict) == (outcome.late, outcome.conflict)
            assert (entry.recorded_us, entry.due_us) == (outcome.recorded, outcome.due)
        return self

    def entry(self, id: str = "a") -> DecisionStatus:
        """What a decision has come to."""
        entry = self.ledger.entry(id)
        assert entry is not None
        return entry

    @property
    def state(self) -> str:
        """The state of decision "a"."""
        return self.entry().state

    @property
    def value(self) -> float | None:
        """The value of decision "a"."""
        return self.entry().value


def decided(at: int = 0, which: int = 0, *, id: str = "a", active: bool = True) -> Decision:
    """A decision."""
    return Decision(id, at, which, which, X[which], 0.5, 0.5, 1, activated=active)


def told(value: float, part: str = "", revision: int = 0, *, at: int = 0, id: str = "a") -> Reward:
    """A reward."""
    return Reward(id, at, value, part, revision)


def settled(until: int) -> Settled:
    """Journal time."""
    return Settled(0, until)


ACTIVE, GONE = Activation("a", 0), Void("a", 0)

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


def test_an_unknown_id_has_so_many_parts_and_so_many_ids_may_wait() -> None:
    """A decision that comes later finds what was kept for it, and what was not is not there."""
    story = ToldLedger(max_unmatched_ids=2, rewards=Explicit(WINDOW, reduce="sum"), max_reward=1e3)
    story.tell(*[(21, told(1.0, f"p{n}")) for n in range(MAX_PARTS + 2)])
    story.tell((22, told(1.0, id="b")), (22, told(1.0, id="c")), (22, GONE))
    assert story.statuses[-4:] == ["over_limit", "unmatched", "over_limit", "unmatched"]
    assert story.ledger.counters["unmatched"] == MAX_PARTS + 2
    assert story.oracle.unmatched == MAX_PARTS + 2
    story.tell((23, decided(id="b")), (23, decided(id="c")))
    assert (story.entry("b").state, story.entry("c").state) == ("rewarded", "pending")
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


# --- forgetting --------------------------------------------------------------------------------


def test_a_settled_decision_is_forgotten_after_the_retention_and_stays_counted() -> None:
    """Strictly after it, by the watermark; a reward for it is unmatched, then orphaned."""
    story = ToldLedger((20, decided()), (21, told(1.0)), (60, settled(40)), retention=20)
    assert story.state == "rewarded"
    digest = story.ledger.digest
    story.tell((60, settled(41)))
    assert story.ledger.entry("a") is None
    assert story.ledger.counts == [0, 0, 1, 0, 0, 0]
    assert story.ledger.digest == digest
    story.tell((61, told(2.0, "", 1)), (100, settled(81)))
    assert story.statuses[-2:] == ["unmatched", "settled"]
    assert story.ledger.counters["unmatched"] == 1
    story.tell((100, settled(82)))
    assert (story.ledger.counters["unmatched"], story.ledger.counters["orphaned"]) == (0, 1)


def test_a_reward_is_told_to_have_expired_when_its_decision_was_forgotten() -> None:
    """An id that was made here tells its age; nothing is kept for it."""
    id, made = "018bcfe568007005ab1c2d3e4f506172", 1_700_000_000_000_000
    day = 86_400_000_000
    story = ToldLedger((made + 5, decided(id=id)), (made + 6, told(1.0, id=id)), retention=day)
    story.tell((made + 2 * day, settled(made + 2 * day)))
    assert story.ledger.entry(id) is None
    story.tell((made + 2 * day, told(2.0, "b", id=id)), (made + 2 * day, Void(id, 0)))
    assert story.statuses[-2:] == ["expired", "expired"]
    assert story.ledger.counters["unmatched"] == 0
    early = id.replace("6172", "6173")  # not yet decided, and young enough
    story = ToldLedger((made + day, told(1.0, id=early)), retention=day)
    assert story.statuses == ["unmatched"]


def test_a_decision_that_is_still_out_is_not_forgotten() -> None:
    """It is, once it is settled and somebody says the time."""
    story = ToldLedger((20, decided()), (60, settled(60)), rewards=Explicit(), retention=20)
    assert story.state == "pending"
    story.tell((61, GONE), (62, settled(62)))
    assert story.ledger.entry("a") is None
    assert story.ledger.counts == [0, 0, 0, 0, 0, 1]


def test_what_is_forgotten_does_not_come_due() -> None:
    """Its window, moved by an activation, may end after the retention."""
    story = ToldLedger((20, decided()), (28, ACTIVE), (29, told(1.0, "a")), retention=10)
    story.tell((31, settled(31)))
    assert story.ledger.entry("a") is None
    digest = story.ledger.digest
    story.tell((38, settled(38)))
    assert (story.ledger.counts, story.ledger.digest) == ([0, 0, 1, 0, 0, 0], digest)


def test_a_decision_after_its_parked_reward_was_orphaned_waits() -> None:
    """Caller ids carry no age: that reward is gone."""
    story = ToldLedger((20, told(1.0)), (60, settled(41)), (61, decided()), retention=20)
    assert story.ledger.counters["orphaned"] == 1
    assert story.state == "pending"


def test_forgotten_decisions_leave_memory_in_blocks() -> None:
    """When there are a thousand of them, but for those behind one that is still out."""
    story = ToldLedger(rewards=Explicit(), retention=5)
    for i in range(3000):
        story.ledger.fold(Record(0, i, 20, decided(id=f"id-{i}")))
    for i in range(3000):
        if i != 2000:
            story.ledger.fold(Record(0, i, 20, told(1.0, id=f"id-{i}")))
    digest = story.ledger.digest
    story.ledger.fold(Record(0, 9000, 100, settled(100)))
    assert len(story.ledger._table) == 1000
    assert story.ledger.counts == [0, 1, 2999, 0, 0, 0]
    assert story.ledger.digest == digest
    assert story.entry("id-2000").state == "pending"
    story.ledger.fold(Record(0, 9001, 101, Void("id-2000", 0)))
    story.ledger.fold(Record(0, 9002, 101, settled(101)))
    assert len(story.ledger._table) == 1000  # fewer than 1024 at the front
    assert story.ledger.counts == [0, 0, 2999, 0, 0, 1]


# --- what else there is to ask -----------------------------------------------------------------


def test_an_unknown_event_halts_the_fold_and_changes_nothing() -> None:
    """The error names the place and the kind."""
    story = ToldLedger((20, decided()), (21, told(1.0, id="b")))
    before = pack(story.ledger)
    data = bytes([2]) + msgspec.msgpack.encode([77, "a"])
    with pytest.raises(UnknownEvent, match=r"in partition 3 at position 9 \(kind 77\)") as caught:
        story.ledger.fold(Record(3, 9, 22, Opaque(data)))
    assert (caught.value.place, caught.value.kind) == ((3, 9), 77)
    with pytest.raises(UnknownEvent, match="codec version 99") as caught:
        story.ledger.fold(Record(3, 9, 22, Opaque(bytes([99]))))
    assert caught.value.version == 99
    assert pack(story.ledger) == before


def test_what_a_reward_would_mean_can_be_asked_before() -> None:
    """Nothing is changed by asking."""
    story = ToldLedger((20, decided()))
    digest, ask = story.ledger.digest, story.ledger.meaning
    assert (ask(told(1.0)), ask(told(1.0, id="b"))) == ("rewarded", "unmatched")
    assert story.ledger.digest == digest
    story.tell((21, told(1.0)))
    assert [ask(told(1.0)), ask(told(2.0))] == ["duplicate", "conflict"]
    assert [ask(told(2.0, "", 1)), ask(told(2.0, "b"))] == ["revised", "revised"]
    story.tell((22, GONE))
    assert ask(told(1.0)) == "voided"


def test_the_entry_of_an_unknown_id_is_none() -> None:
    """Parked rewards do not make an entry."""
    story = ToldLedger((20, told(1.0)))
    assert story.ledger.entry("a") is None
    assert story.ledger.find("a") == -1


def test_an_entry_tells_its_rewards() -> None:
    """The one that counts of each part."""
    story = ToldLedger((20, decided()), (21, told(1.0, at=3)))
    [one] = story.entry().reported
    assert (one.recorded_us, one.at_us, one.value) == (21, 3, 1.0)
    story.tell((22, told(2.0, "", 1)))
    assert [one.value for one in story.entry().reported] == [2.0]


def test_the_pending_are_listed_with_their_stamps() -> None:
    """The oldest first."""
    story = ToldLedger((20, decided(id="b")), (21, decided(id="c")), (22, decided()), (23, GONE))
    assert [recorded for _, recorded in story.ledger.pending()] == [20, 21]
    assert story.ledger.numbers(State.PENDING).tolist() == [0, 1]
    assert story.ledger.numbers(State.VOIDED) == [2]


def test_the_sum_of_parts_may_leave_the_support_and_the_fold_goes_on() -> None:
    """Each part is a Bernoulli reward, both together are held at 1 where they are learned."""
    learner = Learner(DelayedUCB(2, Bernoulli()))
    ledger = Ledger(Explicit(reduce="sum"), LearnerAdapter(learner), min_reward=0.0, max_reward=1.0)
    events: list[Event] = [decided(), told(1.0, "a"), told(1.0, "b")]
    for position, event in enumerate(events, 1):
        ledger.fold(Record(0, position, 20, event))
    entry = ledger.entry("a")
    assert entry is not None
    assert entry.value == 2.0
    assert learner.observations[0].get(0)[1] == 1.0


ROWS = X.astype(np.float64)


@pytest.mark.parametrize(
    "events",
    [
        [(20, decided(which=1, active=False)), (21, decided(at=1)), (22, ACTIVE)],
        [
            (20, decided(which=1, active=False)),
            (20, decided(id="b")),
            (20, Void("b", 0)),
            (30, settled(30)),
            (31, ACTIVE),
        ],
    ],
    ids=["dormant, contradicted, activated", "dormant, voided, activated"],
)
def test_a_decision_weighs_the_same_however_it_came_to_be_pending(
    events: list[tuple[int, Event]],
) -> None:
    """One over the dispersion, once (a regression)."""
    learner = Learner(DelayedUCB(2, Gaussian(0.25)))
    ledger = Ledger(Explicit(WINDOW), LearnerAdapter(learner), min_reward=0.0, max_reward=1.0)
    for position, (recorded, event) in enumerate(events, 1):
        ledger.fold(Record(0, position, recorded, event))
    assert ledger.numbers(State.PENDING) == [0]
    learner._fold()
    np.testing.assert_allclose(learner._pending.matrix, 4.0 * np.outer(ROWS[1], ROWS[1]))


def test_the_rows_of_forgotten_decisions_are_let_go() -> None:
    """Learned or not: their places are used again."""
    learner = Learner(DelayedUCB(2, Gaussian()))
    account = LearnerAdapter(learner)
    ledger = Ledger(Explicit(WINDOW), account, min_reward=0.0, max_reward=1.0, retention=10)
    for i in range(50):
        now = 20 + 100 * i
        ledger.fold(Record(0, 1, now, decided(id=f"silent-{i}")))
        ledger.fold(Record(0, 2, now, decided(id=f"told-{i}")))
        ledger.fold(Record(0, 3, now, told(1.0, id=f"told-{i}")))
        ledger.fold(Record(0, 4, now + 50, settled(now + 50)))
    assert ledger.counts == [0, 0, 50, 0, 50, 0]
    assert account._rows.used == 2  # one of each is there at a time


@pytest.mark.parametrize(
    ("events", "decisions"),
    [
        ([(20, decided(active=False)), (30, settled(30)), (31, told(1.0))], 1),
    ],
)
def test_a_decision_is_counted_once_however_often_it_is_expected(
    events: list[tuple[int, Event]], decisions: int
) -> None:
    """The first time it is expected, and no other."""
    learner = Learner(DelayedUCB(2, Gaussian()))
    ledger = Ledger(Explicit(WINDOW), LearnerAdapter(learner), min_reward=0.0, max_reward=1.0)
    for position, (recorded, event) in enumerate(events, 1):
        ledger.fold(Record(0, position, recorded, event))
    assert learner.model.decisions == decisions


@pytest.mark.parametrize("at", [-5, 1 << 63, (1 << 64) - 1])
def test_no_clock_stops_the_fold(at: int) -> None:
    """A time that fits into no column is held at the nearest that does."""
    ledger = Ledger(Explicit(WINDOW), NullListener(), min_reward=0.0, max_reward=1.0)
    events: list[Event] = [decided(at=at), told(1.0, at=at), told(1.0, at=at)]
    statuses = [ledger.fold(Record(0, n, 20 + n, event)) for n, event in enumerate(events, 1)]
    assert statuses == ["decided", "rewarded", "duplicate"]


def test_parked_events_that_were_joined_leave_nothing() -> None:
    """Also where there is no retention."""
    ledger = Ledger(Explicit(WINDOW), NullListener(), min_reward=0.0, max_reward=1.0)
    for i in range(1000):
        ledger.fold(Record(0, 2 * i + 1, 20 + i, told(1.0, id=f"a{i}")))
        ledger.fold(Record(0, 2 * i + 2, 20 + i, decided(id=f"a{i}")))
    assert not ledger._unmatched.ids
