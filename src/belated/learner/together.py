"""Rewards that are learned when the window of their decision ends, not when they come.

So a success is learned at the same age as a failure, which is known only then.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from heapq import heapify, heappop, heappush
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from belated.events import Settled
from belated.learner.adapter import LearnerAdapter
from belated.learner.learner import Learner
from belated.ledger import Ledger
from belated.ledger.entries import due_of

#: Pieces of a snapshot: which rewards are held back, and their values.
_NUMBERS, _VALUES = "held-of", "held"


class TogetherAdapter(LearnerAdapter):
    """As :class:`LearnerAdapter`; a reward is held back until the window of its decision ends.

    Until then its decision is pending for the learner, while the ledger calls it rewarded.

    Attributes:
        held: the rewards that are held back, by the numbers of their decisions.
        holds: is asked whether to hold the reward of a decision back.
    """

    takes_pages: ClassVar[bool] = False

    def __init__(self, learner: Learner, partition: int = 0) -> None:
        super().__init__(learner, partition)
        self.held: dict[int, float] = {}
        self.holds: Callable[[int], bool] = lambda number: False

    def learn(self, number: int, value: float) -> None:
        """Its reward is known."""
        if self.holds(number):
            self.held[number] = value
        else:
            super().learn(number, value)

    def release(self, number: int) -> None:
        """Its window has ended: learn its reward, if it is held back."""
        value = self.held.pop(number, None)
        if value is not None:
            super().learn(number, value)

    def revise(self, number: int, value: float) -> None:
        """Its reward is another one."""
        if number in self.held:
            self.held[number] = value
        else:
            super().revise(number, value)

    def retract(self, number: int) -> None:
        """Its reward does not count any longer."""
        if self.held.pop(number, None) is None:
            super().retract(number)
        else:
            self.remove_pending(number)

    def forget(self, number: int) -> None:
        """It is settled for good: nothing will come that changes it."""
        self.release(number)
        super().forget(number)

    def pack(self) -> dict[str, bytes]:
        """As bytes, with what is held back."""
        numbers = np.array(list(self.held), dtype=np.int64)
        values = np.array(list(self.held.values()))
        return super().pack() | {_NUMBERS: numbers.tobytes(), _VALUES: values.tobytes()}

    def unpack(self, pieces: dict[str, bytes]) -> None:
        """Take what :meth:`pack` gave."""
        super().unpack(pieces)
        numbers = np.frombuffer(pieces[_NUMBERS], dtype=np.int64).tolist()
        self.held = dict(zip(numbers, np.frombuffer(pieces[_VALUES]).tolist(), strict=True))

    def add_all_pending(self, numbers: NDArray[np.int64]) -> None:
        """All these are pending, and those whose reward is held back."""
        super().add_all_pending(np.append(numbers, np.array(list(self.held), dtype=np.int64)))


class TogetherLedger(Ledger):
    """As :class:`Ledger`; it also says when the window of a rewarded decision ends."""

    changes: TogetherAdapter

    def __init__(self, *args: Any, **more: Any) -> None:
        super().__init__(*args, **more)
        self.changes.holds = self._holds
        # When each reward that is held back is due; made when it is first asked for.
        self._held_dues: list[tuple[int, int]] | None = None

    def _holds(self, number: int) -> bool:
        due = self._due_of(number)
        if self.watermark >= due:
            return False
        heappush(self._dues_of_held(), (due, number))
        self.soonest = min(self.soonest, due)
        return True

    def _settled(self, settled: Settled, recorded: int) -> str:
        status = super()._settled(settled, recorded)
        dues = self._dues_of_held()
        while dues and dues[0][0] <= self.watermark:
            number = heappop(dues)[1]
            if number not in self.changes.held:
                continue
            if (due := self._due_of(number)) > self.watermark:  # it took effect later
                heappush(dues, (due, number))
            else:
                self.changes.release(number)
        return status

    def _next_due(self) -> float:
        found, dues = super()._next_due(), self._dues_of_held()
        while dues and dues[0][1] not in self.changes.held:
            heappop(dues)
        held = float(dues[0][0]) if dues else math.inf
        self.soonest = min(self.soonest, held)
        return min(found, held)

    def _dues_of_held(self) -> list[tuple[int, int]]:
        if self._held_dues is None:
            self._held_dues = [(self._due_of(number), number) for number in self.changes.held]
            heapify(self._held_dues)
        return self._held_dues

    def _due_of(self, number: int) -> int:
        due = due_of(self._facts.get(number) or self._read(number), self.rewards)
        assert due is not None
        return due
