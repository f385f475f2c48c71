"""A ledger read by its columns: samples of it, whether two are the same, and as bytes."""

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
from tests.unit.told_ledger import GONE, WINDOW, ToldLedger, decided, settled, told

EVENTS: list[tuple[int, Event]] = [
    (1, decided(id="pending")),
    (2, decided(id="a")),
    (3, GONE),
    (4, decided(id="dormant", active=False)),
    (5, decided(id="plain")),
    (6, decided(id="parts")),
    (7, told(0.5, id="plain")),
    (8, told(1.0, "first", id="parts")),
    (9, told(2.0, "second", id="parts")),
]


def test_a_sample_has_what_counts() -> None:
    """Dormant and voided decisions are left out; when a reward came is known of all others."""
    ledger = ToldLedger(*EVENTS).ledger
    found = sampled(ledger, np.arange)
    assert found.numbers.tolist() == [0, 3, 4]
    assert found.state.tolist() == [State.PENDING, State.REWARDED, State.REWARDED]
    assert found.recorded.tolist() == [1, 5, 6]
    assert found.rewarded.tolist() == [-1, 7, 8]
    assert found.value[1:].tolist() == [0.5, 2.0]
    assert (found.now, found.latest) == (8, 8)


def test_a_sample_of_some() -> None:
    """Those that are chosen; of nothing, nothing."""
    ledger = ToldLedger(*EVENTS, (30, settled(25))).ledger
    found = sampled(ledger, lambda size: np.array([size - 1]))
    assert (found.numbers.tolist(), found.now) == ([4], 25)
    empty = sampled(ToldLedger().ledger, np.arange)
    assert (len(empty.numbers), empty.now, empty.latest) == (0, 0, -1)


def test_the_same_records_make_the_same_entries() -> None:
    """Also if one of them has forgotten some of its lines."""
    one, other = ToldLedger(*EVENTS).ledger, ToldLedger(*EVENTS).ledger
    assert same_entries(one, other)


@pytest.mark.parametrize(
    "other",
    [
        EVENTS[:-1],  # another value
        [*EVENTS, (10, decided(id="more"))],
        [*EVENTS[:5], (6, decided(id="parts", at=3)), *EVENTS[6:]],  # another time
        [*EVENTS, (10, told(1.0, id="plain"))],  # contradicts what is known
        [*EVENTS, (10, told(1.0, id="pending"))],
        [*EVENTS[:6], (20, told(0.5, id="plain")), *((at + 20, one) for at, one in EVENTS[7:])],
    ],
)
def test_any_difference_is_seen(other: list[tuple[int, Event]]) -> None:
    """In value, number, time, flags and state; from either side."""
    one, two = ToldLedger(*EVENTS).ledger, ToldLedger(*other).ledger
    assert not same_entries(one, two)
    assert not same_entries(two, one)


def packed() -> tuple[ToldLedger, dict[str, bytes]]:
    """A ledger that knows something of every kind, with its pieces."""
    known = ToldLedger(
        *EVENTS, (10, told(1.0, id="nobody yet")), (40, settled(40)), rewards=Explicit(WINDOW),
        retention=20,
    )  # fmt: skip
    return known, pack(known.ledger)


def empty() -> Ledger:
    """One to be unpacked into."""
    return Ledger(Explicit(WINDOW), NullListener(), min_reward=-10.0, max_reward=10.0, retention=20)


def test_bytes_hold_all_of_it() -> None:
    """What was read goes on as what was written."""
    known, pieces = packed()
    read = empty()
    unpack(read, pieces)
    assert (read.digest, read.counts, read.counters) == (
        known.ledger.digest,
        known.ledger.counts,
        known.ledger.counters,
    )
    assert read.watermark == known.ledger.watermark == 40
    assert pack(read) == pieces
    more: list[tuple[int, Event]] = [
        (41, decided(id="nobody yet")),
        (42, decided(id="next")),
        (80, settled(80)),
    ]
    known.tell(*more)
    for n, (recorded, event) in enumerate(more, len(EVENTS) + 3):
        read.fold(Record(0, n, recorded, event))
    assert (read.digest, read.counts) == (known.ledger.digest, known.ledger.counts)
    assert same_entries(read, known.ledger)


def test_another_version_is_not_read() -> None:
    """The journal is, instead."""
    _, pieces = packed()
    head = msgspec.msgpack.decode(pieces["ledger"])
    head[0] += 1
    pieces["ledger"] = msgspec.msgpack.encode(head)
    with pytest.raises(InvalidInput, match=r"a ledger of version .* cannot be read"):
        unpack(empty(), pieces)


def test_pieces_are_in_the_order_of_their_numbers() -> None:
    """Not of their names."""
    pieces = {"lines 10": b"c", "lines 2": b"b", "ledger": b"", "lines 0": b"a", "rows 1": b"x"}
    assert numbered(pieces, "lines") == [b"a", b"b", b"c"]
    assert numbered(pieces, "facts") == []


def test_room_for_many_changes_nothing() -> None:
    """Neither in the table nor in the index."""
    known = ToldLedger(*EVENTS)
    before = pack(known.ledger)
    known.ledger._table.reserve(100_000)
    known.ledger._index.reserve(100_000)
    assert len(known.ledger._table.cells) >= 100_005
    assert pack(known.ledger) == before
    known.tell((12, decided(id="more")), (13, told(1.0, id="more")))
    assert known.entry("more").value == 1.0


def test_who_undoes_what_was_not_known_is_named_by_its_place() -> None:
    """So that the journal is folded anew from where it was."""
    ledger = ToldLedger(*EVENTS).ledger
    before = pack(ledger)
    for event in (Erased(erased_key_of("a"), 0), Overwritten(erased_key_of("a"))):
        with pytest.raises(HistoryUndone) as caught:
            ledger.fold(Record(0, 77, 50, event))
        assert (caught.value.partition, caught.value.position) == (0, 77)
    assert pack(ledger) == before


def test_times_are_held_within_a_column() -> None:
    """The greatest is that of 63 bits."""
    assert [clamped_time(at) for at in (-5, 7, 1 << 70)] == [0, 7, (1 << 63) - 1]


@pytest.mark.parametrize(("keep", "held"), [(1, 1.0), (0, 0.0), (0.5, 0.5), ("auto", "auto")])
def test_a_share_of_requests_is_a_number_with_a_fraction(keep: Any, held: Any) -> None:
    """Whatever it was given as."""
    found = check_keep(keep)
    assert (type(found), found) == (type(held), held)


def test_decisions_are_found_in_what_was_read() -> None:
    """By their ids, with all that was known of them."""
    known = ToldLedger(*EVENTS)
    read = Ledger(Explicit(WINDOW), NullListener(), min_reward=-10.0, max_reward=10.0)
    unpack(read, pack(known.ledger))
    for id in ("pending", "a", "dormant", "plain", "parts"):
        assert read.entry(id) == known.entry(id)
    assert read.entry("nobody") is None


def test_the_history_of_one_decision() -> None:
    """Its own records only, and what they come to; nothing of one that was erased."""
    history = DecisionHistory("plain", Explicit(WINDOW), min_reward=-10.0, max_reward=10.0)
    for n, (recorded, event) in enumerate(EVENTS, 1):
        history.take(Record(0, n, recorded, event))
    assert (history.state, history.value) == ("rewarded", 0.5)
    assert [status for _, status in history.records] == ["decided", "rewarded"]
    assert history.entry == ToldLedger(*EVENTS).entry("plain")
    assert history.decision is EVENTS[4][1]
    undone = Undone([Record(0, 99, 60, Erased(erased_key_of("plain"), 60))])
    gone = DecisionHistory(
        "plain", Explicit(WINDOW), min_reward=-10.0, max_reward=10.0, undone=undone
    )
    for n, (recorded, event) in enumerate(EVENTS, 1):
        gone.take(Record(0, n, recorded, event))
    assert (gone.state, gone.records, gone.value) == ("erased", [], None)
