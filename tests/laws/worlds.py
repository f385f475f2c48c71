"""Journals drawn by hypothesis, and a recorder that holds a ledger against the oracle."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import numpy as np
from hypothesis import strategies as st

from belated.core.events import Activation, Decision, Event, Record, Reward, Settled, Void
from belated.core.ids import key_of, partition_of
from belated.core.rewards import ConversionsOnly, DefaultAfter, Explicit, Reduce, Rewards
from belated.core.tuning import Tuning
from belated.fold.ledger import Ledger, LedgerListener
from belated.fold.rules import State
from belated.fold.table import EntryTable
from belated.fold.undone import Undone
from tests.simulator.oracle import Oracle

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
        source = self.records if records is None else records
        bounds: dict[str, Any] = {"min_reward": self.min_reward, "max_reward": self.max_reward}
        return Oracle(source, rewards=self.rewards, retention=self.retention, **bounds)

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
        source = list(self.records if records is None else records)
        ledger.undone = Undone.of(source)
        for record in source:
            ledger.fold(record)
        return ledger


def recorded(steps: Iterable[Step]) -> list[Record]:
    """The records of these steps."""
    records: list[Record] = []
    now = START
    for position, (gap, step) in enumerate(steps, 1):
        now += gap
        event = Settled(0, now + step) if isinstance(step, int) else step
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
    min_steps = draw(st.sampled_from([0, size // 2]))
    drawn = draw(st.lists(steps, min_size=min_steps, max_size=size))
    return World(rewards, recorded(drawn), retention, min_reward, max_reward)


class Recorder:
    """Keeps what the ledger tells, and refuses what cannot be."""

    def __init__(self) -> None:
        self.table = EntryTable()
        self.decisions: list[Decision] = []
        self.values: dict[int, float] = {}
        self.pending: set[int] = set()
        self.expected: set[int] = set()
        self.forgotten: set[int] = set()

    def enter(self, number: int, decision: Decision, expected: bool) -> None:
        """A new one, or another one under the same number while nothing is expected of it."""
        if number == len(self.decisions):
            self.decisions.append(decision)
        else:
            self._check_known(number)
            assert number not in self.pending
            assert number not in self.values
            self.decisions[number] = decision
        if expected:
            self.add_pending(number, self.table.recorded[number], False)

    def add_pending(self, number: int, began: int, again: bool) -> None:
        """It is neither pending nor learned."""
        self._check_known(number)
        assert number not in self.pending
        assert number not in self.values
        self.pending.add(number)
        self.expected.add(number)

    def remove_pending(self, number: int, began: int) -> None:
        """It is pending."""
        self._check_known(number)
        self.pending.remove(number)

    def learn(self, number: int, value: float, began: int, recorded: int) -> None:
        """It is pending."""
        self._check_known(number)
        self.pending.remove(number)
        self.values[number] = value

    def revise(self, number: int, value: float, recorded: int) -> None:
        """It is learned, with another value."""
        self._check_known(number)
        assert self.values[number] != value
        self.values[number] = value

    def retract(self, number: int, recorded: int) -> None:
        """It is learned."""
        self._check_known(number)
        del self.values[number]

    def move(self, number: int, before: int, began: int) -> None:
        """It is pending or learned."""
        self._check_known(number)
        assert number in self.pending or number in self.values

    def finish(self, recorded: int) -> None:
        """Nothing."""

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
        actual = (entry.state, entry.value, entry.late, entry.conflict)
        assert actual == (outcome.state, outcome.value, outcome.late, outcome.conflict)
        assert (entry.recorded_us, entry.due_us) == (outcome.recorded, outcome.due)
        assert recorder.decisions[ledger.find(id)] == outcome.decision
        events = {record.position: record.event for record in records}
        assert events[entry.position] == outcome.decision
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
        (forgotten.decision.id, forgotten.value + 0.0)
        for forgotten in oracle.forgotten
        if forgotten.value is not None
    )
    # Every event has one status, also after it was taken up or given up.
    assert min(ledger.counters.values(), default=0) >= 0
    assert sum(ledger.counters.values()) == len(records)
    assert ledger.counters["unmatched"] == oracle.unmatched
    assert ledger.counters["orphaned"] == oracle.orphaned
    # Forgotten.
    assert ledger.watermark == oracle.watermark
    assert len(recorder.forgotten) == len(oracle.forgotten)
    deadlines = [
        open_entry.due
        for open_entry in entries.values()
        if open_entry.state in ("dormant", "pending")
    ]
    if ledger.rewards.window is not None and deadlines:
        assert ledger.due is not None
        assert ledger.due <= min(due for due in deadlines if due is not None)


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
