"""A bandit of two actions, with times that are easy to say."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import numpy as np

from belated import (
    Bandit,
    Bernoulli,
    DelayedUCB,
    Explicit,
)
from belated.core.inputs import Matrix
from belated.journals import MemoryJournal
from belated.testing import ManualClock

ROWS = [[1.0, 0.0], [0.0, 1.0]]
UCB = DelayedUCB(2, Bernoulli())
DAY = timedelta(days=1)
DAY_US = 86_400_000_000


def opened(clock: ManualClock, **settings: Any) -> Bandit:
    """A bandit with a window of a day, unless told otherwise."""
    usual: dict[str, Any] = {"policy": UCB, "rewards": Explicit(DAY), "seed": 3}
    settings.setdefault("journal", MemoryJournal(clock=clock))
    return Bandit(clock=clock, **(usual | settings))


def begun() -> Bandit:
    """One with a decision named "a" that is pending and one named "b" that was rewarded."""
    made = opened(ManualClock())
    made.decide(rows=ROWS, id="a")
    made.decide(rows=ROWS, id="b")
    made.observe("b", 1.0)
    return made


def table(seed: int, count: int = 5, dim: int = 2) -> Matrix:
    """Some rows."""
    return np.random.default_rng(seed).normal(size=(count, dim)).astype(np.float32)
