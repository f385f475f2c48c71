"""A ledger that tells what it does, and events that are short to write."""

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


class ToldLedger:
    """A ledger and an oracle that are told the same; ``statuses`` are what the ledger said."""

    def __init__(
        self,
        *told: tuple[int, Event],
        rewards: Rewards | None = None,
        retention: int | None = None,
        min_reward: float = -10.0,
        max_reward: float = 10.0,
    ) -> None:
        given = Explicit(WINDOW) if rewards is None else rewards
        options: dict[str, Any] = {
            "min_reward": min_reward,
            "max_reward": max_reward,
            "retention": retention,
        }
        self.ledger = Ledger(given, NullListener(), **options)
        self.oracle = Oracle(rewards=given, **options)
        self.statuses: list[str] = []
        self.tell(*told)

    def tell(self, *told: tuple[int, Event]) -> ToldLedger:
        """Fold more events, each with its stamp, and compare with the oracle."""
        for recorded, event in told:
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
        """What a decision has come to."""
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


def decided(at: int = 0, which: int = 0, *, id: str = "a", active: bool = True) -> Decision:
    """A decision."""
    return Decision(id, at, which, which, X[which], 0.5, 0.5, 1, activated=active)


def told(value: float, part: str = "", revision: int = 0, *, at: int = 0, id: str = "a") -> Reward:
    """A reward."""
    return Reward(id, at, value, part, revision)


def settled(until: int) -> Settled:
    """Journal time."""
    return Settled(0, until)


ACTIVE, GONE = Activation("a", 0), Void("a", 0)
