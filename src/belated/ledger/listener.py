"""What the ledger tells the learner."""

from __future__ import annotations

from typing import Protocol

from belated.events import Decision
from belated.ledger.table import EntryTable


class LedgerListener(Protocol):
    """Who is told what has changed. A decision is known by its number within the partition.

    Attributes:
        table: the ledger's; who is told keeps there what belongs to a decision.
    """

    table: EntryTable

    def enter(self, number: int, decision: Decision, expected: bool = False) -> None:
        """A decision is known; numbers come in order.

        ``expected`` says that it is pending from the start: pending + 1.
        """

    def add_pending(self, number: int, again: bool = False) -> None:
        """It is pending: pending + 1."""

    def remove_pending(self, number: int) -> None:
        """It is pending no longer, and there is no reward: pending - 1."""

    def learn(self, number: int, value: float) -> None:
        """It was pending, and its value is known: pending - 1, observed + 1."""

    def revise(self, number: int, value: float) -> None:
        """Its value is another one."""

    def retract(self, number: int) -> None:
        """Its value does not count any longer: observed - 1."""

    def forget(self, number: int) -> None:
        """Nothing more will be told of it."""


class NullListener:
    """Learns nothing: only the states of decisions are asked for."""

    def __init__(self) -> None:
        self.table = EntryTable()

    def enter(self, number: int, decision: Decision, expected: bool = False) -> None:
        """Nothing."""

    def add_pending(self, number: int, again: bool = False) -> None:
        """Nothing."""

    def remove_pending(self, number: int) -> None:
        """Nothing."""

    def learn(self, number: int, value: float) -> None:
        """Nothing."""

    def revise(self, number: int, value: float) -> None:
        """Nothing."""

    def retract(self, number: int) -> None:
        """Nothing."""

    def forget(self, number: int) -> None:
        """Nothing."""
