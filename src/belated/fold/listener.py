"""What the ledger reports to the learner."""

from __future__ import annotations

from typing import Protocol

from belated.core.events import Decision
from belated.fold.table import EntryTable


class LedgerListener(Protocol):
    """Who is told what has changed. A decision is known by its number within the partition.

    ``began`` is when a decision took effect: when it was recorded, or activated later. ``recorded``
    is the stamp of the record that is being folded. Both are microseconds since 1970.

    Attributes:
        table: the ledger's; the listener keeps there what belongs to a decision.
    """

    table: EntryTable

    def enter(self, number: int, decision: Decision, expected: bool) -> None:
        """A decision is known; numbers come in order.

        ``expected`` says that it is pending from the start: pending + 1.
        """

    def add_pending(self, number: int, began: int, again: bool) -> None:
        """It is pending: pending + 1; ``again`` if it was before."""

    def remove_pending(self, number: int, began: int) -> None:
        """It is pending no longer, and there is no reward: pending - 1."""

    def move(self, number: int, before: int, began: int) -> None:
        """It took effect later than was known; it is pending or observed."""

    def learn(self, number: int, value: float, began: int, recorded: int) -> None:
        """It was pending, and its value is known: pending - 1, observed + 1."""

    def revise(self, number: int, value: float, recorded: int) -> None:
        """Its value is another one."""

    def retract(self, number: int, recorded: int) -> None:
        """Its value does not count any longer: observed - 1."""

    def forget(self, number: int) -> None:
        """Nothing more will be told of it."""

    def finish(self, recorded: int) -> None:
        """A record is folded, with all that it changed."""


class NullListener:
    """Learns nothing: only the states of decisions are asked for."""

    def __init__(self) -> None:
        self.table = EntryTable()

    def _ignore(self, *change: object) -> None:
        pass

    enter = add_pending = remove_pending = move = learn = revise = retract = forget = _ignore
    finish = _ignore
