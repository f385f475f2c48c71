"""Rewards that are learned at the end of a window of decisions, not when they come."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np


class DecisionWindow:
    """Holds a reward back until ``size`` further decisions have been made.

    Whatever has come by then is learned. With ``late``, a decision without a reward stays pending,
    and its reward is learned when it comes. Otherwise it is given up: it is pending no longer. A
    reward that comes later, but before the next decision, is the last that counts. So a reward that
    waits for D rounds is learned if and only if D <= ``size``.

    Decisions have consecutive numbers.

    Args:
        size: in decisions.
        learn: is told the number and reward of a decision that is pending.
        remove_pending: is told the number of one that is given up.
        restore_pending: is told the number of one that was given up, and is learned after all.
        late: whether rewards that come after the window are learned.

    >>> def told(name):
    ...     return lambda *what: print(name, *what)
    >>> window = DecisionWindow(1, told("learn"), told("withdraw"), told("recall"))
    >>> window.made(0)
    >>> window.learn(0, 1.0)
    True
    >>> window.made(1)
    learn 0 1.0
    >>> window.made(2)
    withdraw 1
    >>> window.learn(1, 0.5)
    recall 1
    learn 1 0.5
    True
    >>> window.learn(0, 0.5)
    False
    """

    def __init__(
        self,
        size: int,
        learn: Callable[[int, float], None],
        remove_pending: Callable[[int], None],
        restore_pending: Callable[[int], None],
        *,
        late: bool = False,
    ) -> None:
        self.size = size
        self.late = late
        self._learn = learn
        self._remove_pending, self._restore_pending = remove_pending, restore_pending
        self._last = -1
        #: Pending decisions whose window is open, each with its reward if that has come.
        self._open: dict[int, float | None] = {}

    @property
    def pending(self) -> list[int]:
        """The decisions whose window is open; the learner was told to expect their rewards."""
        return list(self._open)

    def made(self, number: int, *, expected: bool = True) -> None:
        """One more decision was made; where it is ``expected``, its reward is pending."""
        self._last = number
        if expected:
            self._open[number] = None
        self.end(number - self.size)

    def end(self, number: int) -> None:
        """Learn or give up a decision now, if its window is open."""
        if number in self._open:
            value = self._open.pop(number)
            if value is not None:
                self._learn(number, value)
            elif not self.late:
                self._remove_pending(number)

    def is_over(self, number: int) -> bool:
        """Whether nothing that comes now counts for this decision."""
        return not self.late and self._last - number > self.size

    def add_pending(self, number: int) -> None:
        """A decision that is not over is pending, and was not when it was made."""
        self._open[number] = None
        if self._last - number >= self.size:
            self.end(number)

    def leave(self, number: int) -> bool:
        """A decision is no longer in its window; returns whether it was."""
        return self._open.pop(number, self) is not self

    def learn(self, number: int, value: float) -> bool:
        """A reward has come; returns whether it counts."""
        if number in self._open:
            self._open[number] = value
        elif self.is_over(number):
            return False
        else:
            if not self.late:
                self._restore_pending(number)
            self._learn(number, value)
        return True

    def revise(self, number: int, value: float) -> bool:
        """A reward is another one; returns whether it is held back here."""
        if number in self._open:
            self._open[number] = value
            return True
        return False

    def pack(self) -> dict[str, bytes]:
        """What is held back, as bytes."""
        values = [np.nan if value is None else value for value in self._open.values()]
        return {
            "window numbers": np.array(list(self._open), dtype="<i8").tobytes(),
            "window values": np.array(values, dtype="<f8").tobytes(),
        }

    def unpack(self, pieces: dict[str, bytes], last: int) -> None:
        """Take what :meth:`pack` gave, after the decision of number ``last``."""
        numbers = np.frombuffer(pieces["window numbers"], dtype="<i8").tolist()
        values = np.frombuffer(pieces["window values"], dtype="<f8").tolist()
        self._last = last
        self._open = {
            number: None if value != value else value
            for number, value in zip(numbers, values, strict=True)
        }
