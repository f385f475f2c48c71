"""Coefficients in blocks: a row is of one block, so every sum is one matrix for each block.

θ has the shape (d,), or (K, d) if there are K blocks. Matrices have one more axis of length d. A
row has d numbers; if there are blocks, the number of its block stands before them.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from belated.core.inputs import Matrix, Row, Vector, as_dim
from belated.model.kernels.lapack import dposv, dpotrf, dtrtri

#: Of θ.
Shape = tuple[int, ...]
#: A root of so many coefficients is made by LAPACK in one call.
SMALL = 64


def as_shape(shape: int | Shape) -> Shape:
    """The shape of θ: a number of coefficients, or (blocks, coefficients of each).

    >>> as_shape(2), as_shape((3, 2))
    ((2,), (3, 2))
    """
    return tuple(map(as_dim, shape)) if isinstance(shape, tuple) else (as_dim(shape),)


def width_of(shape: Shape) -> int:
    """How many numbers a row has."""
    return shape[-1] + len(shape) - 1


def split(rows: Row | Matrix) -> tuple[NDArray[np.int64], Row | Matrix]:
    """The block of each row, and its other numbers."""
    return rows[:, 0].astype(np.int64), rows[:, 1:]


def by_block(rows: Row | Matrix) -> Iterator[tuple[int, NDArray[np.int64]]]:
    """Each block that rows are of, and which rows."""
    blocks, _ = split(rows)
    order = np.argsort(blocks, kind="stable")
    starts = np.flatnonzero(np.diff(blocks[order], prepend=-1))
    for chosen in np.split(order, starts[1:]) if len(order) else ():
        yield int(blocks[chosen[0]]), chosen


def predictors(rows: Row | Matrix, theta: Vector) -> Vector:
    """X θ."""
    if theta.ndim == 1:
        return rows @ theta
    blocks, numbers = split(rows)
    found: Vector = np.vecdot(numbers, theta[blocks])
    return found


def cross(each: Vector, rows: Row | Matrix, shape: Shape) -> Vector:
    """Σ e x, with one number e for each row.

    >>> cross(np.array([2.0, 3.0]), np.array([[1.0, 5.0], [1.0, 7.0]]), (2, 1))
    array([[ 0.],
           [31.]])
    """
    if len(shape) == 1:
        return each @ rows
    total = np.zeros(shape)
    for block, chosen in by_block(rows):
        total[block] = each[chosen] @ rows[chosen, 1:]
    return total


def gram(rows: Matrix, weights: Vector | None, shape: Shape) -> Matrix:
    """Σ w x xᵀ.

    >>> gram(np.array([[1.0, 2.0], [0.0, 1.0]]), None, (2,))
    array([[1., 2.],
           [2., 5.]])
    """
    total = np.zeros((*shape, shape[-1]))
    add_gram(total, rows, weights)
    return total


def add_gram(total: Matrix, rows: Matrix, weights: Vector | None = None) -> None:
    """Add Σ w x xᵀ in place: only the blocks of these rows are touched."""
    if total.ndim == 2:
        total += (rows if weights is None else rows * weights[:, None]).T @ rows
        return
    for block, chosen in by_block(rows):
        numbers = rows[chosen, 1:]
        factors = numbers if weights is None else numbers * weights[chosen, None]
        total[block] += factors.T @ numbers


def product(matrix: Matrix, vector: Vector) -> Vector:
    """The product with a vector, block by block."""
    found: Vector = (matrix @ vector[..., None])[..., 0]
    return found


def spread(rows: Matrix, root: Matrix) -> Matrix:
    """X S: the length of each row is the standard deviation of its linear predictor."""
    if root.ndim == 2:
        return rows @ root
    found = np.empty((len(rows), root.shape[-1]))
    for block, chosen in by_block(rows):
        found[chosen] = rows[chosen, 1:] @ root[block]
    return found


def unblocked(rows: Row | Matrix, blocks: int | None) -> Matrix:
    """The same rows over all coefficients: zero outside their blocks.

    >>> unblocked(np.array([[1.0, 5.0, 6.0]]), 2)
    array([[0., 0., 5., 6.]])
    >>> unblocked(np.empty((0, 3)), 2).shape
    (0, 4)
    """
    if blocks is None:
        return rows.astype(np.float64)
    places, numbers = split(rows)
    table = np.zeros((len(rows), blocks, numbers.shape[1]))
    table[np.arange(len(rows)), places] = numbers
    return table.reshape(len(rows), blocks * numbers.shape[1])


def blocked(rows: Matrix, blocks: int) -> Matrix:
    """Rows in blocks, the first in the first, from rows over all coefficients.

    >>> blocked(np.array([[5.0, 6.0, 0.0, 0.0], [0.0, 0.0, 7.0, 8.0]]), 2)
    array([[0., 5., 6.],
           [1., 7., 8.]])
    """
    places = np.arange(len(rows))
    numbers = rows.reshape(len(rows), blocks, -1)[places, places]
    return np.concatenate([places[:, None], numbers], axis=1)


def identity(shape: Shape, factor: float = 1.0) -> Matrix:
    """Return a multiple of I for each block, read-only: all blocks share one matrix."""
    return np.broadcast_to(factor * np.eye(shape[-1]), (*shape, shape[-1]))


def no_sum(shape: Shape) -> Matrix:
    """Return a matrix of zeros for each block, read-only: it takes no memory."""
    return np.broadcast_to(0.0, (*shape, shape[-1]))


def diagonal(matrix: Matrix) -> Vector:
    """The diagonal of each block, in the shape of θ."""
    return np.diagonal(matrix, axis1=-2, axis2=-1)


def outer(vector: Vector) -> Matrix:
    """v vᵀ within each block."""
    return vector[..., :, None] * vector[..., None, :]


def root_of(precision: Matrix) -> Matrix:
    """A root S of the inverse: S Sᵀ = H⁻¹, upper triangular, in C order.

    >>> root_of(np.array([[4.0]]))
    array([[0.5]])
    """
    if precision.ndim == 2:
        return _root(precision)
    return np.array([_root(block) for block in precision])


def precision_of(root: Matrix) -> Matrix:
    """H, whose inverse has this root.

    >>> precision_of(np.array([[0.5]]))
    array([[4.]])
    """
    found = np.empty_like(root)
    for block in np.ndindex(root.shape[:-2]):
        inverse, _ = dtrtri(root[block], lower=0)
        found[block] = inverse.T @ inverse
    return found


def inverse_of(precision: Matrix) -> Matrix:
    """H⁻¹."""
    root = root_of(precision)
    return root @ root.swapaxes(-2, -1)


def solve(precision: Matrix, right: Vector) -> Vector:
    """H⁻¹ b."""
    found = np.empty_like(right)
    for at in np.ndindex(precision.shape[:-2]):
        failed = 1
        if len(precision[at]) <= SMALL:
            _, found[at], failed = dposv(precision[at], right[at])
        if failed:  # large; or rounding: a direction of the prior is lost beside the data
            found[at] = solved(_root(precision[at]), right[at])
    return found


def solved(root: Matrix, right: Vector) -> Vector:
    """Return H⁻¹ b, given a root of H⁻¹."""
    return product(root, product(root.swapaxes(-2, -1), right))


def is_positive(matrix: Matrix) -> bool:
    """Whether every block is positive definite."""
    try:
        np.linalg.cholesky(matrix)
    except np.linalg.LinAlgError:
        return False
    return True


def _root(precision: Matrix) -> Matrix:
    root = np.zeros(precision.shape)
    if _fill_root(root, precision):
        return root
    # Rounding has made a direction of H vanish. Equal scales first, then the spectrum's floor.
    floor = np.finfo(float).eps * len(precision)
    diagonal = np.diag(precision)
    scale = 1.0 / np.sqrt(np.maximum(diagonal, floor * diagonal.max()))
    values, vectors = np.linalg.eigh(precision * scale[:, None] * scale)
    values = np.maximum(values, floor * values[-1])
    root = scale[:, None] * vectors / np.sqrt(values)
    # R Q = root, by the QR of its rows in reverse; then R Rᵀ = root rootᵀ.
    triangle: Any = np.linalg.qr(root[::-1].T, mode="r")
    return np.ascontiguousarray(triangle.T[::-1, ::-1])


def _fill_root(root: Matrix, precision: Matrix) -> bool:
    """Write the root of one block into zeros; return False if the block is not positive definite.

    By halves, because products are faster than LAPACK, and let other threads run meanwhile.
    """
    size = len(precision)
    if size <= SMALL:
        factor, failed = dpotrf(precision, lower=1, clean=1)
        if not failed:
            inverse, failed = dtrtri(factor, lower=1)
            root[:] = inverse.T
        return not failed
    first, second = slice(size // 2), slice(size // 2, size)
    if not _fill_root(root[first, first], precision[first, first]):
        return False
    joint = root[first, first].T @ precision[first, second]
    if not _fill_root(root[second, second], precision[second, second] - joint.T @ joint):
        return False
    root[first, second] = -root[first, first] @ (joint @ root[second, second])
    return True
