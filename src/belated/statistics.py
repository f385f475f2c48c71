r"""Things that add: the sums a learner keeps, apart from any estimate made of them.

What adds, and how exactly:

* **Counts** add exactly.
* :class:`Moments` and :class:`Information` are sums of float64 products. They add and subtract to
  rounding: any order, any split and any number of partitions give the same sums to about 1e-12 of
  their size, and removing what was added restores them to as much.
* :class:`Observations` are a set of rows. Merging them loses nothing; a fit of the merged set is
  the fit of all rows, in whatever order they came.
* **Estimates do not add.** Two partitions' :math:`\hat\theta` cannot be merged into that of their
  union (but for Gaussian rewards, where Moments hold all there is): merge the statistics, then fit.
* The **information of pending decisions**, :math:`\sum g'(\bar\eta_s)\,x_s x_s^\top/\varphi`, adds
  because the predicted :math:`\bar\eta_s` is frozen at the choice.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from belated.exceptions import InvalidInput, UnknownHandle
from belated.inputs import (
    Matrix,
    Row,
    Vector,
    as_dim,
    as_numbers,
    as_reward,
    as_rewards,
    as_row,
    as_rows,
)
from belated.kernels.blocks import gram
from belated.kernels.memory import zeros

#: Rows in a full block of observations.
BLOCK = 1 << 16


@dataclass(frozen=True, eq=False)
class Moments:
    """All that Gaussian rewards say: n, Σ x xᵀ, Σ x y and Σ y².

    >>> a = Moments.of([[1.0, 0.0], [1.0, 1.0]], [2.0, 3.0])
    >>> (a + a - a).n
    2
    >>> a.gram
    array([[2., 1.],
           [1., 1.]])
    """

    n: int
    gram: Matrix
    cross: Vector
    square: float

    @classmethod
    def zero(cls, dim: int) -> Moments:
        """The moments of nothing."""
        dim = as_dim(dim)
        return cls(0, np.zeros((dim, dim)), np.zeros(dim), 0.0)

    @classmethod
    def of(cls, rows: Any, y: Any) -> Moments:
        """The moments of these rows and their rewards."""
        given = as_numbers(rows, "rows")
        if given.ndim != 2 or given.shape[1] == 0:
            raise InvalidInput(f"rows has shape {given.shape}: a table was expected", rows)
        table = as_rows(given, given.shape[1])
        rewards = as_rewards(y, len(table))
        exact = table.astype(np.float64)
        return cls(len(table), gram(exact), rewards @ exact, float(rewards @ rewards))

    @property
    def dim(self) -> int:
        """The width of a row."""
        return len(self.cross)

    def __add__(self, other: Moments) -> Moments:
        return self._combined(other, 1)

    def __sub__(self, other: Moments) -> Moments:
        return self._combined(other, -1)

    def _combined(self, other: Moments, sign: int) -> Moments:
        if self.dim != other.dim:
            raise InvalidInput(
                f"moments of {self.dim} and of {other.dim} numbers do not add", other
            )
        return Moments(
            self.n + sign * other.n,
            self.gram + sign * other.gram,
            self.cross + sign * other.cross,
            self.square + sign * other.square,
        )


@dataclass(frozen=True, eq=False)
class Information:
    """Σ w x xᵀ: what a set of rows tells about θ, whether or not their rewards came.

    >>> a = Information.of([[1.0, 2.0]], [0.25])
    >>> a.matrix
    array([[0.25, 0.5 ],
           [0.5 , 1.  ]])
    >>> (a + a - a).count
    1
    """

    count: int
    matrix: Matrix

    @classmethod
    def zero(cls, dim: int) -> Information:
        """The information of nothing."""
        return cls(0, np.zeros((as_dim(dim), dim)))

    @classmethod
    def of(cls, rows: Any, weights: Any) -> Information:
        """The information of these rows with their weights g'(η)/φ."""
        table = as_numbers(rows, "rows").astype(np.float64, copy=False)
        factors = as_numbers(weights, "weights").astype(np.float64, copy=False)
        if table.ndim != 2 or factors.shape != table.shape[:1]:
            message = f"rows of shape {table.shape} do not go with weights of {factors.shape}"
            raise InvalidInput(message, weights)
        matrix = gram(table, factors)
        if not np.isfinite(matrix).all():
            raise InvalidInput("a row or a weight is not finite, or too large to be added", weights)
        return cls(len(table), matrix)

    @property
    def dim(self) -> int:
        """The width of a row."""
        return len(self.matrix)

    def __add__(self, other: Information) -> Information:
        return self._combined(other, 1)

    def __sub__(self, other: Information) -> Information:
        return self._combined(other, -1)

    def _combined(self, other: Information, sign: int) -> Information:
        if self.dim != other.dim:
            message = f"information of {self.dim} and of {other.dim} numbers does not add"
            raise InvalidInput(message, other)
        return Information(self.count + sign * other.count, self.matrix + sign * other.matrix)


class _Block:
    """Up to 2^16 observations, in columns. Rows are only appended; the other columns change."""

    def __init__(self, dim: int) -> None:
        self.rows: Row = zeros((64, dim), np.float32)
        self.y: Vector = zeros((64,), np.float64)
        self.counted: NDArray[np.bool_] = zeros((64,), np.bool_)
        self.used = 0

    def append(self, rows: Row, y: Vector) -> None:
        stop = self.used + len(rows)
        if stop > len(self.rows):
            size = min(BLOCK, max(stop, 2 * len(self.rows)))
            self.rows = _grown(self.rows, self.used, size)
            self.y = _grown(self.y, self.used, size)
            self.counted = _grown(self.counted, self.used, size)
        self.rows[self.used : stop] = rows
        self.y[self.used : stop] = y
        self.counted[self.used : stop] = True
        self.used = stop

    def copy(self) -> _Block:
        twin = _Block.__new__(_Block)
        # Rows are shared: they are written once, and whoever appends further does so elsewhere.
        twin.rows = self.rows[: self.used]
        twin.y = self.y[: self.used].copy()
        twin.counted = self.counted[: self.used].copy()
        twin.used = self.used
        return twin


class Observations:
    """Rows with the rewards that came for them; each can be revised or removed by its handle.

    >>> seen = Observations(2)
    >>> handle = seen.add([0.5, 1.0], 1.0)
    >>> seen.revise(handle, 0.0)  # what it was before
    1.0
    >>> seen.n
    1
    >>> seen.remove(handle)
    >>> seen.n
    0
    """

    def __init__(self, dim: int) -> None:
        self.dim = as_dim(dim)
        #: How many observations are counted, the removed ones not.
        self.n = 0
        self._blocks: list[_Block] = []
        self._sealed = 0  # blocks below this are shared with another store: never append to them

    def add(self, x: Any, y: Any) -> int:
        """Take one observation; the handle names it from now on."""
        row, reward = as_row(x, self.dim), as_reward(y)
        block, index = self._open()
        block.append(row[None, :], np.array([reward]))
        self.n += 1
        return index << 16 | (block.used - 1)

    def extend(self, rows: Any, y: Any) -> list[int]:
        """Take many observations at once; their handles, in order."""
        table = as_rows(rows, self.dim)
        rewards = as_rewards(y, len(table))
        handles: list[int] = []
        start = 0
        while start < len(table):
            block, index = self._open()
            stop = min(len(table), start + BLOCK - block.used)
            first = index << 16 | block.used
            handles.extend(range(first, first + stop - start))
            block.append(table[start:stop], rewards[start:stop])
            start = stop
        self.n += len(table)
        return handles

    def revise(self, handle: int, y: Any) -> float:
        """Replace the reward of an observation; returns the one before."""
        reward = as_reward(y)
        block, at = self._find(handle)
        before = float(block.y[at])
        block.y[at] = reward
        return before

    def remove(self, handle: int) -> None:
        """Count an observation no longer."""
        block, at = self._find(handle)
        block.counted[at] = False
        self.n -= 1

    def has(self, handle: int) -> bool:
        """Whether the observation under a handle counts."""
        return bool(self._blocks[handle >> 16].counted[handle & (BLOCK - 1)])

    def get(self, handle: int) -> tuple[Row, float]:
        """The row and reward under a handle."""
        block, at = self._find(handle)
        row = block.rows[at]
        row.flags.writeable = False  # stores that were merged share their rows
        return row, float(block.y[at])

    def rows(self, handles: NDArray[np.int64]) -> Row:
        """The rows under handles, of those that were removed too."""
        found = np.empty((len(handles), self.dim), dtype=np.float32)
        for index in set((handles >> 16).tolist()):  # numpy's own loads a module at its first call
            here = handles >> 16 == index
            found[here] = self._blocks[index].rows[handles[here] & (BLOCK - 1)]
        return found

    def since(self, handle: int) -> tuple[Row, Vector]:
        """Rows and rewards from a handle on, of those that count."""
        rows, rewards = [np.empty((0, self.dim), dtype=np.float32)], [np.empty(0)]
        for index in range(handle >> 16, len(self._blocks)):
            block = self._blocks[index]
            first = handle & (BLOCK - 1) if index == handle >> 16 else 0
            counted = block.counted[first : block.used]
            rows.append(block.rows[first : block.used][counted])
            rewards.append(block.y[first : block.used][counted])
        return np.concatenate(rows), np.concatenate(rewards)

    def __add__(self, other: Observations) -> Observations:
        """All observations of both. Handles of ``other`` move up by :attr:`next_block` of self."""
        if self.dim != other.dim:
            raise InvalidInput(f"rows of {self.dim} and of {other.dim} numbers do not merge", other)
        merged = Observations(self.dim)
        merged.n = self.n + other.n
        merged._blocks = [block.copy() for block in (*self._blocks, *other._blocks)]
        merged._sealed = len(merged._blocks)
        return merged

    @property
    def next_handle(self) -> int:
        """The handle that the next observation gets."""
        last = len(self._blocks) - 1
        if last < 0 or self._blocks[last].used == BLOCK:
            return (last + 1) << 16
        return last << 16 | self._blocks[last].used

    @property
    def next_block(self) -> int:
        """What a merge adds to the handles of the store on its right."""
        return len(self._blocks) << 16

    def chunks(self, size: int) -> Iterator[tuple[Matrix, Vector, NDArray[np.bool_] | None]]:
        """Rows in float64 (one buffer, used again), rewards, and which count (None: all).

        Rows that do not count are zeros: they add nothing to any sum.
        """
        buffer = np.empty((min(size, max((b.used for b in self._blocks), default=0)), self.dim))
        for block in self._blocks:
            everything = bool(block.counted[: block.used].all())
            for start in range(0, block.used, size):
                stop = min(block.used, start + size)
                rows = buffer[: stop - start]
                rows[:] = block.rows[start:stop]
                counted = None if everything else block.counted[start:stop]
                if counted is not None:
                    rows[~counted] = 0.0
                yield rows, block.y[start:stop], counted

    def pack(self) -> dict[str, bytes]:
        """All blocks as bytes; the rows of a full block never change."""
        pieces = {}
        for index, block in enumerate(self._blocks):
            name = f"rows {index}" if block.used == BLOCK else f"rows {index} so far"
            pieces[name] = block.rows[: block.used].tobytes()
            pieces[f"y {index}"] = block.y[: block.used].tobytes()
            pieces[f"counted {index}"] = block.counted[: block.used].tobytes()
        return pieces

    def unpack(self, pieces: dict[str, bytes]) -> None:
        """Take what :meth:`pack` gave, in an empty store."""
        index = 0
        while f"y {index}" in pieces:
            block = _Block(self.dim)
            rows = pieces.get(f"rows {index}") or pieces[f"rows {index} so far"]
            block.rows = np.frombuffer(rows, dtype=np.float32).reshape(-1, self.dim)
            block.y = np.frombuffer(pieces[f"y {index}"]).copy()
            block.counted = np.frombuffer(pieces[f"counted {index}"], dtype=np.bool_).copy()
            block.used = len(block.y)
            self._blocks.append(block)
            self.n += int(block.counted.sum())
            index += 1

    def moments(self) -> Moments:
        """The moments of all that is counted."""
        total = Moments.zero(self.dim)
        for block in self._blocks:
            counted = block.counted[: block.used]
            if counted.any():
                total += Moments.of(
                    block.rows[: block.used][counted], block.y[: block.used][counted]
                )
        return total

    def _open(self) -> tuple[_Block, int]:
        last = len(self._blocks) - 1
        if last < self._sealed or self._blocks[last].used == BLOCK:
            self._blocks.append(_Block(self.dim))
            last += 1
        return self._blocks[last], last

    def _find(self, handle: int) -> tuple[_Block, int]:
        index, at = handle >> 16, handle & (BLOCK - 1)
        if handle >= 0 and index < len(self._blocks):
            block = self._blocks[index]
            if at < block.used and block.counted[at]:
                return block, at
        raise UnknownHandle(handle)


class Joined:
    """Several stores of observations, read as one; nothing is copied.

    >>> first, second = Observations(1), Observations(1)
    >>> handles = first.extend([[1.0]], [2.0]), second.extend([[1.0]], [3.0])
    >>> joined = Joined([first, second])
    >>> joined.n, joined.moments().cross
    (2, array([5.]))
    """

    def __init__(self, stores: Sequence[Observations]) -> None:
        self.stores = stores
        self.dim = stores[0].dim

    @property
    def n(self) -> int:
        """How many observations are counted."""
        return sum(store.n for store in self.stores)

    def chunks(self, size: int) -> Iterator[tuple[Matrix, Vector, NDArray[np.bool_] | None]]:
        """As :meth:`Observations.chunks`, one store after the other."""
        for store in self.stores:
            yield from store.chunks(size)

    def moments(self) -> Moments:
        """The moments of all that is counted."""
        return sum((store.moments() for store in self.stores), Moments.zero(self.dim))


#: What an estimator is fitted to.
Seen = Observations | Joined


def _grown(column: NDArray[Any], used: int, size: int) -> NDArray[Any]:
    larger = zeros((size, *column.shape[1:]), column.dtype)
    larger[:used] = column[:used]
    return larger
