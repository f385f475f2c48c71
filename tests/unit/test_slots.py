"""New ids have one slot for a while: what is committed together fills one partition."""

from __future__ import annotations

from hypothesis import given, strategies as st

from belated.core.ids import SLOTS, new_id
from belated.service.serving.request_batcher import WHILE, Slots

NOW = 1_700_000_000_000_000


def test_a_slot_is_kept_for_a_while() -> None:
    """Then another is drawn; in the end all partitions have a share."""
    slots = Slots(new_id)
    first = slots.at(NOW)
    assert slots.at(NOW + WHILE - 1) == first
    drawn = {slots.at(NOW + n * WHILE) % 16 for n in range(1, 400)}
    assert drawn == set(range(16))


@given(st.lists(st.integers(NOW, NOW + 10 * WHILE)))
def test_a_clock_that_steps_back_keeps_no_slot_for_long(times: list[int]) -> None:
    """Whatever it does, there is a slot, and none is used beyond a while after it was drawn."""
    lookups: list[int] = []

    def drawn(now: int, slot: None) -> str:
        lookups.append(now)
        return new_id(now, slot)

    slots = Slots(drawn)
    for now in times:
        assert 0 <= slots.at(now) < SLOTS
        assert 0 <= now - lookups[-1] < WHILE
