"""Sums and roots of rows that are zero outside one block each equal the dense ones."""

import numpy as np
import pytest
from numpy.typing import NDArray

from belated.model import kernels
from belated.model.kernels.blocks import WIDE, diagonal_blocks, gram, root_of
from belated.simulation.environments import in_blocks


def rows_in_blocks(count: int, arms: int, width: int, seed: int) -> NDArray[np.float64]:
    """One chosen row of each of so many contexts."""
    rng = np.random.default_rng(seed)
    tables = [in_blocks(rng.normal(size=width), arms) for _ in range(count)]
    return np.array([table[rng.integers(arms)] for table in tables])


@pytest.mark.parametrize("arms", [1, 2, 10])
@pytest.mark.parametrize("weighted", [False, True])
def test_gram_is_that_of_the_dense_product(arms: int, weighted: bool) -> None:
    """With and without weights, negative ones too."""
    rows = rows_in_blocks(200, arms, WIDE // 2, seed=arms)
    weights = np.random.default_rng(1).normal(size=200) if weighted else None
    dense = rows.T @ (rows if weights is None else weights[:, None] * rows)
    assert np.allclose(gram(rows, weights), dense, rtol=1e-13, atol=1e-13)


def test_gram_of_overlapping_spans_and_of_zeros() -> None:
    """Spans may overlap; a row may be empty, a table too."""
    rows = np.zeros((3, 2 * WIDE))
    rows[0, 3:9] = 1.0
    rows[1, 7:12] = 2.0
    assert np.array_equal(gram(rows), rows.T @ rows)  # the last row is nothing but zeros
    assert np.array_equal(gram(np.zeros((0, WIDE))), np.zeros((WIDE, WIDE)))


def test_features_that_were_never_seen_do_not_join_blocks() -> None:
    """A row of zeros is a block of its own, wherever it is."""
    matrix = np.zeros((60, 60))
    matrix[:20, :20] = matrix[30:, 30:] = 1.0
    matrix[40] = matrix[:, 40] = 0.0
    blocks = diagonal_blocks(matrix)
    assert blocks[0] == slice(0, 20)
    assert blocks[-1] == slice(30, 60)
    assert [block.stop - block.start for block in blocks[1:-1]] == [1] * 10


def test_blocks_are_found() -> None:
    """Of any size, and one where anything joins them."""
    blocks = [slice(0, 20), slice(20, 21), slice(21, WIDE + 9)]
    matrix = np.zeros((WIDE + 9, WIDE + 9))
    for block in blocks:
        matrix[block, block] = 1.0
    assert diagonal_blocks(matrix) == blocks
    matrix[0, -1] = matrix[-1, 0] = 1.0
    assert diagonal_blocks(matrix) == [slice(0, WIDE + 9)]
    assert len(diagonal_blocks(np.eye(WIDE))) == WIDE


def test_a_root_keeps_the_blocks() -> None:
    """And is a root."""
    rows = rows_in_blocks(300, 5, 20, seed=0)
    precision = np.eye(100) + gram(rows)
    root = root_of(precision)
    assert np.allclose(root @ root.T, np.linalg.inv(precision), rtol=1e-11, atol=1e-13)
    assert np.count_nonzero(root[:20, 20:]) == 0


def test_compiled_kernels_that_skip_zeros_equal_the_plain_ones() -> None:
    """On rows in blocks and on a row of zeros."""
    arms, width = 5, 20
    z = np.random.default_rng(2).normal(size=width)
    table = np.ascontiguousarray(in_blocks(z, arms))
    theta = np.random.default_rng(3).normal(size=arms * width)
    roots = []
    for using in (kernels.plain(), kernels.compiled()):
        root = np.eye(arms * width)
        for row in (table[1], table[3], np.zeros(arms * width), table[1]):
            using.count(root, row, 0.5)
        roots.append(root)
    assert np.allclose(roots[0], roots[1], rtol=1e-13, atol=1e-14)
    plain = kernels.plain().score(table, theta, roots[0])
    fast = kernels.compiled().score(table, theta, roots[0])
    assert np.allclose(plain, fast, rtol=1e-12)
