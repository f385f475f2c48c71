"""The root by which a covariance is kept."""

from __future__ import annotations

import numpy as np

from belated.core.inputs import Matrix
from belated.model.kernels.blocks import diagonal_blocks
from belated.model.kernels.lapack import dpotrf, dtrtri


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
