"""Pass a ledger's changes on to the learner, and store the rows of decisions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from belated.core.events import Decision
from belated.core.inputs import Row, Vector
from belated.exceptions import JournalMismatch
from belated.fold.contexts import RowEncoder
from belated.fold.copies import Copies
from belated.fold.learner import Learner
from belated.fold.packing import numbered
from belated.fold.table import NOWHERE, EntryTable, handle_at, packed
from belated.model.kernels.memory import zeros
from belated.policies.policy import Policy

# Minimum number of rows for which space is allocated.
_FEW = 64


class Rows:
    """Rows of equal width, each stored in a numbered slot.

    >>> rows = Rows(2)
    >>> place = rows.put(np.array([1.0, 2.0], dtype=np.float32))
    >>> rows.get(place)
    array([1., 2.], dtype=float32)
    >>> rows.free(place)
    >>> rows.put(np.zeros(2, dtype=np.float32)) == place
    True
    """

    def __init__(self, dim: int) -> None:
        self.dim = dim
        #: Number of slots ever used, and how many of them are free.
        self.used = self.n_free = 0
        #: The rows, and the numbers of free slots; both arrays have spare capacity.
        self.data: Row = zeros((_FEW, dim), np.float32)
        self.places: NDArray[np.int64] = zeros((_FEW,), np.int64)

    def put(self, x: Row) -> int:
        """Store a copy of a row; return its slot."""
        if self.n_free:
            self.n_free -= 1
            place = int(self.places[self.n_free])
        else:
            self.reserve(1)
            place = self.used
            self.used = place + 1
        self.data[place] = x
        return place

    def put_all(self, rows: Row) -> NDArray[np.int64]:
        """Store copies of rows; return their slots."""
        self.reserve(len(rows))
        first, self.used = self.used, self.used + len(rows)
        self.data[first : self.used] = rows
        return np.arange(first, self.used)

    def get(self, place: int) -> Row:
        """Return a view of the row in a slot; the view is valid until the slot is freed."""
        row: Row = self.data[place]
        return row

    def get_all(self, places: NDArray[np.int64]) -> Row:
        """Return copies of the rows in these slots."""
        rows: Row = self.data[places]
        return rows

    def free(self, place: int) -> None:
        """Free a slot."""
        self.places[self.n_free] = place
        self.n_free += 1

    def free_all(self, places: NDArray[np.int64]) -> None:
        """Free several slots."""
        self.places[self.n_free : self.n_free + len(places)] = places
        self.n_free += len(places)

    def reserve(self, count: int) -> None:
        """Ensure capacity for ``count`` rows after the last used slot."""
        if self.used + count <= len(self.data):
            return
        capacity = max(self.used + count, 2 * len(self.data))
        data, places = zeros((capacity, self.dim), np.float32), zeros((capacity,), np.int64)
        data[: self.used] = self.data[: self.used]
        places[: self.n_free] = self.places[: self.n_free]
        self.data, self.places = data, places


class LinesWithRows(NamedTuple):
    """A copy of some table entries and their stored rows."""

    cells: NDArray[np.int64]
    rows: Row

    def pieces(self, block: int) -> dict[str, bytes]:
        """Return the copy as snapshot pieces."""
        names = block_names(block)
        return dict(zip(names, (packed(self.cells), self.rows.tobytes()), strict=True))


def block_names(block: int) -> tuple[str, str]:
    """Return the names of a block's snapshot pieces."""
    return f"lines {block}", f"rows-of-lines {block}"


class LearnerAdapter:
    """Receives the changes of one partition's ledger and passes them on to the learner.

    The adapter stores the row of a decision until the learner receives its reward; the row then
    moves to the observations of the partition. The weight of a pending decision is the slope at its
    predicted mean, divided by the dispersion known when the decision is folded.

    Args:
        learner: the learner.
        partition: index of the partition among the learner's observations.
        encoder: computes rows from contexts; None if callers pass rows.
    """

    def __init__(
        self, learner: Learner, partition: int = 0, encoder: RowEncoder | None = None
    ) -> None:
        self.learner = learner
        self.encoder = RowEncoder(None) if encoder is None else encoder
        self.partition = partition
        self.table = EntryTable()
        family = learner.policy.family
        self._least, self._most = family.support.lower, family.support.upper
        #: Number of decisions that have ever been pending.
        self.decisions = 0
        self._rows = Rows(learner.policy.row_width)
        # Means predicted with several half-lives, for decisions whose row is stored here.
        self._predicted: dict[int, tuple[float, ...]] = {}

    def enter(self, number: int, decision: Decision, expected: bool) -> None:
        """Add a decision: store its row and, if ``expected``, make it pending.

        Decisions for which the features cannot compute a row are ignored.
        """
        x = self.encoder.row(decision)
        if x is None:
            return
        blocks = self.learner.policy.blocks
        if len(x) != self._rows.dim or (blocks is not None and not 0 <= x[0] < blocks):
            raise wrong_row(x, self.learner.policy)
        # Store the weight, so that exactly what is added to the sums is later subtracted.
        weight = self.learner.model.weight_at(decision.mean)
        table, i = self.table, number - self.table.base
        table.weight[i], table.where[i] = weight, self._rows.put(x)
        if decision.means:
            self._predicted[number] = decision.means
        recorded = table.recorded[i]
        self.learner.weighting.entered(recorded, self.partition)
        if expected:
            self.decisions += 1
            self.learner.add_pending(x.astype(np.float64), weight, recorded)

    def add_pending(self, number: int, began: int, again: bool) -> None:
        """Make a decision pending; ``again`` is True if it was pending before."""
        if self._has_no_row(number):
            return
        if again:
            self.learner.restore_pending(*self._row(number), began)
        else:
            self.decisions += 1
            self.learner.add_pending(*self._row(number), began)

    def remove_pending(self, number: int, began: int) -> None:
        """End the pending state of a decision that gets no reward."""
        if self._has_no_row(number):
            return
        self.learner.remove_pending(*self._row(number), began)

    def move(self, number: int, before: int, began: int) -> None:
        """Change the time at which a decision took effect."""
        if not self.learner.weighting.keeps_times or self._has_no_row(number):
            return  # the age of the decision does not matter, or the decision has no row
        where = self.table.where[number - self.table.base]
        if where < NOWHERE:
            self.learner.restart(handle_at(where), began, self.partition)
        else:
            self.learner.remove_pending(*self._row(number), before)
            self.learner.restore_pending(*self._row(number), began)

    def learn(self, number: int, value: float, began: int, recorded: int) -> None:
        """Learn from the reward of a decision, and move its row to the observations."""
        if self._has_no_row(number):
            return
        # Each part of a reward is within the support, but the sum of the parts may not be.
        value = min(max(value, self._least), self._most)
        x, weight = self._row(number)
        predicted = self._predicted.pop(number, ())
        handle = self.learner.learn(x, value, weight, began, recorded, self.partition, predicted)
        where, i = self.table.where, number - self.table.base
        self.table.touch(i)
        self._rows.free(where[i])
        where[i] = handle_at(handle)

    def learn_page(
        self,
        first: int,
        rows: Row,
        values: Vector,
        weights: Vector,
        old: NDArray[np.bool_],
        times: NDArray[np.int64],
    ) -> None:
        """Add many decisions and rewards that are already in the table, in bulk mode.

        Args:
            first: index of the first new entry.
            rows: the rows of decisions with rewards.
            values: the rewards.
            weights: the pending weights of these decisions.
            old: whether each of these decisions was already in the table.
            times: when each of these decisions and its reward were recorded.
        """
        table = self.table
        where = table.column("where")[first:]
        pending = where > NOWHERE
        self.decisions += len(where)
        weight, began = (table.column(name)[first:][pending] for name in ("weight", "recorded"))
        added = self._rows.get_all(where[pending]), weight, began
        arrived = rows, weights, times[:, 0]
        rewards = values, times[:, 1]
        self.learner.learn_page(len(where), added, arrived, rewards, old, self.partition)

    def learn_all(self, numbers: Sequence[int]) -> None:
        """Learn from the rewards that the table contains for pending decisions, in bulk mode."""
        table, learner = self.table, self.learner
        lines = np.array(numbers) - table.base
        where = table.column("where")
        places, first = where[lines], learner.next_handle(self.partition)
        rows = self._rows.get_all(places)
        self._rows.free_all(places)
        where[lines] = handle_at(np.arange(first, first + len(lines)))
        values, weights, began, recorded = (
            table.column(name)[lines] for name in ("value", "weight", "recorded", "reward_recorded")
        )
        old, times = np.ones(len(lines), dtype=np.bool_), np.stack([began, recorded], axis=1)
        self.learn_page(len(table), rows, values, weights, old, times)

    def revise(self, number: int, value: float, recorded: int) -> None:
        """Change the reward of a decision."""
        if self._has_no_row(number):
            return
        handle = handle_at(self.table.where[number - self.table.base])
        value = min(max(value, self._least), self._most)
        self.learner.revise(handle, value, recorded, self.partition)

    def retract(self, number: int, recorded: int) -> None:
        """Remove the reward of a decision, and store its row here again."""
        if self._has_no_row(number):
            return
        where, i = self.table.where, number - self.table.base
        handle, learner = handle_at(where[i]), self.learner
        self.table.touch(i)
        if learner.weighting.rivals:
            predicted = tuple(learner.times[self.partition].predicted[handle].tolist())
            if predicted[0] == predicted[0]:
                self._predicted[number] = predicted
        x = learner.retract(handle, recorded, self.partition)
        where[i] = self._rows.put(x.astype(np.float32))

    def forget(self, number: int) -> None:
        """Release a decision that can no longer change, along with its row."""
        where, i = self.table.where, number - self.table.base
        self.table.touch(i)
        if where[i] > NOWHERE:
            self._rows.free(where[i])
        elif where[i] < NOWHERE:
            self.learner.forget(handle_at(where[i]), self.partition)
        where[i] = NOWHERE
        self._predicted.pop(number, None)

    def _has_no_row(self, number: int) -> bool:
        return self.table.where[number - self.table.base] == NOWHERE

    def with_rows(self, numbers: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the numbers of the decisions that have a row."""
        has_row: NDArray[np.bool_] = (
            self.table.column("where")[numbers - self.table.base] != NOWHERE
        )
        return numbers[has_row]

    def finish(self, recorded: int) -> None:
        """Finish a record, after all of its changes have been passed on."""
        self.learner.finish(recorded)

    def pack(self) -> dict[str, bytes]:
        """Serialize the state, including observations but not the table and its rows."""
        pieces = {"account decisions": self.decisions.to_bytes(8)}
        if self._predicted:
            numbers = np.array(list(self._predicted), dtype=np.int64)
            pieces["compared-of"] = numbers.tobytes()
            pieces["compared"] = np.array(list(self._predicted.values())).tobytes()
        return pieces | self.learner.pack(self.partition)

    def begin_copies(self, blocks: Mapping[int, slice]) -> Copies[LinesWithRows]:
        """Begin copying entries and their rows; each block is copied before it changes."""
        self.table.copies = copies = Copies(blocks, self.copy)
        return copies

    def copy(self, lines: slice) -> LinesWithRows:
        """Copy entries and their stored rows."""
        return LinesWithRows(self.table.cells[lines].copy(), self.kept_rows(lines))

    def unpack(self, pieces: dict[str, bytes]) -> None:
        """Restore the result of :meth:`pack` once the table is restored.

        Pending decisions are added later, by :meth:`add_all_pending`.
        """
        self.decisions = int.from_bytes(pieces["account decisions"])
        where = self.table.column("where")
        rows = np.frombuffer(b"".join(numbered(pieces, "rows-of-lines")), dtype=np.float32)
        where[where > NOWHERE] = self._rows.put_all(rows.reshape(-1, self._rows.dim))
        if "compared-of" in pieces:
            numbers = np.frombuffer(pieces["compared-of"], dtype=np.int64).tolist()
            means = np.frombuffer(pieces["compared"]).reshape(len(numbers), -1).tolist()
            self._predicted = dict(zip(numbers, map(tuple, means), strict=True))
        self.learner.unpack(self.partition, pieces, handle_at(where[where < NOWHERE]))

    def add_all_pending(self, numbers: NDArray[np.int64]) -> None:
        """Make decisions pending; called directly after :meth:`unpack`."""
        if len(numbers):
            rows, weights = self.pending_rows(numbers)
            self.learner.add_all_pending(rows.astype(np.float64), weights)
        # Include decisions that ended without a reward.
        counted = self.learner.observations[self.partition].n + len(numbers)
        self.learner.model.decisions += self.decisions - counted

    def pending_rows(self, numbers: NDArray[np.int64]) -> tuple[Row, Vector]:
        """Return the rows and weights of pending decisions."""
        lines = numbers - self.table.base
        where = self.table.column("where")[lines]
        return self._rows.get_all(where), self.table.column("weight")[lines]

    def kept_rows(self, lines: slice = slice(None)) -> Row:
        """Return the rows stored here for these entries, in entry order."""
        where = self.table.column("where")[lines]
        return self._rows.get_all(where[where > NOWHERE])

    def rows_of(self, numbers: NDArray[np.int64]) -> tuple[Row, NDArray[np.bool_]]:
        """Return the rows of decisions and a mask of existing rows; missing rows are zeros."""
        where = self.table.column("where")[numbers - self.table.base]
        rows = np.zeros((len(numbers), self._rows.dim), dtype=np.float32)
        stored, learned = where > NOWHERE, where < NOWHERE
        rows[stored] = self._rows.get_all(where[stored])
        rows[learned] = self.learner.rows(self.partition, handle_at(where[learned]))
        return rows, stored | learned

    def _row(self, number: int) -> tuple[Vector, float]:
        """Return a decision's stored row, as float64, and its weight."""
        table, i = self.table, number - self.table.base
        # astype copies the row, because the learner keeps it and the slot may be reused.
        return self._rows.get(table.where[i]).astype(np.float64), table.weight[i]


def wrong_row(x: Row, policy: Policy) -> JournalMismatch:
    """Return the error for a row that does not match the policy."""
    if len(x) != policy.row_width:
        mismatch = f"a row of {len(x)} numbers, but this policy expects {policy.row_width}"
    else:
        mismatch = f"a row for block {x[0]:g}, but this policy has only {policy.blocks} blocks"
    message = (
        f"a decision in the journal has {mismatch}, probably because another process opened the"
        " journal with more features: open it with the same features"
    )
    return JournalMismatch(message)
