"""Changes that a learner has not added to its sums yet."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from belated.core.inputs import Matrix, Row, Vector


@dataclass(eq=False)
class Decided:
    """Decisions: their rows, the weights with which they are pending, and when they began."""

    rows: list[Vector] = field(default_factory=list)
    weights: list[float] = field(default_factory=list)
    began: list[int] = field(default_factory=list)

    def append(self, row: Vector, weight: float, began: int) -> None:
        """Add a decision."""
        self.rows.append(row)
        self.weights.append(weight)
        self.began.append(began)


@dataclass(eq=False)
class Arrived(Decided):
    """Decisions with a reward; ``after`` are the weights of their rows with the reward."""

    rewards: list[float] = field(default_factory=list)
    after: list[float] = field(default_factory=list)


@dataclass(eq=False)
class Pages:
    """Tables of decisions: pending, or no longer pending if their weights are negative."""

    began: list[NDArray[np.int64]] = field(default_factory=list)
    rows: list[Row | Matrix] = field(default_factory=list)
    weights: list[Vector] = field(default_factory=list)

    def append(self, rows: Row | Matrix, weights: Vector, began: NDArray[np.int64]) -> None:
        """Add a table."""
        self.began.append(began)
        self.rows.append(rows)
        self.weights.append(weights)

    def __len__(self) -> int:
        return sum(map(len, self.weights))


class Waiting:
    """Decisions that became pending, and decisions that ended, since the last update of the sums.

    Rows passed to it must not be modified afterwards.

    Args:
        partitions: number of partitions of the journal.

    Attributes:
        added: decisions that became pending.
        removed: decisions that are no longer pending and have no reward.
        arrived: decisions with a reward, by partition.
        pages: tables of decisions of any kind.
        pending: number of recorded decisions that are pending after these changes.
    """

    def __init__(self, partitions: int) -> None:
        self.added, self.removed, self.pages = Decided(), Decided(), Pages()
        self.arrived = [Arrived() for _ in range(partitions)]
        self.pending = 0

    @property
    def is_empty(self) -> bool:
        """Whether there are no changes."""
        decided = (self.added, self.removed, *self.arrived)
        return not (self.pages.rows or any(decisions.rows for decisions in decided))

    def pending_changes(self) -> tuple[NDArray[np.int64], Matrix, Vector]:
        """Return when decisions began, their rows, and the changes of their pending weights."""
        pages = self.pages
        for decided in (self.added, self.removed, *self.arrived):
            if decided.rows:
                weights, began = np.array(decided.weights), np.array(decided.began, dtype=np.int64)
                change = weights if decided is self.added else -weights
                pages.append(np.array(decided.rows), change, began)
        joined = np.concatenate
        return joined(pages.began), joined(pages.rows), joined(pages.weights)
