"""Coefficients in blocks. Each row belongs to one block, so sums have one matrix per block.

θ has the shape (d,), or (K, d) with K blocks. Matrices have an additional axis of length d. A row
has d numbers; with blocks, they are preceded by the index of the row's block.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from belated.core.inputs import Matrix, Row, Vector, as_dim
from belated.model.kernels.lapack import dposv, dpotrf, dtrtri

#: Shape of θ.
Shape = tuple[int, ...]
#: Maximum number of coefficients for which LAPACK computes a root in one call.
SMALL = 64


def as_shape(shape: int | Shape) -> Shape:
    """Return the shape of θ for a number of coefficients, or for (blocks, coefficients per block).

    >>> as_shape(2), as_shape((3, 2))
    ((2,), (3, 2))
    """
    return tuple(map(as_dim, shape)) if isinstance(shape, tuple) else (as_dim(shape),)


def width_of(shape: Shape) -> int:
    """Return the length of a row."""
    return shape[-1] + len(shape) - 1


def split(rows: Row | Matrix) -> tuple[NDArray[np.int64], Row | Matrix]:
    """Return the block of each row, and the remaining numbers of each row."""
    return rows[:, 0].astype(np.int64), rows[:, 1:]


def by_block(rows: Row | Matrix) -> Iterator[tuple[int, NDArray[np.int64]]]:
    """Yield each block that occurs in the rows, with the indices of the block's rows."""
    blocks, _ = split(rows)
    order = np.argsort(blocks, kind="stable")
    starts = np.flatnonzero(np.diff(blocks[order], prepend=-1))
    for chosen in np.split(order, starts[1:]) if len(order) else ():
        yield int(blocks[chosen[0]]), chosen


def predictors(rows: Row | Matrix, theta: Vector) -> Vector:
    """Return X θ, the linear predictor of each row."""
    if theta.ndim == 1:
        return rows @ theta
    blocks, numbers = split(rows)
    eta: Vector = np.vecdot(numbers, theta[blocks])
    return eta


def cross(each: Vector, rows: Row | Matrix, shape: Shape) -> Vector:
    """Return Σ e x, the sum of the rows x weighted by the numbers e in ``each``.

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
    """Return Σ w x xᵀ over the rows; None means that every weight is 1.

    >>> gram(np.array([[1.0, 2.0], [0.0, 1.0]]), None, (2,))
    array([[1., 2.],
           [2., 5.]])
    """
    total = np.zeros((*shape, shape[-1]))
    add_gram(total, rows, weights)
    return total


def add_gram(total: Matrix, rows: Matrix, weights: Vector | None = None) -> None:
    """Add Σ w x xᵀ in place, changing only the blocks of these rows."""
    if total.ndim == 2:
        total += (rows if weights is None else rows * weights[:, None]).T @ rows
        return
    for block, chosen in by_block(rows):
        numbers = rows[chosen, 1:]
        factors = numbers if weights is None else numbers * weights[chosen, None]
        total[block] += factors.T @ numbers


def product(matrix: Matrix, vector: Vector) -> Vector:
    """Return the product of a matrix and a vector for each block."""
    products: Vector = (matrix @ vector[..., None])[..., 0]
    return products


def spread(rows: Matrix, root: Matrix) -> Matrix:
    """Return X S; the norm of each row is the standard deviation of its linear predictor."""
    if root.ndim == 2:
        return rows @ root
    table = np.empty((len(rows), root.shape[-1]))
    for block, chosen in by_block(rows):
        table[chosen] = rows[chosen, 1:] @ root[block]
    return table


def unblocked(rows: Row | Matrix, blocks: int | None) -> Matrix:
    """Expand rows to all coefficients, with zeros outside each row's block.

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
    """Convert rows over all coefficients to rows with blocks; row n belongs to block n.

    >>> blocked(np.array([[5.0, 6.0, 0.0, 0.0], [0.0, 0.0, 7.0, 8.0]]), 2)
    array([[0., 5., 6.],
           [1., 7., 8.]])
    """
    places = np.arange(len(rows))
    numbers = rows.reshape(len(rows), blocks, -1)[places, places]
    return np.concatenate([places[:, None], numbers], axis=1)


def identity(shape: Shape, factor: float = 1.0) -> Matrix:
    """Return a multiple of I for each block, as a read-only view of one matrix."""
    return np.broadcast_to(factor * np.eye(shape[-1]), (*shape, shape[-1]))


def no_sum(shape: Shape) -> Matrix:
    """Return a matrix of zeros for each block, as a read-only view that allocates no memory."""
    return np.broadcast_to(0.0, (*shape, shape[-1]))


def diagonal(matrix: Matrix) -> Vector:
    """Return the diagonal of each block, in the shape of θ."""
    return np.diagonal(matrix, axis1=-2, axis2=-1)


def outer(vector: Vector) -> Matrix:
    """Return v vᵀ for each block."""
    return vector[..., :, None] * vector[..., None, :]


def root_of(precision: Matrix) -> Matrix:
    """Return a root S of the inverse, S Sᵀ = H⁻¹, which is upper triangular and in C order.

    >>> root_of(np.array([[4.0]]))
    array([[0.5]])
    """
    if precision.ndim == 2:
        return _root(precision)
    return np.array([_root(block) for block in precision])


def precision_of(root: Matrix) -> Matrix:
    """Return the precision H, given a root of H⁻¹.

    >>> precision_of(np.array([[0.5]]))
    array([[4.]])
    """
    precision = np.empty_like(root)
    for block in np.ndindex(root.shape[:-2]):
        inverse, _ = dtrtri(root[block], lower=0)
        precision[block] = inverse.T @ inverse
    return precision


def inverse_of(precision: Matrix) -> Matrix:
    """Return the inverse of each block."""
    root = root_of(precision)
    return root @ root.swapaxes(-2, -1)


def solve(precision: Matrix, right: Vector) -> Vector:
    """Return H⁻¹ b for each block."""
    solution = np.empty_like(right)
    for at in np.ndindex(precision.shape[:-2]):
        failed = 1
        if len(precision[at]) <= SMALL:
            _, solution[at], failed = dposv(precision[at], right[at])
        if failed:  # the block is large, or rounding has made it singular
            solution[at] = solved(_root(precision[at]), right[at])
    return solution


def solved(root: Matrix, right: Vector) -> Vector:
    """Return H⁻¹ b, given a root of H⁻¹."""
    return product(root, product(root.swapaxes(-2, -1), right))


def is_positive(matrix: Matrix) -> bool:
    """Return whether every block is positive definite."""
    try:
        np.linalg.cholesky(matrix)
    except np.linalg.LinAlgError:
        return False
    return True


def _root(precision: Matrix) -> Matrix:
    root = np.zeros(precision.shape)
    if _fill_root(root, precision):
        return root
    # Rounding has made H singular. Equalize the scales, then limit the spectrum from below.
    floor = np.finfo(float).eps * len(precision)
    diagonal = np.diag(precision)
    scale = 1.0 / np.sqrt(np.maximum(diagonal, floor * diagonal.max()))
    values, vectors = np.linalg.eigh(precision * scale[:, None] * scale)
    values = np.maximum(values, floor * values[-1])
    root = scale[:, None] * vectors / np.sqrt(values)
    # R Q = root, from the QR decomposition of the reversed rows; then R Rᵀ = root rootᵀ.
    triangle: Any = np.linalg.qr(root[::-1].T, mode="r")
    return np.ascontiguousarray(triangle.T[::-1, ::-1])


def _fill_root(root: Matrix, precision: Matrix) -> bool:
    """Write the root of one block into zeros; return False if the block is not positive definite.

    The root is computed recursively in halves, because matrix products are faster than LAPACK and
    do not block other threads.
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
