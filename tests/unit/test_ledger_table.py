"""The table of entries, against a list of lines."""

from __future__ import annotations

import random
from pathlib import Path
from unittest import mock

import numpy as np
import pytest

from belated.fold.packing import pack_lines
from belated.fold.table import NONE, NOWHERE, EntryTable, handle_at
from belated.model.kernels import memory

Line = tuple[int, int, int, int, int, float, int]


def lines(table: EntryTable) -> list[Line]:
    """All of them, as far as these tests write them."""
    count = len(table)
    return list(
        zip(
            table.high[:count], table.recorded[:count], table.state[:count], table.flags[:count],
            table.crc[:count], table.value[:count], table.where[:count], strict=True,
        )
    )  # fmt: skip


def write(table: EntryTable, n: int) -> Line:
    """A new line whose columns all differ."""
    key = n.to_bytes(8) + bytes(8)
    number = table.append(
        key, recorded=-n, position=n, at=n, state=n % 6, flags=n % 251, crc=n % (1 << 32)
    )
    i = number - table.base
    assert (table.reward_recorded[i], table.reward_at[i], table.where[i]) == (NONE, 0, NOWHERE)
    table.value[i], table.where[i] = n / 7, handle_at(n)
    return n, -n, n % 6, n % 251, n % (1 << 32), n / 7, -2 - n


@pytest.mark.parametrize("pages", [1, 2000, memory.PAGES], ids=["pages", "both", "heap"])
def test_a_table_is_a_list_of_lines(pages: int) -> None:
    """Through growing and dropping some or all, wherever its memory is; no number comes twice."""
    rng = random.Random(pages)
    with mock.patch.object(memory, "PAGES", pages):
        table, known, dropped = EntryTable(), list[Line](), 0
        for _ in range(300):
            if rng.random() < 0.2:
                count = rng.choice([0, len(known) // 2, len(known)])
                table.drop(count)
                del known[:count]
                dropped += count
            for _ in range(rng.choice([1, 1, 5, 60])):
                known.append(write(table, rng.randrange(1 << 40)))
            assert (table.base, table.next) == (dropped, dropped + len(known))
            assert lines(table) == known


def test_columns_do_not_touch() -> None:
    """The greatest number in one leaves the others as they were."""
    table = EntryTable()
    for n in range(3):
        write(table, n)
    before = lines(table)
    for name, greatest in (("flags", 255), ("crc", 2**32 - 1), ("state", 255), ("low", 2**64 - 1)):
        view = getattr(table, name)
        kept, view[1] = view[1], greatest
        changed = lines(table)
        assert changed[0] == before[0]
        assert changed[2] == before[2]
        view[1] = kept
    assert lines(table) == before


def test_what_is_dropped_goes_back() -> None:
    """A table that was long has room for few again."""
    table = EntryTable()
    known = [write(table, n) for n in range(20_000)]
    table.drop(19_990)
    assert lines(table) == known[19_990:]
    assert len(table.cells) < 100


def test_a_table_comes_back_from_its_bytes() -> None:
    """An empty one too, and in place of what was there."""
    table, again = EntryTable(), EntryTable()
    known = [write(table, n) for n in range(1000)]
    write(again, 5)
    again.restore(pack_lines(table).values(), base=70)
    assert (lines(again), again.base) == (known, 70)
    again.restore([], base=0)
    assert (lines(again), again.next) == ([], 0)


@pytest.mark.parametrize("missing", [1, 8, 80])
def test_bytes_that_end_within_a_line_are_refused(missing: int) -> None:
    """The table is what it was."""
    table = EntryTable()
    known = [write(table, n) for n in range(3)]
    with pytest.raises(ValueError, match=r"reshape|multiple"):
        table.restore([pack_lines(table)["lines 0"][:-missing]], base=0)
    assert lines(table) == known


@pytest.mark.parametrize("place", [0, 5, 17_000, 40_000])
def test_the_first_in_a_state_is_found_wherever_it_is(place: int) -> None:
    """Also where the table is long, or nothing is in that state."""
    table = EntryTable()
    for _ in range(40_001):
        table.append(bytes(16), recorded=0, position=1, at=0, state=2, flags=0, crc=0)
    assert table.first(1) == -1
    table.state[place] = 1
    table.state[40_000] = 1
    assert table.first(1) == place


@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="nothing tells what is resident")
def test_only_what_was_written_is_resident() -> None:
    """Room costs nothing, and what a growing table leaves behind is gone at once."""

    def resident() -> int:
        return int(Path("/proc/self/statm").read_text().split()[1]) * 4096

    table, one = EntryTable(), EntryTable()
    write(one, 3)
    packed = [pack_lines(one)["lines 0"] * 300_000]
    before = resident()
    table.restore(packed, base=0)
    for n in range(1000):
        write(table, n)
    held = 88 * len(table)
    assert held <= resident() - before + 5_000_000
    assert resident() - before <= held + 5_000_000
    table.drop(len(table))
    assert resident() - before <= 5_000_000
    assert np.asarray(table.state).shape == (16,)


def test_blocks_that_did_not_change_have_the_same_bytes() -> None:
    """Though others did, the table has grown, and the first lines are gone."""
    table = EntryTable()
    assert pack_lines(table) == {}
    for n in range(20_000):
        write(table, n)
    before = pack_lines(table)
    assert [len(data) for data in before.values()] == [88 * 8192, 88 * 8192, 88 * 3616]
    table.state[9_000] ^= 1
    table.where[100] = 7
    table.drop(50)
    for n in range(5_000):
        write(table, n)
    after = pack_lines(table)
    assert sorted(after) == [f"lines {block}" for block in range(4)]
    assert after["lines 0"] != before["lines 0"]
    assert after["lines 1"] != before["lines 1"]
    assert after["lines 2"][: len(before["lines 2"])] == before["lines 2"]
    table.state[8_950] ^= 1  # as it was
    assert pack_lines(table)["lines 1"] == before["lines 1"]
    kept = pack_lines(table)
    table.where[50] = 9  # another place of the same row
    assert pack_lines(table) == kept
