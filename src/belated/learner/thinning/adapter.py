"""Between a ledger and a learner of conversions: it is told when each decision took effect."""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from belated.events import Decision, Record
from belated.inputs import Vector
from belated.learner.adapter import LearnerAdapter
from belated.learner.thinning.known import Outstanding
from belated.learner.thinning.learner import ThinnedLearner
from belated.ledger import Ledger, State
from belated.ledger.table import NOWHERE, handle_at

#: Pieces of a snapshot: which decisions took effect later than they were recorded, and when.
_NUMBERS, _BEGAN = "activated-of", "activated"


class ThinnedAdapter(LearnerAdapter):
    """As :class:`LearnerAdapter`; it also keeps which decisions took effect later, and when."""

    learner: ThinnedLearner
    takes_pages: ClassVar[bool] = False

    def __init__(self, learner: ThinnedLearner, partition: int = 0) -> None:
        super().__init__(learner, partition)
        self._began: dict[int, int] = {}

    def enter(self, number: int, decision: Decision, expected: bool = False) -> None:
        """Keep its row; where it is ``expected``, its reward is out."""
        if expected:
            self.learner.tell(self._began_at(number))
        super().enter(number, decision, expected)

    def activate(self, number: int, began: int) -> None:
        """It took effect: its age counts from then on."""
        i, before = number - self.table.base, self._began_at(number)
        self._began[number] = began
        where = self.table.where[i]
        if where < NOWHERE:
            self.learner.restart(handle_at(where), began, self.partition)
        elif self.table.state[i] == State.PENDING:
            self.learner.move(super()._row(number)[0], before, began)

    def forget(self, number: int) -> None:
        """It is settled for good: nothing will come that changes it."""
        super().forget(number)
        self._began.pop(number, None)

    def outstanding(self) -> Outstanding:
        """All that is pending."""
        table = self.table
        pending = table.column("state") == State.PENDING
        at = np.flatnonzero(pending & (table.column("where") > NOWHERE))
        began = table.column("recorded")[at].copy()
        for number, time in self._began.items():
            place = int(np.searchsorted(at, number - table.base))
            if place < len(at) and at[place] == number - table.base:
                began[place] = time
        return began, self._rows.get_all(table.column("where")[at])

    def pack(self) -> dict[str, bytes]:
        """As bytes, with when decisions took effect."""
        numbers = np.array(list(self._began), dtype=np.int64)
        began = np.array(list(self._began.values()), dtype=np.int64)
        pieces = {_NUMBERS: numbers.tobytes(), _BEGAN: began.tobytes()}
        return super().pack() | pieces | self.learner.pack_times(self.partition)

    def unpack(self, pieces: dict[str, bytes]) -> None:
        """Take what :meth:`pack` gave."""
        super().unpack(pieces)
        self.learner.unpack_times(self.partition, pieces)
        numbers, began = (
            np.frombuffer(pieces[name], dtype=np.int64).tolist() for name in (_NUMBERS, _BEGAN)
        )
        self._began = dict(zip(numbers, began, strict=True))

    def _began_at(self, number: int) -> int:
        return self._began.get(number, self.table.recorded[number - self.table.base])

    def _row(self, number: int) -> tuple[Vector, float]:
        self.learner.tell(self._began_at(number))
        return super()._row(number)


class ThinnedLedger(Ledger):
    """As :class:`Ledger`; the learner hears of each record before and after it is folded."""

    changes: ThinnedAdapter

    def fold(self, record: Record) -> str:
        """Take one record; returns what it meant."""
        learner = self.changes.learner
        learner.see(record.recorded)
        status = super().fold(record)
        learner.finish()
        return status

    def _wait(self, number: int, due: int) -> None:
        assert self._window is not None
        self.changes.activate(number, due - self._window)
        super()._wait(number, due)
