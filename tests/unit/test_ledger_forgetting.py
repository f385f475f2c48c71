"""The ledger lets go of what is settled, and what can be asked of it."""

from __future__ import annotations

import msgspec
import numpy as np
import pytest

from belated import Bernoulli, DelayedUCB, Gaussian
from belated.core.events import Event, Opaque, Record, Void
from belated.core.rewards import Explicit
from belated.exceptions import UnknownEvent
from belated.fold.adapter import LearnerAdapter
from belated.fold.learner import Learner
from belated.fold.ledger import Ledger, NullListener
from belated.fold.packing import pack
from belated.fold.rules import State
from tests.unit.told_ledger import ACTIVE, GONE, WINDOW, ToldLedger, X, decided, settled, told

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


def test_the_time_inside_an_id_says_nothing_about_the_retention() -> None:
    """A reward that precedes its decision waits for it, though the id looks older than that."""
    id, made = "018bcfe568007005ab1c2d3e4f506172", 1_700_000_000_000_000
    day = 86_400_000_000
    story = ToldLedger((made + 40 * day, told(1.0, id=id)), retention=day)
    assert story.statuses == ["unmatched"]
    story.tell((made + 40 * day + 1, decided(id=id)))
    entry = story.ledger.entry(id)
    assert entry is not None
    assert entry.state == "rewarded"
    story.tell((made + 42 * day, settled(made + 42 * day)))
    assert story.ledger.entry(id) is None
    story.tell((made + 42 * day, told(2.0, "b", id=id)), (made + 42 * day, Void(id, 0)))
    assert story.statuses[-2:] == ["unmatched", "unmatched"]


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
    learner.fold_in()
    np.testing.assert_allclose(learner.weighting.pending.matrix, 4.0 * np.outer(ROWS[1], ROWS[1]))


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
