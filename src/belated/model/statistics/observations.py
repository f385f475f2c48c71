"""Rows with their rewards; the newest are stored individually, the oldest as sums."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from struct import Struct
from typing import Any

import numpy as np
from numpy.typing import NDArray

from belated.core.inputs import Matrix, Row, Vector, as_reward, as_rewards, as_row, as_rows
from belated.exceptions import InvalidInput, UnknownHandle
from belated.model.blocks import Shape, as_shape, width_of
from belated.model.families import Family, Gaussian
from belated.model.kernels.memory import zeros
from belated.model.statistics.sums import FrozenSums, Moments, Quadratic

#: Number of rows in a full block of observations.
BLOCK = 8_192
#: Number of float64 values in a chunk of rows, so that a chunk fits into the CPU cache.
CHUNK = 1 << 16
# Header of the serialized sums: index of the newest block, and number of rows per block.
_HEAD = Struct("<qq")


class _Block:
    """Observations stored by column. Rows are append-only; the other columns can change."""

    def __init__(self, width: int, theta: Vector | None = None) -> None:
        self.rows: Row = zeros((64, width), np.float32)
        self.y: Vector = zeros((64,), np.float64)
        self.counted: NDArray[np.bool_] = zeros((64,), np.bool_)
        self.used = 0
        #: Number of rows that may still be revised or removed.
        self.open = 0
        #: The θ at which the rows were frozen; None if they count individually.
        self.theta = theta

    def append(self, rows: Row, y: Vector, most: int) -> None:
        stop = self.used + len(rows)
        if stop > len(self.rows):
            size = min(most, max(stop, 2 * len(self.rows)))
            self.rows = _grown(self.rows, self.used, size)
            self.y = _grown(self.y, self.used, size)
            self.counted = _grown(self.counted, self.used, size)
        self.rows[self.used : stop] = rows
        self.y[self.used : stop] = y
        self.counted[self.used : stop] = True
        self.open += len(rows)
        self.used = stop

    def copy(self) -> _Block:
        twin = _Block.__new__(_Block)
        # Rows are shared: they are written once, and further rows are appended elsewhere.
        twin.rows = self.rows[: self.used]
        twin.y = self.y[: self.used].copy()
        twin.counted = self.counted[: self.used].copy()
        twin.used, twin.open, twin.theta = self.used, self.open, self.theta
        return twin

    def sums(self, family: Family, theta: Vector) -> FrozenSums:
        """Return the sums of the counted rows at θ."""
        counted = self.counted[: self.used]
        return FrozenSums.of(
            self.rows[: self.used][counted], self.y[: self.used][counted], family, theta
        )


class Observations:
    """Rows with their rewards; each observation can be revised or removed by its handle.

    If the family is known, old rows can be frozen (:meth:`freeze`). They then count as a quadratic
    at the current θ, and can still be revised and removed. Rows that can no longer change
    (:meth:`forget`) can be dropped. Gaussian rewards are frozen immediately, because their sums are
    sufficient statistics.

    Args:
        shape: shape of θ; an integer if there are no blocks.
        family: reward family; None if no rows will be frozen.
        block: number of rows that are frozen and dropped together.

    >>> seen = Observations(2)
    >>> handle = seen.add([0.5, 1.0], 1.0)
    >>> seen.revise(handle, 0.0)  # returns the previous reward
    1.0
    >>> seen.n
    1
    >>> seen.remove(handle)
    >>> seen.n
    0
    """

    def __init__(
        self, shape: int | Shape, family: Family | None = None, *, block: int | None = None
    ) -> None:
        self.shape = as_shape(shape)
        self.width = width_of(self.shape)
        self.family = family
        #: Number of observations, excluding removed ones.
        self.n = 0
        #: Number of observations that count individually.
        self.exact = 0
        self._size = BLOCK if block is None else block
        self._blocks: dict[int, _Block] = {}
        self._last = -1  # index of the newest block
        self._sealed = 0  # blocks below this index are shared with another store: do not append
        self._frozen = FrozenSums.zero(self.shape)
        self._anywhere = np.zeros(self.shape) if isinstance(family, Gaussian) else None

    def add(self, x: Any, y: Any) -> int:
        """Add an observation; return its handle."""
        row, reward = as_row(x, self.width), as_reward(y)
        return self._take(row[None, :], np.array([reward]))[0]

    def extend(self, rows: Any, y: Any) -> list[int]:
        """Add several observations; return their handles in order."""
        table = as_rows(rows, self.width)
        return self._take(table, as_rewards(y, len(table)))

    def _take(self, rows: Row, y: Vector) -> list[int]:
        handles: list[int] = []
        start = 0
        while start < len(rows):
            block = self._open()
            stop = min(len(rows), start + self._size - block.used)
            first = self._last * self._size + block.used
            handles.extend(range(first, first + stop - start))
            block.append(rows[start:stop], y[start:stop], self._size)
            start = stop
        self.n += len(rows)
        if self._anywhere is None:
            self.exact += len(rows)
        elif self.family is not None and len(rows):
            self._frozen += FrozenSums.of(rows, y, self.family, self._anywhere)
        return handles

    def revise(self, handle: int, y: Any) -> float:
        """Replace the reward of an observation; return the previous one."""
        reward = as_reward(y)
        block, at = self._find(handle)
        before = float(block.y[at])
        if block.theta is not None:
            self._frozen = self._frozen.revised(block.rows[at], before, reward)
        block.y[at] = reward
        return before

    def remove(self, handle: int) -> None:
        """Remove an observation from all sums and fits."""
        block, at = self._find(handle)
        if block.theta is None:
            self.exact -= 1
        elif self.family is not None:
            rows, y = block.rows[at : at + 1], block.y[at : at + 1]
            self._frozen -= FrozenSums.of(rows, y, self.family, block.theta)
        block.counted[at] = False
        block.open -= 1
        self.n -= 1

    def get(self, handle: int) -> tuple[Row, float]:
        """Return the row and the reward of an observation."""
        block, at = self._find(handle)
        row = block.rows[at]
        row.flags.writeable = False  # merged stores share their rows
        return row, float(block.y[at])

    def rows(self, handles: NDArray[np.int64]) -> Row:
        """Return the rows of observations, including removed ones."""
        table = np.empty((len(handles), self.width), dtype=np.float32)
        blocks, places = handles // self._size, handles % self._size
        for index in set(blocks.tolist()):  # np.unique imports a module on its first call
            here = blocks == index
            table[here] = self._blocks[index].rows[places[here]]
        return table

    def since(self, handle: int) -> tuple[Row, Vector]:
        """Return the rows and rewards at and after a handle, excluding removed observations."""
        rows, rewards = [np.empty((0, self.width), dtype=np.float32)], [np.empty(0)]
        for index, block in self._blocks.items():
            if index < handle // self._size:
                continue
            first = max(0, handle - index * self._size)
            counted = block.counted[first : block.used]
            rows.append(block.rows[first : block.used][counted])
            rewards.append(block.y[first : block.used][counted])
        return np.concatenate(rows), np.concatenate(rewards)

    def n_by_block(self) -> NDArray[np.int64]:
        """Return the number of stored rows, excluding removed ones, per block of coefficients."""
        blocks = [
            stored.rows[: stored.used, 0][stored.counted[: stored.used]]
            for stored in self._blocks.values()
        ]
        numbers = np.concatenate([np.empty(0), *blocks]).astype(np.int64)
        return np.bincount(numbers, minlength=self.shape[0])

    def of_block(self, block: int) -> Observations:
        """Return the observations in one block of coefficients, as a store without blocks."""
        part = Observations(self.shape[1:], self.family, block=self._size)
        for stored in self._blocks.values():
            if stored.theta is None:
                rows = stored.rows[: stored.used]
                chosen = stored.counted[: stored.used] & (rows[:, 0] == block)
                part.extend(rows[chosen, 1:], stored.y[: stored.used][chosen])
        if frozen := self._frozen.n:
            likelihood = self._frozen.likelihood
            quadratic = Quadratic(frozen, likelihood.information[block], likelihood.pull[block])
            part._frozen = replace(FrozenSums.zero(part.shape), likelihood=quadratic)
            part._frozen = replace(part._frozen, moments=replace(part._frozen.moments, n=frozen))
            part.n += frozen
        return part

    def __add__(self, other: Observations) -> Observations:
        """Merge two stores; handles of ``other`` increase by this store's :attr:`next_block`."""
        if self.shape != other.shape:
            message = f"cannot merge rows of {self.width} numbers with rows of {other.width}"
            raise InvalidInput(message, other)
        family = other.family if self.family is None else self.family
        if other.family not in (None, family):
            message = f"cannot merge {family} rewards with {other.family} rewards"
            raise InvalidInput(message, other)
        if self._blocks and other._blocks and self._size != other._size:
            message = f"cannot merge blocks of {self._size} rows with blocks of {other._size}"
            raise InvalidInput(message, other)
        size = self._size if self._blocks else other._size
        merged = Observations(self.shape, family, block=size)
        merged.n, merged.exact = self.n + other.n, self.exact + other.exact
        merged._frozen = self._frozen + other._frozen
        for first, store in ((0, self), (self._last + 1, other)):
            for index, block in store._blocks.items():
                merged._blocks[first + index] = block.copy()
        merged._last = self._last + other._last + 1
        merged._sealed = merged._last + 1
        return merged

    @property
    def next_handle(self) -> int:
        """Handle of the next observation."""
        last = self._blocks.get(self._last)
        if last is None or last.used == self._size:
            return (self._last + 1) * self._size
        return self._last * self._size + last.used

    @property
    def next_block(self) -> int:
        """The offset that a merge adds to the handles of the right-hand store."""
        return (self._last + 1) * self._size

    # --- freezing and dropping rows -------------------------------------------------------------

    @property
    def frozen(self) -> Quadratic | None:
        """Log-likelihood of the frozen rows, in addition to the rows of :meth:`chunks`."""
        return self._frozen.likelihood if self._frozen.n else None

    def freeze(self, theta: Vector, most: int, moved: float = np.inf) -> None:
        """Freeze the oldest full blocks until at most ``most`` rows count individually.

        Frozen blocks whose rows are still stored are frozen again if θ has moved since then.

        Args:
            theta: the current estimate.
            most: maximum number of rows that count individually.
            moved: freeze a block again if the mean of g' (xᵀδ)² over all frozen rows, where δ is
                the change of θ, exceeds this value.
        """
        if self.family is None or self._anywhere is not None:
            return
        now = theta.copy()
        for block in self._blocks.values():  # oldest first
            if block.theta is not None:
                if self._frozen.moved(now - block.theta) <= moved:
                    continue
                self._frozen -= block.sums(self.family, block.theta)
            elif self.exact > most and block.used == self._size:
                self.exact -= int(block.counted.sum())
            else:
                continue
            self._frozen += block.sums(self.family, now)
            block.theta = now

    def forget(self, handles: NDArray[np.int64]) -> None:
        """Mark rows that will never be revised or removed, so that they can be dropped later."""
        for index in (handles // self._size).tolist():
            self._blocks[index].open -= 1

    def forget_others(self, handles: NDArray[np.int64]) -> None:
        """Mark all rows except these as rows that will never be revised or removed."""
        for block in self._blocks.values():
            block.open = 0
        for index in (handles // self._size).tolist():
            self._blocks[index].open += 1

    def drop_forgotten(self) -> None:
        """Drop frozen blocks whose rows can no longer change."""
        for index, block in list(self._blocks.items()):
            if block.open == 0 and block.theta is not None and block.used == self._size:
                del self._blocks[index]

    # --- reading --------------------------------------------------------------------------------

    def chunks(self, size: int) -> Iterator[tuple[Matrix, Vector, NDArray[np.bool_] | None]]:
        """Yield rows as float64 (in a reused buffer), rewards, and a mask of counted rows.

        The mask is None if all rows count. Removed rows are zeros, so they add nothing to sums.
        Frozen rows are not included; see :attr:`frozen`.
        """
        blocks = [block for block in self._blocks.values() if block.theta is None]
        buffer = np.empty((min(size, max((b.used for b in blocks), default=0)), self.width))
        for block in blocks:
            all_counted = bool(block.counted[: block.used].all())
            for start in range(0, block.used, size):
                stop = min(block.used, start + size)
                rows = buffer[: stop - start]
                rows[:] = block.rows[start:stop]
                counted = None if all_counted else block.counted[start:stop]
                if counted is not None:
                    rows[~counted] = 0.0
                yield rows, block.y[start:stop], counted

    @property
    def total(self) -> float:
        """Σ y of all observations."""
        exact = [block for block in self._blocks.values() if block.theta is None]
        parts = [float(block.y[: block.used][block.counted[: block.used]].sum()) for block in exact]
        return sum(parts, self._frozen.total)

    def moments(self) -> Moments:
        """Return the moments of all observations."""
        total = self._frozen.moments
        for block in self._blocks.values():
            counted = block.counted[: block.used]
            if block.theta is None and counted.any():
                rows, y = block.rows[: block.used][counted], block.y[: block.used][counted]
                total += Moments.of(rows, y, self.shape)
        return total

    def sums_at(self, family: Family, theta: Vector) -> FrozenSums:
        """Return the sums of all observations; those not yet frozen are expanded at θ."""
        exact = (block for block in self._blocks.values() if block.theta is None)
        return sum((block.sums(family, theta) for block in exact), self._frozen)

    def is_frozen(self, handle: int) -> bool:
        """Return whether an observation is frozen."""
        return self._find(handle)[0].theta is not None

    # --- serialization --------------------------------------------------------------------------

    def pack(self) -> dict[str, bytes]:
        """Serialize all blocks and sums; the rows of a full block never change."""
        pieces = {"frozen": _HEAD.pack(self._last, self._size) + self._frozen.pack()}
        for index, block in self._blocks.items():
            name = f"rows {index}" if block.used == self._size else f"rows {index} so far"
            pieces[name] = block.rows[: block.used].tobytes()
            pieces[f"y {index}"] = block.y[: block.used].tobytes()
            pieces[f"counted {index}"] = block.counted[: block.used].tobytes()
            if block.theta is not None:
                pieces[f"frozen-at {index}"] = block.theta.tobytes()
        return pieces

    def unpack(self, pieces: dict[str, bytes]) -> None:
        """Restore an empty store from the result of :meth:`pack`."""
        self._last, self._size = _HEAD.unpack_from(pieces["frozen"])
        self._frozen = FrozenSums.read(pieces["frozen"][_HEAD.size :], self.shape)
        self.n = self._frozen.n
        for index in sorted(int(name[2:]) for name in pieces if name.startswith("y ")):
            at = pieces.get(f"frozen-at {index}")
            theta = None if at is None else np.frombuffer(at).reshape(self.shape)
            block = _Block(self.width, theta)
            rows = pieces.get(f"rows {index}") or pieces[f"rows {index} so far"]
            block.rows = np.frombuffer(rows, dtype=np.float32).reshape(-1, self.width)
            block.y = np.frombuffer(pieces[f"y {index}"]).copy()
            block.counted = np.frombuffer(pieces[f"counted {index}"], dtype=np.bool_).copy()
            block.used = len(block.y)
            counted = block.open = int(block.counted.sum())
            self._blocks[index] = block
            if at is None:
                self.exact += counted
                self.n += counted

    def _open(self) -> _Block:
        block = self._blocks.get(self._last)
        if block is None or self._last < self._sealed or block.used == self._size:
            self._last += 1
            block = self._blocks[self._last] = _Block(self.width, self._anywhere)
        return block

    def _find(self, handle: int) -> tuple[_Block, int]:
        index, at = divmod(handle, self._size)
        block = self._blocks.get(index)
        if block is not None and at < block.used and block.counted[at]:
            return block, at
        raise UnknownHandle(handle)


def _grown(column: NDArray[Any], used: int, size: int) -> NDArray[Any]:
    larger = zeros((size, *column.shape[1:]), column.dtype)
    larger[:used] = column[:used]
    return larger
