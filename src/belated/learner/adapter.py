"""Between a ledger and the learner: which row a decision has, and where its reward was learned."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray

from belated.events import Decision
from belated.exceptions import JournalMismatch
from belated.inputs import Matrix, Row, Vector
from belated.learner.learner import Learner
from belated.learner.rows import Rows
from belated.learner.window import DecisionWindow
from belated.ledger.copies import Copies
from belated.ledger.packing import numbered
from belated.ledger.table import NOWHERE, EntryTable, handle_at, packed


class LinesWithRows(NamedTuple):
    """A copy of some lines, and of the rows that are kept of them."""

    cells: NDArray[np.int64]
    rows: Row

    def pieces(self, block: int) -> dict[str, bytes]:
        """The same as pieces of a snapshot."""
        names = block_names(block)
        return dict(zip(names, (packed(self.cells), self.rows.tobytes()), strict=True))


def block_names(block: int) -> tuple[str, str]:
    """The names of the pieces of a block."""
    return f"lines {block}", f"rows-of-lines {block}"


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
    """

    #: Whether pages of records may be folded as columns; else it is told of each change.
    takes_pages: ClassVar[bool] = True

    def __init__(self, learner: Learner, partition: int = 0) -> None:
        self.learner = learner
        self.partition = partition
        self.table = EntryTable()
        family = learner.policy.family
        self._least, self._most = family.support.lower, family.support.upper
        #: How many were ever expected, those that left without a reward too.
        self.decisions = 0
        self._rows = Rows(learner.policy.dim)
        self._window: DecisionWindow | None = None
        if (after := learner.policy.learns_after) is not None:
            size = -(-after // len(learner.observations))
            told, late = (self._learn, self._withdraw, self._recall), learner.policy.learns_late
            self._window = DecisionWindow(size, *told, late=late)

    def enter(self, number: int, decision: Decision, expected: bool = False) -> None:
        """Keep its row; where it is ``expected``, its reward is out."""
        x = decision.x
        if len(x) != self._rows.dim:
            x = padded(x, self._rows.dim)
        # Frozen here: what is added to the sums is what is taken out of them later.
        weight = self.learner.model.weight_at(decision.mean)
        table, i = self.table, number - self.table.base
        table.weight[i], table.where[i] = weight, self._rows.put(x)
        if expected:
            self.decisions += 1
            self.learner.add_pending(x.astype(np.float64), weight)
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
        window = self._window
        if window is None or window.leave(number) or window.late:
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
        where, i = self.table.where, number - self.table.base
        self.table.touch(i)
        self._rows.free(where[i])
        where[i] = handle_at(handle)

    def learn_page(self, first: int, rows: Row, learned: Matrix) -> None:
        """Many at once, which the table knows already; the learner is in bulk, and no window is.

        Args:
            first: the first line of a decision that is new.
            rows: of the rewards.
            learned: their values, the weights of their decisions, and 1 where a decision is not
                among the new ones.
        """
        where = self.table.column("where")[first:]
        pending = where > NOWHERE
        self.decisions += len(where)
        self.learner.take_page(
            len(where),
            self._rows.get_all(where[pending]),
            self.table.column("weight")[first:][pending],
            rows,
            learned,
            self.partition,
        )

    def revise(self, number: int, value: float) -> None:
        """Its reward is another one."""
        if self._window is not None and (
            self._window.revise(number, value) or self._window.is_over(number)
        ):
            return
        handle = handle_at(self.table.where[number - self.table.base])
        self.learner.revise(handle, self._held(value), self.partition)

    def retract(self, number: int) -> None:
        """Its reward does not count any longer; its row is kept here again."""
        if self._window is not None and self._window.leave(number):
            self._withdraw(number)
            return
        where, i = self.table.where, number - self.table.base
        if where[i] >= NOWHERE:  # it came after the window
            return
        self.table.touch(i)
        x = self.learner.retract(handle_at(where[i]), self.partition)
        where[i] = self._rows.put(x.astype(np.float32))

    def forget(self, number: int) -> None:
        """It is settled for good: nothing will come that changes it."""
        if self._window is not None:
            self._window.end(number)
        self._free(number)

    def _free(self, number: int) -> None:
        """Its row is needed no longer, if it is still here or among the observations."""
        where, i = self.table.where, number - self.table.base
        self.table.touch(i)
        if where[i] > NOWHERE:
            self._rows.free(where[i])
        elif where[i] < NOWHERE:
            self.learner.forget(handle_at(where[i]), self.partition)
        where[i] = NOWHERE

    def pack(self) -> dict[str, bytes]:
        """All that is kept beside the table and its rows, and the observations, as bytes."""
        return {
            "account decisions": self.decisions.to_bytes(8),
            **({} if self._window is None else self._window.pack()),
            **self.learner.pack(self.partition),
        }

    def begin_copies(self, blocks: Mapping[int, slice]) -> Copies[LinesWithRows]:
        """Begin to copy lines and their rows; what changes meanwhile is copied first."""
        self.table.copies = copies = Copies(blocks, self.copy)
        return copies

    def copy(self, lines: slice) -> LinesWithRows:
        """Copy lines, and the rows that are kept of them."""
        return LinesWithRows(self.table.cells[lines].copy(), self.kept_rows(lines))

    def unpack(self, pieces: dict[str, bytes]) -> None:
        """Take what :meth:`pack` gave, once the table is restored; the learner is told nothing."""
        self.decisions = int.from_bytes(pieces["account decisions"])
        where = self.table.column("where")
        rows = np.frombuffer(b"".join(numbered(pieces, "rows-of-lines")), dtype=np.float32)
        where[where > NOWHERE] = self._rows.put_all(rows.reshape(-1, self._rows.dim))
        if self._window is not None:
            self._window.unpack(pieces, self.table.next - 1)
        self.learner.unpack(self.partition, pieces, handle_at(where[where < NOWHERE]))

    def add_all_pending(self, numbers: NDArray[np.int64]) -> None:
        """All these are pending: after :meth:`unpack`, before anything else."""
        numbers = self._expected(numbers)
        if len(numbers):
            at = numbers - self.table.base
            rows = self._rows.get_all(self.table.column("where")[at]).astype(np.float64)
            self.learner.add_all_pending(rows, self.table.column("weight")[at])
        # Some left without a reward: they were decisions too.
        known = self.learner.observations[self.partition].n + len(numbers)
        self.learner.model.decisions += self.decisions - known

    def _expected(self, pending: NDArray[np.int64]) -> NDArray[np.int64]:
        """The decisions that the learner expects, of those and others that are pending.

        A window has given up some, and holds the reward of others.
        """
        if self._window is None:
            return pending
        held = np.array(self._window.pending, dtype=np.int64)
        return np.union1d(pending, held) if self._window.late else held

    def kept_rows(self, lines: slice = slice(None)) -> Row:
        """The rows of decisions that may still be learned, in the order of their lines."""
        where = self.table.column("where")[lines]
        return self._rows.get_all(where[where > NOWHERE])

    def rows_of(self, numbers: NDArray[np.int64]) -> tuple[Row, NDArray[np.bool_]]:
        """The rows of decisions, and which of them are known: zeros stand for the others."""
        where = self.table.column("where")[numbers - self.table.base]
        rows = np.zeros((len(numbers), self._rows.dim), dtype=np.float32)
        kept, learned = where > NOWHERE, where < NOWHERE
        rows[kept] = self._rows.get_all(where[kept])
        rows[learned] = self.learner.rows(self.partition, handle_at(where[learned]))
        return rows, kept | learned

    def _held(self, value: float) -> float:
        return min(max(value, self._least), self._most)

    def _row(self, number: int) -> tuple[Vector, float]:
        """The row of one that may still be learned, in the type of the kernels, and its weight."""
        table, i = self.table, number - self.table.base
        # A copy: the learner keeps it, and the place may be used again.
        return self._rows.get(table.where[i]).astype(np.float64), table.weight[i]


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
