"""Types for sets of kernels, and the set of plain kernels."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from belated.core.inputs import Matrix, Vector
from belated.model.kernels.pages import sip_hash
from belated.model.kernels.source import (
    Blocks,
    amend,
    argmax_ucb_all,
    count,
    count_all,
    learn,
    sampled,
    score,
    unlearn,
    upper,
)


@dataclass(eq=False)
class Kernels:
    """A set of plain or compiled kernels; the set from :func:`best` changes as kernels load."""

    argmax_ucb_all: Callable[..., int]
    count: Callable[[Matrix, Vector, float], float]
    learn: Callable[[Matrix, Vector, Vector, float, Any, float], float]
    upper: Callable[..., tuple[int, int, float, float]]
    sampled: Callable[..., tuple[int, float, float, float]]
    score: Callable[[Matrix, Blocks, Matrix, Matrix], tuple[Vector, Vector]]
    count_all: Callable[[Matrix, Matrix, Blocks, Vector], int]
    unlearn: Callable[[Matrix, Vector, Vector, float, float, Any, float, float], float]
    amend: Callable[[Matrix, Vector, Vector, float, float], bool]
    sip_hash: Callable[[int, int, int, int, int, int], int]


@dataclass(frozen=True, eq=False)
class PageKernels:
    """The kernels for pages of records, which are only useful when compiled."""

    crc_all: Callable[..., int]
    fold_page: Callable[..., int]


_PLAIN = Kernels(
    argmax_ucb_all, count, learn, upper, sampled, score, count_all, unlearn, amend, sip_hash
)


def plain() -> Kernels:
    """Return the kernels that use NumPy and BLAS."""
    return _PLAIN
