"""Between a ledger and a learner that forgets: it is told when each decision was made."""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from belated.events import Decision, Record
from belated.inputs import Vector
from belated.learner.adapter import LearnerAdapter
from belated.learner.forgetting.learner import ForgettingLearner, Outstanding
from belated.ledger import Ledger, State
from belated.ledger.table import NOWHERE, handle_at

#: Pieces of a snapshot: which pending decisions have predictions, and these.
_NUMBERS, _MEANS = "predicted-of", "predicted"


class ForgettingAdapter(LearnerAdapter):
    """As :class:`LearnerAdapter`; it also keeps what was predicted until the reward comes."""

    learner: ForgettingLearner
    takes_pages: ClassVar[bool] = False

    def __init__(self, learner: ForgettingLearner, partition: int = 0) -> None:
        super().__init__(learner, partition)
        self._means: dict[int, tuple[float, ...]] = {}
        self._entered = 0

    def enter(self, number: int, decision: Decision, expected: bool = False) -> None:
        """Keep its row; where it is ``expected``, its reward is out."""
        recorded = self.table.recorded[number - self.table.base]
        self._entered += 1
        self.learner.pace.decided(recorded, self.partition)
        if decision.means:
            self._means[number] = decision.means
        if expected:
            self.learner.tell(recorded)
        super().enter(number, decision, expected)

    def retract(self, number: int) -> None:
        """Its reward does not count any longer; its row is kept here again."""
        where = self.table.where[number - self.table.base]
        if where < NOWHERE and self.learner.rivals:
            means = self.learner.arrivals[self.partition].means[handle_at(where)].tolist()
            if means[0] == means[0]:
                self._means[number] = tuple(means)
        super().retract(number)

    def forget(self, number: int) -> None:
        """It is settled for good: nothing will come that changes it."""
        super().forget(number)
        self._means.pop(number, None)

    def outstanding(self) -> Outstanding:
        """All that is pending."""
        table = self.table
        pending = table.base + np.flatnonzero(table.column("state") == State.PENDING)
        at = self._expected(pending) - table.base
        rows = self._rows.get_all(table.column("where")[at]).astype(np.float64)
        return table.column("recorded")[at], rows, table.column("weight")[at]

    def pack(self) -> dict[str, bytes]:
        """As bytes, with what was predicted and when decisions were made."""
        numbers = np.array(list(self._means), dtype=np.int64)
        means = np.array(list(self._means.values()))
        pieces = {_NUMBERS: numbers.tobytes(), _MEANS: means.tobytes()} if len(numbers) else {}
        forgetting = self.learner.pack_forgetting(self.partition, self._entered)
        return super().pack() | pieces | forgetting

    def unpack(self, pieces: dict[str, bytes]) -> None:
        """Take what :meth:`pack` gave."""
        super().unpack(pieces)
        self._entered = self.learner.unpack_forgetting(self.partition, pieces)
        if _NUMBERS in pieces:
            numbers = np.frombuffer(pieces[_NUMBERS], dtype=np.int64).tolist()
            means = np.frombuffer(pieces[_MEANS]).reshape(len(numbers), -1).tolist()
            self._means = dict(zip(numbers, map(tuple, means), strict=True))

    def _learn(self, number: int, value: float) -> None:
        super()._learn(number, value)
        self._means.pop(number, None)

    def _row(self, number: int) -> tuple[Vector, float]:
        recorded = self.table.recorded[number - self.table.base]
        self.learner.tell(recorded, self._means.get(number, ()))
        return super()._row(number)


class StampedLedger(Ledger):
    """As :class:`Ledger`; the learner is told the stamp of each record before it is folded."""

    changes: ForgettingAdapter

    def fold(self, record: Record) -> str:
        """Take one record; returns what it meant."""
        self.changes.learner.see(record.recorded)
        return super().fold(record)
