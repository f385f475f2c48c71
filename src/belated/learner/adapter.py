"""Between a ledger and the learner: which row a decision has, and where its reward was learned."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from belated.events import Decision
from belated.exceptions import JournalMismatch
from belated.inputs import Row, Vector
from belated.kernels.memory import Table
from belated.learner.learner import Learner
from belated.learner.rows import Rows
from belated.learner.window import DecisionWindow
from belated.tuning import USUAL, Tuning

#: In ``place`` and ``handle``.
NOWHERE = -1
_NO_ROW: Vector = np.empty(0)


class _Columns(Table):
    columns: ClassVar = {"place": "i", "handle": "i", "weight": "d"}
    place: memoryview[int]  # of its row, while it is kept here
    handle: memoryview[int]  # of its observation
    weight: memoryview[float]


class LearnerAdapter:
    """Hears of the changes in one partition, and passes them on to the learner.

    A decision has its row here while it may still be learned, and in the observations of its
    partition once it was. The weight it is pending with is the slope at the mean that was predicted
    for it, over the dispersion that was known then.

    If the policy learns at the end of a window, rewards are held back here. The window is of the
    decisions in this partition, its share of all: no partition knows the order in another.

    Args:
        learner: to be told.
        partition: of its observations.
        tuning: sizes.
    """

    def __init__(self, learner: Learner, partition: int = 0, tuning: Tuning = USUAL) -> None:
        self.learner = learner
        self._recent = tuning.recent
        self.partition = partition
        self.base = 0
        family = learner.policy.family
        self._least, self._most = family.support.lower, family.support.upper
        #: How many were ever expected, those that left without a reward too.
        self.decisions = 0
        self._rows = Rows(learner.policy.dim)
        self._columns = _Columns()
        self._window: DecisionWindow | None = None
        if (after := learner.policy.learns_after) is not None:
            size = -(-after // len(learner.observations))
            self._window = DecisionWindow(size, self._learn, self._withdraw, self._recall)
        # The last ones, with their rows until they are learned: the columns end where these begin.
        self._first = 0
        self._fresh: list[tuple[Vector, float, int]] = []

    def enter(self, number: int, decision: Decision, expected: bool = False) -> None:
        """Keep its row; where it is ``expected``, its reward is out."""
        x = decision.x
        if len(x) != self._rows.dim:
            x = padded(x, self._rows.dim)
        # Frozen here: what is added to the sums is what is taken out of them later.
        weight = self.learner.model.weight_at(decision.mean)
        row = x.astype(np.float64)
        self._fresh.append((row, weight, NOWHERE))
        if expected:
            self.decisions += 1
            self.learner.add_pending(row, weight)
        if len(self._fresh) == self._recent:
            self._put_away()
        if self._window is not None:
            self._window.made(number, expected=expected)

    def add_pending(self, number: int, again: bool = False) -> None:
        """Its reward is pending."""
        if self._window is not None and self._window.is_over(number):
            return
        if again:
            self._recall(number)
        else:
            self.decisions += 1
            self.learner.add_pending(*self._row(number))
        if self._window is not None:
            self._window.add_pending(number)

    def _recall(self, number: int) -> None:
        self.learner.restore_pending(*self._row(number))

    def remove_pending(self, number: int) -> None:
        """Its reward is waited for no longer."""
        if self._window is None or self._window.leave(number):
            self._withdraw(number)

    def _withdraw(self, number: int) -> None:
        self.learner.remove_pending(*self._row(number))

    def learn(self, number: int, value: float) -> None:
        """Its reward is known."""
        if self._window is None:
            self._learn(number, value)
        elif not self._window.learn(number, value):
            self._free(number)

    def _learn(self, number: int, value: float) -> None:
        """Its row is among the observations from now on."""
        if not self._least <= value <= self._most:
            # Each part of a reward is within the support; their sum need not be.
            value = self._held(value)
        x, weight = self._row(number)
        handle = self.learner.learn(x, value, weight, self.partition)
        if number >= self._first:
            self._fresh[number - self._first] = _NO_ROW, weight, handle
        else:
            self._columns.handle[number - self.base] = handle
            self._free(number)

    def revise(self, number: int, value: float) -> None:
        """Its reward is another one."""
        if self._window is not None and (
            self._window.revise(number, value) or self._window.is_over(number)
        ):
            return
        i = self._at(number)
        self.learner.revise(self._columns.handle[i], self._held(value), self.partition)

    def retract(self, number: int) -> None:
        """Its reward does not count any longer; its row is kept here again."""
        if self._window is not None and self._window.leave(number):
            self._withdraw(number)
            return
        i = self._at(number)
        if self._columns.handle[i] == NOWHERE:  # it came after the window
            return
        x = self.learner.retract(self._columns.handle[i], self.partition)
        self._columns.handle[i] = NOWHERE
        self._columns.place[i] = self._rows.put(x.astype(np.float32))

    def forget(self, number: int) -> None:
        """It is settled for good: nothing will come that changes it."""
        if self._window is not None:
            self._window.end(number)
        self._free(number)

    def _free(self, number: int) -> None:
        """Its row is needed no longer, if it is still here."""
        i = self._at(number)
        if self._columns.place[i] != NOWHERE:
            self._rows.free(self._columns.place[i])
            self._columns.place[i] = NOWHERE

    def drop(self, count: int) -> None:
        """The first ``count`` are gone."""
        self._put_away()
        self._columns.drop(count)
        self.base += count

    def pack(self) -> dict[str, bytes]:
        """The columns, the rows that are kept here, and the observations, as bytes."""
        self._put_away()
        places = self._columns.place[: len(self._columns)]
        kept = [self._rows.get(place) for place in places if place != NOWHERE]
        return {
            "account base": self.base.to_bytes(8),
            "account decisions": self.decisions.to_bytes(8),
            **{f"account {name}": data for name, data in self._columns.pack().items()},
            "account rows": b"".join(row.tobytes() for row in kept),
            **({} if self._window is None else self._window.pack()),
            **self.learner.pack(self.partition),
        }

    def unpack(self, pieces: dict[str, bytes]) -> None:
        """Take what :meth:`pack` gave, in an empty account; the learner is told nothing."""
        self.base = int.from_bytes(pieces["account base"])
        self.decisions = int.from_bytes(pieces["account decisions"])
        columns = self._columns
        columns.restore({name: pieces[f"account {name}"] for name in columns.columns})
        dim = self.learner.policy.dim
        rows = iter(np.frombuffer(pieces["account rows"], dtype=np.float32).reshape(-1, dim))
        for i, place in enumerate(columns.place[: len(columns)]):
            if place != NOWHERE:
                columns.place[i] = self._rows.put(next(rows))
        self._first = self.base + len(columns)
        if self._window is not None:
            self._window.unpack(pieces, self._first - 1)
        self.learner.unpack(self.partition, pieces)

    def add_all_pending(self, numbers: Sequence[int]) -> None:
        """All these are pending: after :meth:`unpack`, before anything else."""
        if self._window is not None:  # which has given up some, and holds the reward of others
            numbers = self._window.pending
        if numbers:
            at = [number - self.base for number in numbers]
            rows = np.array([self._rows.get(self._columns.place[i]) for i in at], dtype=np.float64)
            weights = np.array([self._columns.weight[i] for i in at])
            self.learner.add_all_pending(rows, weights)
        # Some left without a reward: they were decisions too.
        known = self.learner.observations[self.partition].n + len(numbers)
        self.learner.model.decisions += self.decisions - known

    def rows_of(self, numbers: NDArray[np.int64]) -> tuple[Row, NDArray[np.bool_]]:
        """The rows of decisions, and which of them are known: zeros stand for the others."""
        self._put_away()
        at = numbers - self.base
        place = np.asarray(self._columns.place)[at].astype(np.int64)
        handle = np.asarray(self._columns.handle)[at].astype(np.int64)
        rows = np.zeros((len(numbers), self._rows.dim), dtype=np.float32)
        kept, learned = place != NOWHERE, (place == NOWHERE) & (handle != NOWHERE)
        rows[kept] = self._rows.get_all(place[kept])
        rows[learned] = self.learner.rows(self.partition, handle[learned])
        return rows, kept | learned

    def _held(self, value: float) -> float:
        return min(max(value, self._least), self._most)

    def _row(self, number: int) -> tuple[Vector, float]:
        """The row of one that may still be learned, in the type of the kernels, and its weight."""
        if number >= self._first:
            x, weight, handle = self._fresh[number - self._first]
            if handle == NOWHERE:
                return x, weight
        i = self._at(number)
        # A copy: the learner keeps it, and the place may be used again.
        return self._rows.get(self._columns.place[i]).astype(np.float64), self._columns.weight[i]

    def _at(self, number: int) -> int:
        """Where it is in the columns."""
        if number >= self._first:
            self._put_away()
        return number - self.base

    def _put_away(self) -> None:
        """Whatever is fresh goes into the columns."""
        columns = self._columns
        first = columns.add(len(self._fresh))
        for i, (x, weight, handle) in enumerate(self._fresh, first):
            kept = handle == NOWHERE
            columns.place[i] = self._rows.put(x.astype(np.float32)) if kept else NOWHERE
            columns.handle[i], columns.weight[i] = handle, weight
        self._fresh.clear()
        self._first = self.base + len(columns)


def padded(x: Row, dim: int) -> Row:
    """A row with zeros after it, where features have grown since.

    >>> padded(np.ones(2, dtype=np.float32), 3)
    array([1., 1., 0.], dtype=float32)
    """
    if len(x) > dim:
        message = (
            f"a decision in the journal has a row of {len(x)} numbers, not {dim}: another process"
            " has opened it with larger features; open it with those"
        )
        raise JournalMismatch(message)
    longer: Row = np.zeros(dim, dtype=np.float32)
    longer[: len(x)] = x
    return longer
