"""Matrices whose blocks do not touch: the sums of rows that are zero outside one block each.

Actions with coefficients of their own (``PerArm``) make such rows. Nothing has to be declared: the
zeros are found where they are, and a sum or a factorisation then costs what its blocks cost.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from belated.core.inputs import Matrix, Vector
from belated.model.kernels.lapack import dpotrf, dtrtri

#: Below this many columns looking for zeros costs more than it saves.
WIDE = 40


def gram(rows: Matrix, weights: Vector | None = None) -> Matrix:
    """Σ w x xᵀ.

    >>> gram(np.array([[1.0, 2.0], [0.0, 1.0]]))
    array([[1., 2.],
           [2., 5.]])
    """
    total = np.zeros((rows.shape[1], rows.shape[1]))
    add_gram(total, rows, weights)
    return total


def add_gram(total: Matrix, rows: Matrix, weights: Vector | None = None) -> None:
    """Add Σ w x xᵀ, span by span where rows are zero outside a span of columns."""
    weighted = rows if weights is None else rows * weights[:, None]
    for chosen, columns in spans(rows):
        total[columns, columns] += weighted[chosen, columns].T @ rows[chosen, columns]


def spans(rows: Matrix) -> Iterator[tuple[Any, slice]]:
    """Rows that are zero outside the same columns, and these columns."""
    count, dim = rows.shape
    if dim >= WIDE and count:
        filled = rows != 0.0
        first = filled.argmax(axis=1)
        last = dim - filled[:, ::-1].argmax(axis=1)
        if 2 * int((last - first).max()) <= dim:
            spans, group = np.unique(first * (dim + 1) + last, return_inverse=True)
            for at, span in enumerate(spans.tolist()):
                yield np.flatnonzero(group == at), slice(span // (dim + 1), span % (dim + 1))
            return
    yield slice(None), slice(None)


def diagonal_blocks(matrix: Matrix) -> list[slice]:
    """The blocks of a symmetric matrix that has zeros elsewhere, in order; one if there are none.

    >>> diagonal_blocks(np.eye(2))
    [slice(0, 2, None)]
    """
    dim = len(matrix)
    if dim < WIDE:
        return [slice(0, dim)]
    filled = matrix != 0.0
    reach = dim - filled[:, ::-1].argmax(axis=1)  # one beyond the last column in use
    reach[~filled.any(axis=1)] = 0  # of a feature that was never seen
    ends = np.flatnonzero(np.maximum.accumulate(reach) <= np.arange(1, dim + 1)) + 1
    return [slice(int(a), int(b)) for a, b in zip([0, *ends[:-1]], ends, strict=True)]


def root_of(precision: Matrix) -> Matrix:
    """A root S of the inverse: S Sᵀ = H⁻¹, in C order.

    >>> root_of(np.array([[4.0]]))
    array([[0.5]])
    """
    blocks = diagonal_blocks(precision)
    if len(blocks) == 1:
        return _root(precision)
    root = np.zeros_like(precision)
    for block in blocks:
        root[block, block] = _root(precision[block, block])
    return root


def _root(precision: Matrix) -> Matrix:
    factor, failed = dpotrf(precision, lower=1, clean=1)
    if not failed:
        inverse, failed = dtrtri(factor, lower=1)
    if not failed:
        return np.ascontiguousarray(inverse.T)
    # Rounding has made a direction of H vanish. Equal scales first, then the spectrum's floor.
    floor = np.finfo(float).eps * len(precision)
    diagonal = np.diag(precision)
    scale = 1.0 / np.sqrt(np.maximum(diagonal, floor * diagonal.max()))
    values, vectors = np.linalg.eigh(precision * scale[:, None] * scale)
    values = np.maximum(values, floor * values[-1])
    return np.ascontiguousarray(scale[:, None] * vectors / np.sqrt(values))
