"""The ledger against the oracle: whatever happens, in whatever order, however often."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from belated import Bernoulli, DelayedUCB, Gaussian
from belated.estimators import Estimate, Laplace
from belated.events import (
    Activation,
    Decision,
    Erased,
    Event,
    Opaque,
    Record,
    Retracted,
    Reward,
    Settled,
    Void,
)
from belated.exceptions import HistoryUndone
from belated.families import Family
from belated.ids import key_of, partition_of
from belated.inputs import Matrix
from belated.learner import Learner, LearnerAdapter
from belated.ledger import Ledger, LedgerListener, State
from belated.ledger.packing import pack, unpack
from belated.ledger.table import EntryTable
from belated.ledger.undone import Undone
from belated.policies import Policy
from belated.rewards import ConversionsOnly, DefaultAfter, Explicit, Reduce, Rewards
from belated.statistics import Observations
from belated.testing import Oracle, Outcome
from belated.tuning import Tuning

# Two that the bandit made, alike in all that the index looks at, and two of callers.
IDS = ("018bcfe568007005ab1c2d3e4f506172", "018bcfe568007006ab1c2d3e4f506172", "order-17", "Ö")
ROWS = np.array([[1.0, 0.5], [-0.5, 1.0], [0.25, 0.75]], dtype=np.float32)
MEANS = (0.5, 0.25, 0.9)
NAN, INF = float("nan"), float("inf")
START = 100  # the first stamp
FORWARD = 10**6

#: A step of a world: how much time goes by, then an event; Settled by how far it is from the stamp.
Step = tuple[int, Event | int]


def decision_of(id: str, at: int, variant: int) -> Decision:
    """One of three decisions; the last of them is made dormant."""
    x, mean = ROWS[variant], MEANS[variant]
    return Decision(id, at, variant, variant, x, mean, 0.5, 1, activated=variant < 2)


ids = st.sampled_from([IDS[0], IDS[0], IDS[0], *IDS[1:]])
times = st.integers(0, 2)
decisions = st.builds(decision_of, ids, times, st.sampled_from([0, 0, 0, 1, 2]))
values = st.sampled_from([0.0, 1.0, 1.0, 0.25, -0.0, 0.5, -1.0, 2.0, 7e8, 9e8, 1e300, NAN, INF])
parts, revisions = st.sampled_from(["", "", "a", "b"]), st.sampled_from([0, 0, 1, 2])
reporters = st.sampled_from(["", "", "feed"])
told = st.builds(Reward, ids, times, values, parts, revisions, reporters)
plain = st.builds(Reward, ids, times, st.sampled_from([0.0, 1.0]))
activations, voids = st.builds(Activation, ids, times), st.builds(Void, ids, times)
offsets = st.sampled_from([0, 0, -1, -3, -8, 2, FORWARD])
gaps = st.sampled_from([0, 0, 1, 1, 2, 4])
calm: st.SearchStrategy[Event | int] = st.one_of(decisions, decisions, told, plain, offsets)
steps: st.SearchStrategy[Step] = st.tuples(
    gaps, st.one_of(calm, calm, calm, activations, st.one_of(voids, calm))
)
reduces: st.SearchStrategy[Reduce] = st.sampled_from(["latest", "sum", "max"])


@st.composite
def semantics(draw: st.DrawFn) -> Rewards:
    """What silence means."""
    reduce = draw(reduces)
    window = timedelta(microseconds=draw(st.sampled_from([3, 1, 8])))
    kind = draw(st.sampled_from([Explicit, DefaultAfter, ConversionsOnly, None]))
    if kind is None:
        return Explicit(reduce=reduce)
    if kind is DefaultAfter:
        return DefaultAfter(window, reduce=reduce, value=draw(st.sampled_from([0.0, 0.25])))
    return kind(window, reduce=reduce)


@dataclass(frozen=True)
class World:
    """Records of one partition, and how they are to be read."""

    rewards: Rewards
    records: list[Record]
    retention: int | None = None
    min_reward: float = -1e9
    max_reward: float = 1e9

    def oracle(self, records: Iterable[Record] | None = None) -> Oracle:
        """The oracle of this world, told these records or its own."""
        given = self.records if records is None else records
        bounds: dict[str, Any] = {"min_reward": self.min_reward, "max_reward": self.max_reward}
        return Oracle(given, rewards=self.rewards, retention=self.retention, **bounds)

    def ledger(self, changes: LedgerListener, records: Iterable[Record] | None = None) -> Ledger:
        """A ledger of this world, told these records or its own."""
        ledger = Ledger(
            self.rewards,
            changes,
            min_reward=self.min_reward,
            max_reward=self.max_reward,
            retention=self.retention,
            tuning=Tuning(dropped=1),  # forgotten decisions leave at once
        )
        given = list(self.records if records is None else records)
        ledger.undone = Undone.of(given)
        for record in given:
            ledger.fold(record)
        return ledger


def recorded(steps: Iterable[Step]) -> list[Record]:
    """The records of these steps."""
    records: list[Record] = []
    now = START
    for position, (gap, what) in enumerate(steps, 1):
        now += gap
        event = Settled(0, now + what) if isinstance(what, int) else what
        records.append(Record(0, position, now, event))
    return records


@st.composite
def worlds(
    draw: st.DrawFn,
    retained: bool | None = None,
    bounds: tuple[float, float] | None = None,
    size: int = 30,
) -> World:
    """Few decisions, and everything that can happen to them."""
    rewards = draw(semantics())
    if retained is None:
        retained = draw(st.booleans())
    retention = draw(st.integers(0, 4)) + (rewards.window_us or 3) if retained else None
    min_reward, max_reward = (
        draw(st.sampled_from([(0.0, 1.0), (-1e9, 1e9)])) if bounds is None else bounds
    )
    many = draw(st.sampled_from([0, size // 2]))
    happened = draw(st.lists(steps, min_size=many, max_size=size))
    return World(rewards, recorded(happened), retention, min_reward, max_reward)


class Recorder:
    """Keeps what the ledger tells, and refuses what cannot be."""

    def __init__(self) -> None:
        self.table = EntryTable()
        self.decisions: list[Decision] = []
        self.values: dict[int, float] = {}
        self.pending: set[int] = set()
        self.expected: set[int] = set()
        self.forgotten: set[int] = set()

    def enter(self, number: int, decision: Decision, expected: bool = False) -> None:
        """A new one, or another one under the same number while nothing is expected of it."""
        if number == len(self.decisions):
            self.decisions.append(decision)
        else:
            self._check_known(number)
            assert number not in self.pending
            assert number not in self.values
            self.decisions[number] = decision
        if expected:
            self.add_pending(number)

    def add_pending(self, number: int, again: bool = False) -> None:
        """It is neither pending nor learned."""
        self._check_known(number)
        assert number not in self.pending
        assert number not in self.values
        self.pending.add(number)
        self.expected.add(number)

    def remove_pending(self, number: int) -> None:
        """It is pending."""
        self._check_known(number)
        self.pending.remove(number)

    def learn(self, number: int, value: float) -> None:
        """It is pending."""
        self._check_known(number)
        self.pending.remove(number)
        self.values[number] = value

    def revise(self, number: int, value: float) -> None:
        """It is learned, with another value."""
        self._check_known(number)
        assert self.values[number] != value
        self.values[number] = value

    def retract(self, number: int) -> None:
        """It is learned."""
        self._check_known(number)
        del self.values[number]

    def forget(self, number: int) -> None:
        """It is not pending."""
        self._check_known(number)
        assert number not in self.pending
        self.forgotten.add(number)

    def _check_known(self, number: int) -> None:
        assert self.table.base <= number < len(self.decisions)
        assert self.forgotten.issuperset(range(self.table.base))
        assert number not in self.forgotten

    def observed(self, *, remembered: bool) -> list[tuple[str, float]]:
        """Ids and values that are learned, those of forgotten decisions or of the others."""
        return sorted(
            (self.decisions[number].id, value + 0.0)
            for number, value in self.values.items()
            if (number not in self.forgotten) == remembered
        )


def counts_of(ledger: Ledger) -> dict[str, int]:
    """The counts by the names of the states."""
    return {state.name.lower(): ledger.counts[state] for state in State}


def check(ledger: Ledger, recorder: Recorder, oracle: Oracle, records: Sequence[Record]) -> None:
    """All that can be asked of the ledger is as the oracle says."""
    entries = oracle.entries
    for id in IDS:
        entry, outcome = ledger.entry(id), entries.get(id)
        if outcome is None:
            assert entry is None
            continue
        assert entry is not None
        found = (entry.state, entry.value, entry.late, entry.conflict)
        assert found == (outcome.state, outcome.value, outcome.late, outcome.conflict)
        assert (entry.recorded_us, entry.due_us) == (outcome.recorded, outcome.due)
        assert recorder.decisions[ledger.find(id)] == outcome.decision
        there = {record.position: record.event for record in records}
        assert there[entry.position] == outcome.decision
    counts = counts_of(ledger)
    assert counts == oracle.counts
    assert sum(counts.values()) == len(entries) + len(oracle.forgotten)
    # G_t counts the pending ones only.
    assert {key for key, _ in ledger.pending()} == {key_of(id) for id in oracle.pending}
    assert ledger.counts[State.PENDING] == len(oracle.pending) == len(recorder.pending)
    assert {recorder.decisions[number].id for number in recorder.pending} == oracle.pending
    # What is learned.
    assert recorder.observed(remembered=True) == sorted(
        (id, value + 0.0) for id, value in oracle.observed.items()
    )
    assert recorder.observed(remembered=False) == sorted(
        (one.decision.id, one.value + 0.0) for one in oracle.forgotten if one.value is not None
    )
    # Every event has one status, also after it was taken up or given up.
    assert min(ledger.counters.values(), default=0) >= 0
    assert sum(ledger.counters.values()) == len(records)
    assert ledger.counters["unmatched"] == oracle.unmatched
    assert ledger.counters["orphaned"] == oracle.orphaned
    # Forgotten.
    assert ledger.watermark == oracle.watermark
    assert len(recorder.forgotten) == len(oracle.forgotten)
    unsettled = [one.due for one in entries.values() if one.state in ("dormant", "pending")]
    if ledger.rewards.window is not None and unsettled:
        assert ledger.due is not None
        assert ledger.due <= min(due for due in unsettled if due is not None)


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
erasures = st.builds(lambda id: Erased(key_of(id), 0), ids)
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
    for place, event in undoing:
        at = min(place, len(records))
        stamp = records[at - 1].recorded if at else START
        records.insert(at, Record(0, 0, stamp, event))
    records = [msgspec.structs.replace(one, position=n) for n, one in enumerate(records, 1)]
    recorder = Recorder()
    ledger = world.ledger(recorder, records)
    check(ledger, recorder, world.oracle(records), records)
    undone = Undone.of(records)
    never = [
        one
        for one in records
        if not isinstance(one.event, Erased | Retracted)
        and (undone is None or undone.status_of(one) is None)
    ]
    without = world.ledger(Recorder(), never)
    assert (ledger.digest, ledger.counts) == (without.digest, without.counts)


def test_what_undoes_is_not_folded_by_one_who_did_not_know_it() -> None:
    """Nothing is changed by it: the fold begins anew."""
    world = World(Explicit(), recorded([(1, decision_of("a", 0, 0))]))
    ledger = world.ledger(Recorder())
    before = pack(ledger)
    for event in (Erased(key_of("a"), 5), Retracted(0, 5, 0, 9, "feed")):
        with pytest.raises(HistoryUndone, match="partition 0, position 2"):
            ledger.fold(Record(0, 2, 200, event))
    assert pack(ledger) == before


def state_of(world: World, records: Iterable[Record] | None = None) -> tuple[int, dict[str, int]]:
    """The digest and the counts."""
    ledger = world.ledger(Recorder(), records)
    return ledger.digest, counts_of(ledger)


def shuffled(world: World, data: st.DataObject) -> list[Record]:
    """Another order, and some twice: among records of one stamp, none of which is Settled."""
    runs: list[list[Record]] = []
    fixed = True  # whether the next record begins a run
    for record in world.records:
        settled = isinstance(record.event, Settled)
        if fixed or settled or runs[-1][-1].recorded < record.recorded:
            runs.append([])
        runs[-1].append(record)
        fixed = settled
    order: list[Record] = []
    for run in runs:
        again = data.draw(st.lists(st.sampled_from(run), max_size=2))
        order += data.draw(st.permutations(run + again))
    return order


def agreeing(world: World) -> World:
    """The same without what contradicts: of one kind, part and revision only the first, often."""
    first: dict[tuple[Any, ...], Event | Opaque] = {}
    records = []
    for record in world.records:
        event = record.event
        if isinstance(event, Decision | Activation | Reward | Void):
            place = (event.part, event.revision) if isinstance(event, Reward) else ()
            event = first.setdefault((event.id, type(event), *place), event)
        records.append(msgspec.structs.replace(record, event=event))
    return dataclasses.replace(world, records=records)


@given(worlds().map(agreeing), st.data())
def test_where_nothing_contradicts_records_of_one_time_may_come_in_any_order(
    world: World, data: st.DataObject
) -> None:
    """Between two Settled: what is settled and forgotten depends on where these stand."""
    assert state_of(world, shuffled(world, data)) == state_of(world)


def split(records: Iterable[Record], partitions: int) -> list[list[Record]]:
    """The records as a journal of so many partitions has them; Settled is in each."""
    streams: list[list[Record]] = [[] for _ in range(partitions)]
    for record in records:
        event = record.event
        if isinstance(event, Settled):
            for partition, stream in enumerate(streams):
                copy = Settled(partition, event.until)
                stream.append(Record(partition, record.position, record.recorded, copy))
        else:
            assert isinstance(event, Decision | Activation | Reward | Void)
            partition = partition_of(key_of(event.id), partitions)
            streams[partition].append(Record(partition, record.position, record.recorded, event))
    return streams


@given(worlds(), st.sampled_from([2, 4, 64]))
def test_any_number_of_partitions_gives_the_same(world: World, partitions: int) -> None:
    """The digests add up modulo 2^128, and so do the counts."""
    apart = [state_of(world, stream) for stream in split(world.records, partitions)]
    digest, counts = state_of(world)
    assert sum(one for one, _ in apart) % 2**128 == digest
    assert {state: sum(one[state] for _, one in apart) for state in counts} == counts


def shown(outcome: Outcome) -> tuple[Any, ...]:
    """What a digest is of."""
    value = None if outcome.value is None else outcome.value + 0.0
    return (
        outcome.decision.id,
        outcome.decision.at_us,
        outcome.state,
        value,
        outcome.late,
        outcome.conflict,
    )


@given(worlds(), st.data())
def test_a_digest_is_shared_if_and_only_if_the_entries_are(
    world: World, data: st.DataObject
) -> None:
    """With one record left out, and with none."""
    assume(world.records)
    left_out = data.draw(st.sampled_from(world.records))
    rest = [record for record in world.records if record is not left_out]
    one, other = world.oracle(), world.oracle(rest)
    same = sorted(map(repr, map(shown, [*one.forgotten, *one.entries.values()]))) == sorted(
        map(repr, map(shown, [*other.forgotten, *other.entries.values()]))
    )
    assert (state_of(world)[0] == state_of(world, rest)[0]) == same


@given(worlds())
def test_settling_whenever_something_is_due_comes_to_an_end(world: World) -> None:
    """After `due` is settled it is later, or None; then nothing with a window is out."""
    ledger = world.ledger(Recorder())
    position = len(world.records)
    while (due := ledger.due) is not None:
        position += 1
        assert position < len(world.records) + 20
        ledger.fold(Record(0, position, max(due, START + 10**4), Settled(0, due)))
        assert ledger.due is None or ledger.due > due
    if world.rewards.window is not None:
        assert ledger.counts[State.PENDING] == ledger.counts[State.DORMANT] == 0


@given(worlds(retained=True))
def test_what_is_forgotten_leaves_memory_and_stays_counted(world: World) -> None:
    """After a time longer than the retention; only what is still waited for remains."""
    recorder = Recorder()
    ledger = world.ledger(recorder)
    digest, counts, events = ledger.digest, counts_of(ledger), sum(ledger.counters.values())
    assert world.retention is not None
    end = START + 10**4
    ledger.fold(Record(0, 10**6, end, Settled(0, START + 10**3)))
    oracle = world.oracle([*world.records, Record(0, 10**6, end, Settled(0, START + 10**3))])
    if world.rewards.window is None:
        assert (ledger.digest, counts_of(ledger)) == (digest, counts)
    assert counts_of(ledger) == oracle.counts
    assert sum(counts.values()) == sum(counts_of(ledger).values())
    assert sum(ledger.counters.values()) == events + 1
    assert ledger.counters["unmatched"] == 0
    left = ledger.counts[State.PENDING] + ledger.counts[State.DORMANT]
    assert left == len(oracle.entries)
    assert len(recorder.forgotten) == len(recorder.decisions) - left
    if not left:
        assert recorder.table.base == len(recorder.decisions)
        assert len(ledger._table) == len(ledger._facts) == 0


@given(worlds(), st.data())
def test_a_ledger_goes_on_from_its_pieces_as_if_nothing_had_been(
    world: World, data: st.DataObject
) -> None:
    """Packed and unpacked after any record, it ends as the one that was not."""
    cut = data.draw(st.integers(0, len(world.records)))
    recorder = Recorder()
    straight = world.ledger(Recorder())
    first = world.ledger(recorder, world.records[:cut])
    second = world.ledger(recorder, [])
    unpack(second, pack(first))
    for record in world.records[cut:]:
        second.fold(record)
    assert second.digest == straight.digest
    assert second.counts == straight.counts
    assert +second.counters == +straight.counters
    check(second, recorder, world.oracle(), world.records)


# --- what is learned -----------------------------------------------------------------------------

GAUSSIAN, BERNOULLI = Gaussian(0.25), Bernoulli()
TOLERANCE = {GAUSSIAN: 1e-9, BERNOULLI: 1e-6}
every_family = pytest.mark.parametrize("family", [GAUSSIAN, BERNOULLI], ids=repr)


@st.composite
def learnable(draw: st.DrawFn, family: Family) -> World:
    """Worlds whose rewards the family takes."""
    if isinstance(family, Gaussian):
        return draw(worlds(bounds=(-10.0, 10.0)))
    return draw(worlds(bounds=(0.0, 1.0)))


def policy_of(family: Family) -> Policy:
    """Some policy that learns."""
    return DelayedUCB(2, family)


def fitted(policy: Policy, outcomes: Sequence[Outcome]) -> Estimate:
    """A fresh fit of what is learned, a sum of parts held at the support."""
    seen, support = Observations(policy.dim), policy.family.support
    rows = np.array([one.decision.x for one in outcomes], dtype=np.float32)
    values = np.array([one.value for one in outcomes], dtype=np.float64)
    seen.extend(rows.reshape(-1, policy.dim), values.clip(support.lower, support.upper))
    return Laplace().fit(seen, family=policy.family, prior=policy.start)


def pending_of(learner: Learner) -> Matrix:
    """The information of what is pending, all of it folded in."""
    learner._fold()
    return learner._pending.matrix


def check_learner(learner: Learner, oracle: Oracle) -> None:
    """Counts, estimate and pending information are those of what the oracle says."""
    policy, learned, entries = learner.policy, oracle.learned, oracle.entries
    assert learner.model.pending == oracle.counts["pending"]
    assert learner.model.n == learner.observed.n == len(learned)
    assert len(learned) == oracle.counts["rewarded"] + oracle.counts["defaulted"]
    expected = fitted(policy, learned)
    tolerance = TOLERANCE[policy.family]
    np.testing.assert_allclose(learner.estimate.theta, expected.theta, atol=tolerance)
    np.testing.assert_allclose(learner.estimate.precision, expected.precision, atol=1e-6)
    information = np.zeros((2, 2))
    for id in oracle.pending:
        x = entries[id].decision.x.astype(np.float64)
        weight = policy.family.slope_at(entries[id].decision.mean) / learner.model.dispersion
        information += weight * np.outer(x, x)
    np.testing.assert_allclose(pending_of(learner), information, atol=1e-9)


@every_family
@given(data=st.data())
def test_the_learner_holds_what_the_oracle_says(family: Family, data: st.DataObject) -> None:
    """After any records, one by one or in bulk, in one lane or in several."""
    world = data.draw(learnable(family))
    partitions, bulk = data.draw(st.sampled_from([1, 4])), data.draw(st.booleans())
    learner = Learner(policy_of(family), partitions=partitions)
    streams = split(world.records, partitions)

    def fold() -> None:
        for partition, stream in enumerate(streams):
            world.ledger(LearnerAdapter(learner, partition), stream)

    if bulk:
        with learner.bulk():
            fold()
    else:
        fold()
    check_learner(learner, world.oracle())


def truth_of(oracle: Oracle) -> list[Record]:
    """What would have been said if everybody had known the end from the beginning."""
    events: list[Event] = []
    for one in (*oracle.forgotten, *oracle.entries.values()):
        decision = msgspec.structs.replace(
            one.decision, id=f"truth-{len(events)}", activated=one.state != "dormant"
        )
        events.append(decision)
        if one.value is not None:
            events.append(Reward(decision.id, 0, one.value))
        elif one.state in ("censored", "voided"):
            events.append(Void(decision.id, 0))
    return [Record(0, position, START, event) for position, event in enumerate(events, 1)]


@every_family
@given(data=st.data())
def test_to_be_put_right_is_never_to_have_been_wrong(family: Family, data: st.DataObject) -> None:
    """The estimate is that of a ledger which heard of nothing but the final truth."""
    world = data.draw(learnable(family))
    corrected, right = Learner(policy_of(family)), Learner(policy_of(family))
    world.ledger(LearnerAdapter(corrected))
    truth = World(Explicit(), truth_of(world.oracle()))
    truth.ledger(LearnerAdapter(right))
    one, other = corrected.estimate, right.estimate
    assert (one.n, corrected.model.pending) == (other.n, right.model.pending)
    np.testing.assert_allclose(one.theta, other.theta, atol=TOLERANCE[family])
    np.testing.assert_allclose(pending_of(corrected), pending_of(right), atol=1e-9)
