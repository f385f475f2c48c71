"""The table of entries, compared with a list of lines."""

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
    """Return all lines, with the columns that these tests write."""
    count = len(table)
    return list(
        zip(
            table.high[:count], table.recorded[:count], table.state[:count], table.flags[:count],
            table.crc[:count], table.value[:count], table.where[:count], strict=True,
        )
    )  # fmt: skip


def write(table: EntryTable, n: int) -> Line:
    """Add a line whose columns all differ, and return it."""
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
    """It grows and drops lines in all kinds of memory, and never reuses a number."""
    rng = random.Random(pages)
    with mock.patch.object(memory, "PAGES", pages):
        table, expected, dropped = EntryTable(), list[Line](), 0
        for _ in range(300):
            if rng.random() < 0.2:
                count = rng.choice([0, len(expected) // 2, len(expected)])
                table.drop(count)
                del expected[:count]
                dropped += count
            for _ in range(rng.choice([1, 1, 5, 60])):
                expected.append(write(table, rng.randrange(1 << 40)))
            assert (table.base, table.next) == (dropped, dropped + len(expected))
            assert lines(table) == expected


def test_columns_do_not_overlap() -> None:
    """Writing the largest value to a column does not change the others."""
    table = EntryTable()
    for n in range(3):
        write(table, n)
    before = lines(table)
    for name, maximum in (("flags", 255), ("crc", 2**32 - 1), ("state", 255), ("low", 2**64 - 1)):
        view = getattr(table, name)
        original, view[1] = view[1], maximum
        changed = lines(table)
        assert changed[0] == before[0]
        assert changed[2] == before[2]
        view[1] = original
    assert lines(table) == before


def test_the_capacity_shrinks_when_lines_are_dropped() -> None:
    """A table that was long becomes small again."""
    table = EntryTable()
    expected = [write(table, n) for n in range(20_000)]
    table.drop(19_990)
    assert lines(table) == expected[19_990:]
    assert len(table.cells) < 100


def test_a_table_is_restored_from_its_bytes() -> None:
    """They replace earlier lines; an empty table can be restored, too."""
    table, restored = EntryTable(), EntryTable()
    expected = [write(table, n) for n in range(1000)]
    write(restored, 5)
    restored.restore(pack_lines(table).values(), base=70)
    assert (lines(restored), restored.base) == (expected, 70)
    restored.restore([], base=0)
    assert (lines(restored), restored.next) == ([], 0)


@pytest.mark.parametrize("missing", [1, 8, 80])
def test_bytes_that_end_within_a_line_are_refused(missing: int) -> None:
    """The table is unchanged."""
    table = EntryTable()
    expected = [write(table, n) for n in range(3)]
    with pytest.raises(ValueError, match=r"reshape|multiple"):
        table.restore([pack_lines(table)["lines 0"][:-missing]], base=0)
    assert lines(table) == expected


@pytest.mark.parametrize("place", [0, 5, 17_000, 40_000])
def test_the_first_in_a_state_is_found_wherever_it_is(place: int) -> None:
    """The table is long; if no line has the state, the result is -1."""
    table = EntryTable()
    for _ in range(40_001):
        table.append(bytes(16), recorded=0, position=1, at=0, state=2, flags=0, crc=0)
    assert table.first(1) == -1
    table.state[place] = 1
    table.state[40_000] = 1
    assert table.first(1) == place


@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="needs /proc/self/statm")
def test_only_lines_that_were_written_are_resident() -> None:
    """Spare capacity uses no memory, and memory that a growing table leaves is freed at once."""

    def resident() -> int:
        return int(Path("/proc/self/statm").read_text().split()[1]) * 4096

    table, single = EntryTable(), EntryTable()
    write(single, 3)
    packed = [pack_lines(single)["lines 0"] * 300_000]
    before = resident()
    table.restore(packed, base=0)
    for n in range(1000):
        write(table, n)
    size = 88 * len(table)
    assert size <= resident() - before + 5_000_000
    assert resident() - before <= size + 5_000_000
    table.drop(len(table))
    assert resident() - before <= 5_000_000
    assert np.asarray(table.state).shape == (16,)


def test_blocks_that_did_not_change_have_the_same_bytes() -> None:
    """This holds after changes in other blocks, and after lines were added and dropped."""
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
    table.state[8_950] ^= 1  # undo the change
    assert pack_lines(table)["lines 1"] == before["lines 1"]
    before = pack_lines(table)
    table.where[50] = 9  # another place of the same row
    assert pack_lines(table) == before
