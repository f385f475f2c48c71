"""Memory of pages: zeros that can be written, and are nobody else's after a fork."""

from __future__ import annotations

import multiprocessing
import sys

import numpy as np
import pytest

from belated.model.kernels import memory
from belated.model.kernels.memory import column, zeros


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
