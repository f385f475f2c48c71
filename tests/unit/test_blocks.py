"""Blocks of coefficients equal rows without blocks that are zero outside their block."""

from __future__ import annotations

import numpy as np
import pytest

from belated.core.inputs import Matrix
from belated.model.blocks import (
    as_shape,
    by_block,
    cross,
    diagonal,
    gram,
    identity,
    inverse_of,
    is_positive,
    outer,
    predictors,
    product,
    root_of,
    solve,
    spread,
    width_of,
)

SHAPE = 4, 3


def dense(rows: Matrix) -> Matrix:
    """Return the rows with zeros outside their blocks."""
    table = np.zeros((len(rows), *SHAPE))
    table[np.arange(len(rows)), rows[:, 0].astype(int)] = rows[:, 1:]
    return table.reshape(len(rows), -1)


def joined(matrix: Matrix) -> Matrix:
    """Return all blocks of a matrix, with zeros between them."""
    blocks, size, _ = matrix.shape
    table = np.zeros((blocks, size, blocks, size))
    for n, block in enumerate(matrix):
        table[n, :, n] = block
    return table.reshape(blocks * size, blocks * size)


@pytest.fixture
def rows() -> Matrix:
    """Return rows of three of the blocks."""
    rng = np.random.default_rng(1)
    return np.column_stack([rng.choice([0.0, 2.0, 3.0], 20), rng.normal(size=(20, 3))])


@pytest.fixture
def precision(rows: Matrix) -> Matrix:
    """Return matrices that are positive definite in each block."""
    return identity(SHAPE) + gram(rows, None, SHAPE)


def test_shapes() -> None:
    """With blocks, a row has one more number."""
    assert width_of(as_shape(5)) == 5
    assert width_of(as_shape(SHAPE)) == 4


def test_rows_by_block(rows: Matrix) -> None:
    """Each row belongs to one block; without rows there are no blocks."""
    groups = dict(by_block(rows))
    assert list(groups) == [0, 2, 3]
    assert sorted(np.concatenate(list(groups.values())).tolist()) == list(range(20))
    assert list(by_block(rows[:0])) == []


def test_sums(rows: Matrix) -> None:
    """Σ w x xᵀ, Σ e x and X θ."""
    rng = np.random.default_rng(2)
    weights, theta = rng.normal(size=20), rng.normal(size=SHAPE)
    table = dense(rows)
    total = joined(gram(rows, weights, SHAPE))
    np.testing.assert_allclose(total, (table.T * weights) @ table, atol=1e-14)
    np.testing.assert_allclose(cross(weights, rows, SHAPE).ravel(), weights @ table, atol=1e-14)
    np.testing.assert_allclose(predictors(rows, theta), table @ theta.ravel(), atol=1e-14)


def test_roots_and_solutions(rows: Matrix, precision: Matrix) -> None:
    """They are computed for the matrix of each block."""
    rng = np.random.default_rng(3)
    vector, full = rng.normal(size=SHAPE), joined(precision)
    inverse = np.linalg.inv(full)
    root = root_of(precision)
    np.testing.assert_allclose(joined(root) @ joined(root).T, inverse, atol=1e-12)
    np.testing.assert_allclose(joined(inverse_of(precision)), inverse, atol=1e-12)
    np.testing.assert_allclose(
        solve(precision, vector).ravel(), inverse @ vector.ravel(), atol=1e-12
    )
    np.testing.assert_allclose(
        product(precision, vector).ravel(), full @ vector.ravel(), atol=1e-12
    )
    np.testing.assert_array_equal(diagonal(precision).ravel(), np.diag(full))
    widths = np.linalg.norm(spread(rows, root), axis=1)
    expected = np.sqrt(np.vecdot(dense(rows) @ inverse, dense(rows)))
    np.testing.assert_allclose(widths, expected, atol=1e-12)
    assert is_positive(precision)
    assert not is_positive(precision - 2.0 * identity(SHAPE))


def test_outer_products_stay_within_blocks() -> None:
    """There are no products between blocks."""
    vector = np.arange(12.0).reshape(SHAPE)
    for block, square in zip(vector, outer(vector), strict=True):
        np.testing.assert_array_equal(square, np.outer(block, block))


def test_a_direction_that_rounding_has_lost() -> None:
    """The root is that of the nearest positive definite matrix."""
    singular = np.array([[[1.0, 1.0], [1.0, 1.0]], [[2.0, 0.0], [0.0, 2.0]]])
    root = root_of(singular)
    assert np.isfinite(root).all()
    np.testing.assert_allclose(root[1] @ root[1].T, 0.5 * np.eye(2))
    np.testing.assert_allclose(solve(singular, np.ones((2, 2)))[1], [0.5, 0.5])
