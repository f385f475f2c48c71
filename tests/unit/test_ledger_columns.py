"""Samples of a ledger, comparison of two ledgers, and their serialization."""

from __future__ import annotations

from typing import Any

import msgspec
import numpy as np
import pytest

from belated.core.events import Erased, Event, Overwritten, Record
from belated.core.ids import erased_key_of
from belated.core.rewards import Explicit
from belated.exceptions import HistoryUndone, InvalidInput
from belated.fold.decision_history import DecisionHistory
from belated.fold.evidence import sampled
from belated.fold.ledger import Ledger, NullListener
from belated.fold.packing import numbered, pack, unpack
from belated.fold.requests import check_keep
from belated.fold.rules import State, clamped_time
from belated.fold.undone import Undone
from belated.service.learning.refold import same_entries
from tests.unit.checked_ledger import VOID, WINDOW, CheckedLedger, decision, reward, settled

EVENTS: list[tuple[int, Event]] = [
    (1, decision(id="pending")),
    (2, decision(id="a")),
    (3, VOID),
    (4, decision(id="dormant", active=False)),
    (5, decision(id="plain")),
    (6, decision(id="parts")),
    (7, reward(0.5, id="plain")),
    (8, reward(1.0, "first", id="parts")),
    (9, reward(2.0, "second", id="parts")),
]


def test_a_sample_has_the_decisions_that_count() -> None:
    """Dormant and voided decisions are left out; the time of each reward is included."""
    ledger = CheckedLedger(*EVENTS).ledger
    sample = sampled(ledger, np.arange)
    assert sample.numbers.tolist() == [0, 3, 4]
    assert sample.state.tolist() == [State.PENDING, State.REWARDED, State.REWARDED]
    assert sample.recorded.tolist() == [1, 5, 6]
    assert sample.rewarded.tolist() == [-1, 7, 8]
    assert sample.value[1:].tolist() == [0.5, 2.0]
    assert (sample.now, sample.latest) == (8, 8)


def test_a_sample_has_the_chosen_decisions() -> None:
    """The sample of an empty ledger is empty."""
    ledger = CheckedLedger(*EVENTS, (30, settled(25))).ledger
    sample = sampled(ledger, lambda size: np.array([size - 1]))
    assert (sample.numbers.tolist(), sample.now) == ([4], 25)
    empty = sampled(CheckedLedger().ledger, np.arange)
    assert (len(empty.numbers), empty.now, empty.latest) == (0, 0, -1)


def test_the_same_records_make_the_same_entries() -> None:
    """Two ledgers with the same records compare equal."""
    first, second = CheckedLedger(*EVENTS).ledger, CheckedLedger(*EVENTS).ledger
    assert same_entries(first, second)


@pytest.mark.parametrize(
    "other",
    [
        EVENTS[:-1],  # another value
        [*EVENTS, (10, decision(id="more"))],
        [*EVENTS[:5], (6, decision(id="parts", at=3)), *EVENTS[6:]],  # another time
        [*EVENTS, (10, reward(1.0, id="plain"))],  # contradicts an earlier reward
        [*EVENTS, (10, reward(1.0, id="pending"))],
        [
            *EVENTS[:6],
            (20, reward(0.5, id="plain")),
            *((at + 20, event) for at, event in EVENTS[7:]),
        ],
    ],
)
def test_any_difference_is_detected(other: list[tuple[int, Event]]) -> None:
    """Differences in value, number, time, flags and state are detected from either side."""
    first, second = CheckedLedger(*EVENTS).ledger, CheckedLedger(*other).ledger
    assert not same_entries(first, second)
    assert not same_entries(second, first)


def packed() -> tuple[CheckedLedger, dict[str, bytes]]:
    """Return a ledger with data of every kind, and its pieces."""
    run = CheckedLedger(
        *EVENTS, (10, reward(1.0, id="nobody yet")), (40, settled(40)), rewards=Explicit(WINDOW),
        retention=20,
    )  # fmt: skip
    return run, pack(run.ledger)


def empty() -> Ledger:
    """Return an empty ledger."""
    return Ledger(Explicit(WINDOW), NullListener(), min_reward=-10.0, max_reward=10.0, retention=20)


def test_the_pieces_contain_the_whole_state() -> None:
    """A restored ledger behaves like the original."""
    run, pieces = packed()
    restored = empty()
    unpack(restored, pieces)
    assert (restored.digest, restored.counts, restored.counters) == (
        run.ledger.digest,
        run.ledger.counts,
        run.ledger.counters,
    )
    assert restored.watermark == run.ledger.watermark == 40
    assert pack(restored) == pieces
    events: list[tuple[int, Event]] = [
        (41, decision(id="nobody yet")),
        (42, decision(id="next")),
        (80, settled(80)),
    ]
    run.fold(*events)
    for n, (recorded, event) in enumerate(events, len(EVENTS) + 3):
        restored.fold(Record(0, n, recorded, event))
    assert (restored.digest, restored.counts) == (run.ledger.digest, run.ledger.counts)
    assert same_entries(restored, run.ledger)


def test_another_version_is_rejected() -> None:
    """The error names the version."""
    _, pieces = packed()
    head = msgspec.msgpack.decode(pieces["ledger"])
    head[0] += 1
    pieces["ledger"] = msgspec.msgpack.encode(head)
    with pytest.raises(InvalidInput, match=r"a ledger of version .* cannot be read"):
        unpack(empty(), pieces)


def test_pieces_are_in_the_order_of_their_numbers() -> None:
    """They are not in the order of their names."""
    pieces = {"lines 10": b"c", "lines 2": b"b", "ledger": b"", "lines 0": b"a", "rows 1": b"x"}
    assert numbered(pieces, "lines") == [b"a", b"b", b"c"]
    assert numbered(pieces, "facts") == []


def test_reserving_capacity_changes_nothing() -> None:
    """It changes neither the table nor the index."""
    run = CheckedLedger(*EVENTS)
    before = pack(run.ledger)
    run.ledger._table.reserve(100_000)
    run.ledger._index.reserve(100_000)
    assert len(run.ledger._table.cells) >= 100_005
    assert pack(run.ledger) == before
    run.fold((12, decision(id="more")), (13, reward(1.0, id="more")))
    assert run.entry("more").value == 1.0


def test_an_unknown_erasure_raises_with_its_position() -> None:
    """The journal can then be folded again; the ledger is unchanged."""
    ledger = CheckedLedger(*EVENTS).ledger
    before = pack(ledger)
    for event in (Erased(erased_key_of("a"), 0), Overwritten(erased_key_of("a"))):
        with pytest.raises(HistoryUndone) as error:
            ledger.fold(Record(0, 77, 50, event))
        assert (error.value.partition, error.value.position) == (0, 77)
    assert pack(ledger) == before


def test_times_are_limited_to_the_range_of_a_column() -> None:
    """The largest time has 63 bits."""
    assert [clamped_time(at) for at in (-5, 7, 1 << 70)] == [0, 7, (1 << 63) - 1]


@pytest.mark.parametrize(("keep", "held"), [(1, 1.0), (0, 0.0), (0.5, 0.5), ("auto", "auto")])
def test_a_share_of_requests_is_a_number_with_a_fraction(keep: Any, held: Any) -> None:
    """Integers are converted to floats."""
    share = check_keep(keep)
    assert (type(share), share) == (type(held), held)


def test_a_restored_ledger_has_the_same_decisions() -> None:
    """Each is looked up by its id."""
    run = CheckedLedger(*EVENTS)
    restored = Ledger(Explicit(WINDOW), NullListener(), min_reward=-10.0, max_reward=10.0)
    unpack(restored, pack(run.ledger))
    for id in ("pending", "a", "dormant", "plain", "parts"):
        assert restored.entry(id) == run.entry(id)
    assert restored.entry("nobody") is None


def test_the_history_of_one_decision() -> None:
    """It contains the decision's own records and their statuses; it is empty if it was erased."""
    history = DecisionHistory("plain", Explicit(WINDOW), min_reward=-10.0, max_reward=10.0)
    for n, (recorded, event) in enumerate(EVENTS, 1):
        history.take(Record(0, n, recorded, event))
    assert (history.state, history.value) == ("rewarded", 0.5)
    assert [status for _, status in history.records] == ["decided", "rewarded"]
    assert history.entry == CheckedLedger(*EVENTS).entry("plain")
    assert history.decision is EVENTS[4][1]
    undone = Undone([Record(0, 99, 60, Erased(erased_key_of("plain"), 60))])
    erased = DecisionHistory(
        "plain", Explicit(WINDOW), min_reward=-10.0, max_reward=10.0, undone=undone
    )
    for n, (recorded, event) in enumerate(EVENTS, 1):
        erased.take(Record(0, n, recorded, event))
    assert (erased.state, erased.records, erased.value) == ("erased", [], None)
