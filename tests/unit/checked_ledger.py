"""A ledger that is compared with the oracle, and functions that create events."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import numpy as np

from belated.core.events import Activation, Decision, Event, Record, Reward, Settled, Void
from belated.core.rewards import Explicit, Rewards
from belated.fold.ledger import Ledger, NullListener
from belated.fold.rules import DecisionStatus
from tests.simulator.oracle import Oracle

WINDOW = timedelta(microseconds=10)
X = np.array([[1.0, 0.5], [-0.5, 1.0]], dtype=np.float32)


class CheckedLedger:
    """A ledger and an oracle that fold the same records.

    Attributes:
        statuses: the status of each record, from the ledger.
    """

    def __init__(
        self,
        *events: tuple[int, Event],
        rewards: Rewards | None = None,
        retention: int | None = None,
        min_reward: float = -10.0,
        max_reward: float = 10.0,
    ) -> None:
        rewards = Explicit(WINDOW) if rewards is None else rewards
        options: dict[str, Any] = {
            "min_reward": min_reward,
            "max_reward": max_reward,
            "retention": retention,
        }
        self.ledger = Ledger(rewards, NullListener(), **options)
        self.oracle = Oracle(rewards=rewards, **options)
        self.statuses: list[str] = []
        self.fold(*events)

    def fold(self, *events: tuple[int, Event]) -> CheckedLedger:
        """Fold events with their timestamps, and compare the state with the oracle's."""
        for recorded, event in events:
            record = Record(0, len(self.statuses) + 1, recorded, event)
            self.statuses.append(self.ledger.fold(record))
            self.oracle.apply_record(record)
        for id, outcome in self.oracle.entries.items():
            entry = self.entry(id)
            assert (entry.state, entry.value) == (outcome.state, outcome.value)
            assert (entry.late, entry.conflict) == (outcome.late, outcome.conflict)
            assert (entry.recorded_us, entry.due_us) == (outcome.recorded, outcome.due)
        return self

    def entry(self, id: str = "a") -> DecisionStatus:
        """Return the status of a decision."""
        entry = self.ledger.entry(id)
        assert entry is not None
        return entry

    @property
    def state(self) -> str:
        """The state of decision "a"."""
        return self.entry().state

    @property
    def value(self) -> float | None:
        """The value of decision "a"."""
        return self.entry().value


def decision(at: int = 0, which: int = 0, *, id: str = "a", active: bool = True) -> Decision:
    """Create a decision."""
    return Decision(id, at, which, which, X[which], 0.5, 0.5, 1, activated=active)


def reward(
    value: float, part: str = "", revision: int = 0, *, at: int = 0, id: str = "a"
) -> Reward:
    """Create a reward."""
    return Reward(id, at, value, part, revision)


def settled(until: int) -> Settled:
    """Create a ``Settled`` event."""
    return Settled(0, until)


ACTIVATION, VOID = Activation("a", 0), Void("a", 0)
