"""A ledger in any order, in partitions, forgotten, saved: always the same."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from typing import Any

import msgspec
from hypothesis import assume, given, strategies as st

from belated.core.events import Activation, Decision, Event, Opaque, Record, Reward, Settled, Void
from belated.fold.packing import pack, unpack
from belated.fold.rules import State
from tests.laws.worlds import START, Recorder, World, check, counts_of, split, worlds
from tests.simulator.oracle import Outcome


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
        repeated = data.draw(st.lists(st.sampled_from(run), max_size=2))
        order += data.draw(st.permutations(run + repeated))
    return order


def agreeing(world: World) -> World:
    """The same without what contradicts: of one kind, part and revision only the first, often."""
    first: dict[tuple[Any, ...], Event | Opaque] = {}
    records = []
    for record in world.records:
        event = record.event
        if isinstance(event, Decision | Activation | Reward | Void):
            part_key = (event.part, event.revision) if isinstance(event, Reward) else ()
            event = first.setdefault((event.id, type(event), *part_key), event)
        records.append(msgspec.structs.replace(record, event=event))
    return dataclasses.replace(world, records=records)


@given(worlds().map(agreeing), st.data())
def test_compatible_records_of_one_time_may_arrive_in_any_order(
    world: World, data: st.DataObject
) -> None:
    """Between two Settled: what is settled and forgotten depends on where these stand."""
    assert state_of(world, shuffled(world, data)) == state_of(world)


@given(worlds(), st.sampled_from([2, 4, 64]))
def test_any_number_of_partitions_gives_the_same(world: World, partitions: int) -> None:
    """The digests add up modulo 2^128, and so do the counts."""
    states = [state_of(world, stream) for stream in split(world.records, partitions)]
    digest, counts = state_of(world)
    assert sum(part for part, _ in states) % 2**128 == digest
    assert {state: sum(part[state] for _, part in states) for state in counts} == counts


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
    remaining = [record for record in world.records if record is not left_out]
    full, partial = world.oracle(), world.oracle(remaining)
    same = sorted(map(repr, map(shown, [*full.forgotten, *full.entries.values()]))) == sorted(
        map(repr, map(shown, [*partial.forgotten, *partial.entries.values()]))
    )
    assert (state_of(world)[0] == state_of(world, remaining)[0]) == same


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
    remaining = ledger.counts[State.PENDING] + ledger.counts[State.DORMANT]
    assert remaining == len(oracle.entries)
    assert len(recorder.forgotten) == len(recorder.decisions) - remaining
    if not remaining:
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
