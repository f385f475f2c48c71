"""Memory that grows: tables against lists, and pages that are given back."""

from __future__ import annotations

import multiprocessing
import random
import sys
from pathlib import Path
from typing import ClassVar
from unittest import mock

import numpy as np
import pytest

from belated.kernels import memory
from belated.kernels.memory import Table, column, zeros


class Pairs(Table):
    """Two columns, of different widths."""

    columns: ClassVar = {"number": "q", "mark": "B"}
    number: memoryview[int]
    mark: memoryview[int]

    def rows(self) -> list[tuple[int, int]]:
        """All of them."""
        count = len(self)
        return list(zip(self.number[:count], self.mark[:count], strict=True))


def filled(count: int, first: int = 0) -> Pairs:
    """A table of so many rows."""
    pairs = Pairs()
    pairs.add(count)
    for i in range(count):
        pairs.number[i], pairs.mark[i] = first + i, i % 251
    return pairs


@pytest.mark.parametrize("pages", [1, 200, memory.PAGES], ids=["pages", "both", "heap"])
def test_a_table_is_a_list_of_rows(pages: int) -> None:
    """Through growing by one or many and dropping some or all, wherever its memory is."""
    rng = random.Random(pages)
    with mock.patch.object(memory, "PAGES", pages):
        pairs, known = Pairs(), list[tuple[int, int]]()
        for step in range(400):
            if rng.random() < 0.2:
                count = rng.choice([0, len(known) // 2, len(known)])
                pairs.drop(count)
                del known[:count]
            count = rng.choice([1, 1, 5, 60])
            first = pairs.add(count)
            assert first == len(known)
            for i in range(first, first + count):
                pairs.number[i], pairs.mark[i] = -step * i, step % 256
                known.append((-step * i, step % 256))
            assert len(pairs) == len(known)
            assert pairs.rows() == known


def test_what_is_dropped_goes_back() -> None:
    """A table that was long has room for few again."""
    pairs = filled(100_000)
    pairs.drop(99_990)
    assert pairs.rows() == [(99_990 + i, (99_990 + i) % 251) for i in range(10)]
    assert len(pairs.number) < 100


def test_a_table_comes_back_from_its_bytes() -> None:
    """An empty one too, and in place of what was there."""
    pairs, again = filled(1000), filled(3)
    again.restore(pairs.pack())
    assert again.rows() == pairs.rows()
    again.restore(Pairs().pack())
    assert again.rows() == []


def test_columns_of_other_lengths_are_refused() -> None:
    """And so are bytes that end within a number; the table is what it was."""
    pairs, packed = filled(3), filled(5).pack()
    for number in (packed["number"][:-8], packed["number"][:-1]):
        with pytest.raises(ValueError, match=r"no table|multiple"):
            pairs.restore(packed | {"number": number})
    assert pairs.rows() == filled(3).rows()


@pytest.mark.parametrize("count", [1, 10, memory.PAGES])
def test_memory_is_zeros_that_can_be_written(count: int) -> None:
    """As a column and as an array, small or large."""
    numbers, array = column(count, "q"), zeros((count, 3), np.float32)
    assert not any(numbers)
    assert not array.any()
    numbers[count - 1], array[count - 1, 2] = 2, 1.5
    assert (sum(numbers), float(array.sum())) == (2, 1.5)


def test_an_empty_array_has_its_shape() -> None:
    """Of rows without numbers there may be many."""
    assert zeros((5, 0), np.float32).shape == (5, 0)


def _write(numbers: memoryview) -> None:
    numbers[0] = 7


@pytest.mark.skipif(sys.platform == "win32", reason="there is no fork")
def test_after_a_fork_each_process_has_its_own() -> None:
    """What a child writes is not seen by its parent."""
    numbers = column(memory.PAGES, "q")
    child = multiprocessing.get_context("fork").Process(target=_write, args=(numbers,))
    child.start()
    child.join()
    assert child.exitcode == 0
    assert numbers[0] == 0


@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="nothing tells what is resident")
def test_only_what_was_written_is_resident() -> None:
    """Room costs nothing, and what a growing table leaves behind is gone at once."""

    def resident() -> int:
        return int(Path("/proc/self/statm").read_text().split()[1]) * 4096

    pairs = Pairs()
    before = resident()
    for _ in range(400):
        first = pairs.add(10_000)
        np.asarray(pairs.number)[first : first + 10_000] = first
        np.asarray(pairs.mark)[first : first + 10_000] = 1
    held = 9 * len(pairs)
    assert held <= resident() - before + 5_000_000
    assert resident() - before <= held + 5_000_000
    pairs.drop(len(pairs))
    assert resident() - before <= 5_000_000
