"""The chain of a partition: the same however it was read, and another for any other history."""

from __future__ import annotations

import pytest
from hypothesis import given, strategies as st

from belated.core.events import Record, Void, digest_of, encode
from belated.exceptions import InvalidInput
from belated.journals import MemoryJournal
from belated.journals.chain import LINK, Chain, Head


def record(position: int, stamp: int = 7, name: str | None = None) -> Record:
    """One as a store gives it."""
    event = Void(name or f"id {position}", 5)
    return Record(0, position, stamp, event, digest_of(encode(event)))


def head(records: list[Record]) -> bytes:
    """All at once."""
    chain = Chain()
    chain.add(records)
    return chain.head


STORED = [record(n) for n in range(1, 3 * LINK)]


@given(st.lists(st.integers(0, len(STORED)), max_size=6))
def test_pages_make_no_difference(cuts: list[int]) -> None:
    """Wherever they end: within a link, with it, or beyond several."""
    chain, start = Chain(), 0
    for cut in [*sorted(cuts), len(STORED)]:
        chain.add(STORED[start:cut])
        start = cut
    assert chain.head == head(STORED)
    assert chain.position == len(STORED)


@given(st.sets(st.integers(1, 5 * LINK), min_size=1, max_size=30), st.integers(0, 30))
def test_gaps(positions: set[int], cut: int) -> None:
    """Positions count, not only the order; and pages make no difference."""
    records = [record(n, name="same") for n in sorted(positions)]
    chain = Chain()
    chain.add(records[:cut])
    chain.add(records[cut:])
    assert chain.head == head(records)
    for n in range(len(records)):
        shifted = [*records]
        shifted[n] = record(shifted[n].position + 1, name="same")
        if n + 1 == len(records) or shifted[n].position < records[n + 1].position:
            assert head(shifted) != head(records)


@pytest.mark.parametrize("place", [0, 1, LINK - 1, LINK, 2 * LINK + 5, len(STORED) - 1])
def test_any_other_history_has_another_head(place: int) -> None:
    """A stamp, an event, a record that is missing, two that are swapped, a cut."""
    original = head(STORED)
    stored = STORED[place]
    for changed in (record(stored.position, stamp=8), record(stored.position, name="other")):
        assert head([*STORED[:place], changed, *STORED[place + 1 :]]) != original
    assert head([*STORED[:place], *STORED[place + 1 :]]) != original
    assert head(STORED[:place]) != original
    if place:
        previous = STORED[place - 1]
        swapped = [
            Record(0, previous.position, 7, stored.event, stored.digest),
            Record(0, stored.position, 7, previous.event, previous.digest),
        ]
        assert head([*STORED[: place - 1], *swapped, *STORED[place + 1 :]]) != original


class _Log(MemoryJournal):
    """Gives stored records."""

    def read(self, partition: int, after: int, limit: int) -> list[Record]:
        self.asked = limit
        return STORED[after : after + limit]


@pytest.mark.parametrize("position", [0, 1, LINK, LINK + 1, 2 * LINK, 2 * LINK + 9])
def test_it_goes_on_from_a_snapshot(position: int) -> None:
    """No more than a link is read again; and another head is refused."""
    chain = Chain()
    chain.add(STORED[:position])
    log = _Log()
    resumed = Chain.resume(chain.pack(), log, 0, position)
    assert resumed is not None
    assert position == 0 or log.asked <= LINK
    assert resumed.head == chain.head
    for target in (resumed, chain):
        target.add(STORED[position:])
    assert resumed.head == chain.head
    if position:
        assert Chain.resume(bytes(64), log, 0, position) is None
        assert Chain.resume(chain.pack(), log, 0, len(STORED) + 1) is None


@pytest.mark.parametrize("position", [LINK, 2 * LINK])
def test_it_goes_on_behind_a_whole_link(position: int) -> None:
    """Without reading anything: the records may be gone."""
    chain = Chain()
    chain.add(STORED[:position])
    resumed = Chain.behind(chain.pack(), position)
    assert (resumed.head, resumed.pack(), resumed.position) == (chain.head, chain.pack(), position)
    for target in (resumed, chain):
        target.add(STORED[position:])
    assert resumed.head == chain.head


@pytest.mark.parametrize("gap", [1, 3, 4, 5, 20])
def test_it_goes_on_behind_a_gap(gap: int) -> None:
    """The last record of the link is not at its end, and the next may be many links beyond."""
    chain = Chain(4)
    chain.add([record(1), record(2), record(6)])
    resumed = Chain.behind(chain.pack(), 6, 4)
    for target in (resumed, chain):
        target.add([record(8 + gap), record(9 + gap)])
        target.add([record(40)])
    assert resumed.head == chain.head


def test_without_digests_there_is_no_head() -> None:
    """And what was last is known all the same."""
    chain = Chain()
    chain.add([Record(0, 1, 7, Void("a", 5))])
    assert (chain.head, chain.pack(), chain.position) == (b"", b"", 1)
    assert Head.of([chain, Chain()]).digest == b""


@pytest.mark.parametrize("text", ["", "5", "5:zz", "5:00", f"-1:{'0' * 48}", f"x:{'0' * 48}"])
def test_a_text_that_is_no_head_is_refused(text: str) -> None:
    """With what to do."""
    with pytest.raises(InvalidInput, match="journal verify"):
        Head.parse(text)
