"""Forgetting of settled decisions, and queries of the ledger."""

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
from tests.unit.checked_ledger import (
    ACTIVATION,
    VOID,
    WINDOW,
    CheckedLedger,
    X,
    decision,
    reward,
    settled,
)

# --- forgetting --------------------------------------------------------------------------------


def test_a_settled_decision_is_forgotten_after_the_retention_and_stays_counted() -> None:
    """It is forgotten strictly after it, by the watermark; later rewards become orphaned."""
    run = CheckedLedger((20, decision()), (21, reward(1.0)), (60, settled(40)), retention=20)
    assert run.state == "rewarded"
    digest = run.ledger.digest
    run.fold((60, settled(41)))
    assert run.ledger.entry("a") is None
    assert run.ledger.counts == [0, 0, 1, 0, 0, 0]
    assert run.ledger.digest == digest
    run.fold((61, reward(2.0, "", 1)), (100, settled(81)))
    assert run.statuses[-2:] == ["unmatched", "settled"]
    assert run.ledger.counters["unmatched"] == 1
    run.fold((100, settled(82)))
    assert (run.ledger.counters["unmatched"], run.ledger.counters["orphaned"]) == (0, 1)


def test_the_time_inside_an_id_says_nothing_about_the_retention() -> None:
    """A reward that precedes its decision is stored, even if the id looks too old."""
    id, created = "018bcfe568007005ab1c2d3e4f506172", 1_700_000_000_000_000
    day = 86_400_000_000
    run = CheckedLedger((created + 40 * day, reward(1.0, id=id)), retention=day)
    assert run.statuses == ["unmatched"]
    run.fold((created + 40 * day + 1, decision(id=id)))
    entry = run.ledger.entry(id)
    assert entry is not None
    assert entry.state == "rewarded"
    run.fold((created + 42 * day, settled(created + 42 * day)))
    assert run.ledger.entry(id) is None
    run.fold((created + 42 * day, reward(2.0, "b", id=id)), (created + 42 * day, Void(id, 0)))
    assert run.statuses[-2:] == ["unmatched", "unmatched"]


def test_a_pending_decision_is_not_forgotten() -> None:
    """It is forgotten once it is voided and the watermark advances."""
    run = CheckedLedger((20, decision()), (60, settled(60)), rewards=Explicit(), retention=20)
    assert run.state == "pending"
    run.fold((61, VOID), (62, settled(62)))
    assert run.ledger.entry("a") is None
    assert run.ledger.counts == [0, 0, 0, 0, 0, 1]


def test_the_window_of_a_forgotten_decision_does_not_end() -> None:
    """A window that an activation has moved may end after the retention."""
    run = CheckedLedger((20, decision()), (28, ACTIVATION), (29, reward(1.0, "a")), retention=10)
    run.fold((31, settled(31)))
    assert run.ledger.entry("a") is None
    digest = run.ledger.digest
    run.fold((38, settled(38)))
    assert (run.ledger.counts, run.ledger.digest) == ([0, 0, 1, 0, 0, 0], digest)


def test_a_decision_whose_early_reward_was_orphaned_is_pending() -> None:
    """The reward was dropped when the retention ended."""
    run = CheckedLedger((20, reward(1.0)), (60, settled(41)), (61, decision()), retention=20)
    assert run.ledger.counters["orphaned"] == 1
    assert run.state == "pending"


def test_forgotten_decisions_leave_memory_in_blocks() -> None:
    """They leave a thousand at a time, except for those behind a pending decision."""
    run = CheckedLedger(rewards=Explicit(), retention=5)
    for i in range(3000):
        run.ledger.fold(Record(0, i, 20, decision(id=f"id-{i}")))
    for i in range(3000):
        if i != 2000:
            run.ledger.fold(Record(0, i, 20, reward(1.0, id=f"id-{i}")))
    digest = run.ledger.digest
    run.ledger.fold(Record(0, 9000, 100, settled(100)))
    assert len(run.ledger._table) == 1000
    assert run.ledger.counts == [0, 1, 2999, 0, 0, 0]
    assert run.ledger.digest == digest
    assert run.entry("id-2000").state == "pending"
    run.ledger.fold(Record(0, 9001, 101, Void("id-2000", 0)))
    run.ledger.fold(Record(0, 9002, 101, settled(101)))
    assert len(run.ledger._table) == 1000  # fewer than 1024 at the front
    assert run.ledger.counts == [0, 0, 2999, 0, 0, 1]


# --- queries -----------------------------------------------------------------------------------


def test_an_unknown_event_halts_the_fold_and_changes_nothing() -> None:
    """The error names the position and the kind."""
    run = CheckedLedger((20, decision()), (21, reward(1.0, id="b")))
    before = pack(run.ledger)
    data = bytes([2]) + msgspec.msgpack.encode([77, "a"])
    with pytest.raises(UnknownEvent, match=r"in partition 3 at position 9 \(kind 77\)") as error:
        run.ledger.fold(Record(3, 9, 22, Opaque(data)))
    assert (error.value.place, error.value.kind) == ((3, 9), 77)
    with pytest.raises(UnknownEvent, match="codec version 99") as error:
        run.ledger.fold(Record(3, 9, 22, Opaque(bytes([99]))))
    assert error.value.version == 99
    assert pack(run.ledger) == before


def test_the_status_of_a_reward_can_be_queried_before() -> None:
    """The query changes nothing."""
    run = CheckedLedger((20, decision()))
    digest, meaning_of = run.ledger.digest, run.ledger.meaning
    assert (meaning_of(reward(1.0)), meaning_of(reward(1.0, id="b"))) == ("rewarded", "unmatched")
    assert run.ledger.digest == digest
    run.fold((21, reward(1.0)))
    assert [meaning_of(reward(1.0)), meaning_of(reward(2.0))] == ["duplicate", "conflict"]
    assert [meaning_of(reward(2.0, "", 1)), meaning_of(reward(2.0, "b"))] == ["revised", "revised"]
    run.fold((22, VOID))
    assert meaning_of(reward(1.0)) == "voided"


def test_the_entry_of_an_unknown_id_is_none() -> None:
    """Rewards without a decision do not create an entry."""
    run = CheckedLedger((20, reward(1.0)))
    assert run.ledger.entry("a") is None
    assert run.ledger.find("a") == -1


def test_an_entry_has_its_rewards() -> None:
    """It has the reward that counts for each part."""
    run = CheckedLedger((20, decision()), (21, reward(1.0, at=3)))
    [first] = run.entry().reported
    assert (first.recorded_us, first.at_us, first.value) == (21, 3, 1.0)
    run.fold((22, reward(2.0, "", 1)))
    assert [part.value for part in run.entry().reported] == [2.0]


def test_pending_decisions_are_listed_with_their_timestamps() -> None:
    """The oldest is first."""
    run = CheckedLedger(
        (20, decision(id="b")), (21, decision(id="c")), (22, decision()), (23, VOID)
    )
    assert [recorded for _, recorded in run.ledger.pending()] == [20, 21]
    assert run.ledger.numbers(State.PENDING).tolist() == [0, 1]
    assert run.ledger.numbers(State.VOIDED) == [2]


def test_a_sum_of_parts_outside_the_support_is_limited_when_it_is_learned() -> None:
    """Each part is a valid Bernoulli reward; their sum is learned as 1."""
    learner = Learner(DelayedUCB(2, Bernoulli()))
    ledger = Ledger(Explicit(reduce="sum"), LearnerAdapter(learner), min_reward=0.0, max_reward=1.0)
    events: list[Event] = [decision(), reward(1.0, "a"), reward(1.0, "b")]
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
        [(20, decision(which=1, active=False)), (21, decision(at=1)), (22, ACTIVATION)],
        [
            (20, decision(which=1, active=False)),
            (20, decision(id="b")),
            (20, Void("b", 0)),
            (30, settled(30)),
            (31, ACTIVATION),
        ],
    ],
    ids=["dormant, contradicted, activated", "dormant, voided, activated"],
)
def test_a_decision_has_the_same_weight_however_it_became_pending(
    events: list[tuple[int, Event]],
) -> None:
    """Its weight is one over the dispersion, and it counts once (a regression)."""
    learner = Learner(DelayedUCB(2, Gaussian(0.25)))
    ledger = Ledger(Explicit(WINDOW), LearnerAdapter(learner), min_reward=0.0, max_reward=1.0)
    for position, (recorded, event) in enumerate(events, 1):
        ledger.fold(Record(0, position, recorded, event))
    assert ledger.numbers(State.PENDING) == [0]
    learner.fold_in()
    np.testing.assert_allclose(learner.weighting.pending.matrix, 4.0 * np.outer(ROWS[1], ROWS[1]))


def test_the_rows_of_forgotten_decisions_are_freed() -> None:
    """Their places are reused, whether or not they were learned."""
    learner = Learner(DelayedUCB(2, Gaussian()))
    account = LearnerAdapter(learner)
    ledger = Ledger(Explicit(WINDOW), account, min_reward=0.0, max_reward=1.0, retention=10)
    for i in range(50):
        now = 20 + 100 * i
        ledger.fold(Record(0, 1, now, decision(id=f"silent-{i}")))
        ledger.fold(Record(0, 2, now, decision(id=f"told-{i}")))
        ledger.fold(Record(0, 3, now, reward(1.0, id=f"told-{i}")))
        ledger.fold(Record(0, 4, now + 50, settled(now + 50)))
    assert ledger.counts == [0, 0, 50, 0, 50, 0]
    assert account._rows.used == 2  # one of each is there at a time


@pytest.mark.parametrize(
    ("events", "decisions"),
    [
        ([(20, decision(active=False)), (30, settled(30)), (31, reward(1.0))], 1),
    ],
)
def test_a_decision_is_counted_once_however_often_it_becomes_pending(
    events: list[tuple[int, Event]], decisions: int
) -> None:
    """It is counted when it becomes pending for the first time."""
    learner = Learner(DelayedUCB(2, Gaussian()))
    ledger = Ledger(Explicit(WINDOW), LearnerAdapter(learner), min_reward=0.0, max_reward=1.0)
    for position, (recorded, event) in enumerate(events, 1):
        ledger.fold(Record(0, position, recorded, event))
    assert learner.model.decisions == decisions


@pytest.mark.parametrize("at", [-5, 1 << 63, (1 << 64) - 1])
def test_no_clock_stops_the_fold(at: int) -> None:
    """A time that does not fit into a column is replaced by the nearest that does."""
    ledger = Ledger(Explicit(WINDOW), NullListener(), min_reward=0.0, max_reward=1.0)
    events: list[Event] = [decision(at=at), reward(1.0, at=at), reward(1.0, at=at)]
    statuses = [ledger.fold(Record(0, n, 20 + n, event)) for n, event in enumerate(events, 1)]
    assert statuses == ["decided", "rewarded", "duplicate"]


def test_events_that_preceded_their_decision_are_removed_once_it_arrives() -> None:
    """They are removed even if there is no retention."""
    ledger = Ledger(Explicit(WINDOW), NullListener(), min_reward=0.0, max_reward=1.0)
    for i in range(1000):
        ledger.fold(Record(0, 2 * i + 1, 20 + i, reward(1.0, id=f"a{i}")))
        ledger.fold(Record(0, 2 * i + 2, 20 + i, decision(id=f"a{i}")))
    assert not ledger._unmatched.ids
