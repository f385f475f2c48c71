"""The ledger against the oracle: whatever happens, in whatever order, however often."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given, strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from belated.core.events import Decision, Erased, Event, Opaque, Record, Retracted, Reward, Settled
from belated.core.ids import erased_key_of
from belated.core.rewards import Explicit
from belated.exceptions import HistoryUndone
from belated.fold.packing import pack
from belated.fold.undone import Undone
from tests.laws.worlds import (
    START,
    Recorder,
    World,
    activations,
    check,
    decision_of,
    decisions,
    ids,
    offsets,
    plain,
    recorded,
    told,
    voids,
    worlds,
)


class LedgerMachine(RuleBasedStateMachine):
    """Records one by one, judged after each."""

    def __init__(self) -> None:
        super().__init__()
        self.now = START
        self.records: list[Record] = []
        self.statuses: list[str] = []
        self.recorder = Recorder()

    @initialize(world=worlds(size=0))
    def begin(self, world: World) -> None:
        """The semantics of this run."""
        self.oracle, self.ledger = world.oracle(), world.ledger(self.recorder)

    def fold(self, event: Event) -> None:
        """Tell both."""
        record = Record(0, len(self.records) + 1, self.now, event)
        self.records.append(record)
        self.oracle.apply_record(record)
        self.statuses.append(self.ledger.fold(record))

    @rule(gap=st.integers(1, 6))
    def wait(self, gap: int) -> None:
        """Time goes by."""
        self.now += gap

    @rule(decision=decisions)
    def decide(self, decision: Decision) -> None:
        """A decision, perhaps one of many under its id."""
        self.fold(decision)

    @rule(reward=plain | told)
    def reward(self, reward: Reward) -> None:
        """Some reward, valid or not."""
        self.fold(reward)

    @rule(event=st.one_of(activations, voids))
    def mark(self, event: Event) -> None:
        """An activation or a void."""
        self.fold(event)

    @rule(offset=offsets)
    def settle(self, offset: int) -> None:
        """Journal time is said to have come this far."""
        self.fold(Settled(0, self.now + offset))

    @rule(data=st.data())
    def again(self, data: st.DataObject) -> None:
        """Something that was there before."""
        if self.records:
            event = data.draw(st.sampled_from(self.records)).event
            assert not isinstance(event, Opaque)
            self.fold(event)

    @invariant()
    def agrees(self) -> None:
        """The ledger and the oracle agree."""
        if hasattr(self, "ledger"):
            check(self.ledger, self.recorder, self.oracle, self.records)


TestLedgerMachine = LedgerMachine.TestCase


@given(worlds())
def test_the_ledger_agrees_with_the_oracle_after_every_record(world: World) -> None:
    """In states, values, flags, counts, what is told to the learner and what is forgotten."""
    recorder = Recorder()
    ledger, oracle = world.ledger(recorder, []), world.oracle([])
    for count, record in enumerate(world.records, 1):
        oracle.apply_record(record)
        ledger.fold(record)
        check(ledger, recorder, oracle, world.records[:count])


spans = st.tuples(st.integers(-3, 30), st.integers(0, 12))
erasures = st.builds(lambda id: Erased(erased_key_of(id), 0), ids)
retractions = st.builds(
    lambda span, restored: Retracted(
        0, 0, START + span[0], START + span[0] + span[1], "feed", restored
    ),
    spans,
    st.sampled_from([False, False, True]),
)


@given(worlds(), st.lists(st.tuples(st.integers(0, 30), erasures | retractions), max_size=4))
def test_what_is_undone_counts_as_if_it_had_never_come(
    world: World, undoing: list[tuple[int, Event]]
) -> None:
    """By the oracle, which begins anew; and by a journal that never had it: digest and counts."""
    records = list(world.records)
    for position, event in undoing:
        at = min(position, len(records))
        stamp = records[at - 1].recorded if at else START
        records.insert(at, Record(0, 0, stamp, event))
    records = [msgspec.structs.replace(record, position=n) for n, record in enumerate(records, 1)]
    recorder = Recorder()
    ledger = world.ledger(recorder, records)
    check(ledger, recorder, world.oracle(records), records)
    undone = Undone.of(records)
    remaining = [
        record
        for record in records
        if not isinstance(record.event, Erased | Retracted)
        and (undone is None or undone.status_of(record) is None)
    ]
    reference = world.ledger(Recorder(), remaining)
    assert (ledger.digest, ledger.counts) == (reference.digest, reference.counts)


def test_what_undoes_is_not_folded_by_one_who_did_not_know_it() -> None:
    """Nothing is changed by it: the fold begins anew."""
    world = World(Explicit(), recorded([(1, decision_of("a", 0, 0))]))
    ledger = world.ledger(Recorder())
    before = pack(ledger)
    for event in (Erased(erased_key_of("a"), 5), Retracted(0, 5, 0, 9, "feed")):
        with pytest.raises(HistoryUndone, match="partition 0, position 2"):
            ledger.fold(Record(0, 2, 200, event))
    assert pack(ledger) == before
