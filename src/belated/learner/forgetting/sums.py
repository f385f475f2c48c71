"""Sums in which everything counts for half as much after each half-life."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from belated.exceptions import InvalidInput
from belated.inputs import Matrix, Vector
from belated.kernels.blocks import gram

#: Half-lives after which something counts for nothing beside what is new.
GONE = 64


class DecayedSum:
    """Σ 2^(-age/h) v, kept relative to an epoch: the age of a term need not be known to add it.

    The epoch is a whole number of half-lives, the one of the latest term. So moving it multiplies
    by a power of two, which is exact: terms may come in any order, be taken out again, and be
    summed apart and merged, and the sum is the same to rounding.

    Args:
        half_life: in microseconds.
        shape: of a term.

    >>> total = DecayedSum(10, (1,))
    >>> total.add(0, np.array([1.0]))
    >>> total.add(20, np.array([1.0]))
    >>> total.at(20), total.at(30)
    (array([1.25]), array([0.625]))
    """

    def __init__(self, half_life: int, shape: tuple[int, ...]) -> None:
        self.half_life = half_life
        self.epoch: int | None = None
        self._total: NDArray[np.float64] = np.zeros(shape)

    def add(self, time: int, term: Vector | Matrix, sign: float = 1.0) -> None:
        """Add a term of some time; with a sign of -1, take it out."""
        whole, rest = divmod(time, self.half_life)
        self._move_to(whole)
        assert self.epoch is not None
        self._total += math.ldexp(sign * 2.0 ** (rest / self.half_life), whole - self.epoch) * term

    def add_rows(self, times: NDArray[np.int64], rows: Matrix, weights: Vector) -> None:
        """Add Σ w x xᵀ; negative weights take rows out."""
        if not len(times):
            return
        whole, rest = np.divmod(times, self.half_life)
        self._move_to(int(whole.max()))
        shift = np.maximum(whole - self.epoch, -4 * GONE * GONE).astype(np.int32)
        factors = np.ldexp(np.exp2(rest / self.half_life), shift)
        self._total += gram(rows, weights * factors)

    def at(self, time: int) -> NDArray[np.float64]:
        """The sum with the ages that its terms have at some time."""
        if self.epoch is None:
            return self._total.copy()
        whole, rest = divmod(time, self.half_life)
        scale = math.ldexp(2.0 ** (-rest / self.half_life), min(self.epoch - whole, 1000))
        return scale * self._total

    def clear(self) -> None:
        """Forget all terms."""
        self._total[:] = 0.0
        self.epoch = None

    def __add__(self, other: DecayedSum) -> DecayedSum:
        if other.half_life != self.half_life:
            message = f"sums of half-lives {self.half_life} and {other.half_life} do not add"
            raise InvalidInput(message, other.half_life)
        merged = DecayedSum(self.half_life, self._total.shape)
        for one in (self, other):
            if one.epoch is not None:
                merged._move_to(one.epoch)
                assert merged.epoch is not None
                merged._total += np.ldexp(one._total, _held(one.epoch - merged.epoch))
        return merged

    def _move_to(self, whole: int) -> None:
        if self.epoch is None:
            self.epoch = whole
        elif whole > self.epoch:
            self._total = np.ldexp(self._total, _held(self.epoch - whole))
            self.epoch = whole


def shares_at(times: NDArray[np.int64], now: int, half_life: int) -> Vector:
    """What decisions of some times count for now.

    >>> shares_at(np.array([0, 10, 20]), now=20, half_life=10)
    array([0.25, 0.5 , 1.  ])
    """
    return np.exp2((times - now) / half_life)


def _held(shift: int) -> int:
    """A power of two that ldexp takes; beyond it nothing is left."""
    return max(shift, -100_000)
