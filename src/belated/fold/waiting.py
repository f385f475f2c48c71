"""Changes that a learner has not added to its sums yet."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from belated.core.inputs import Matrix, Row, Vector


@dataclass(eq=False)
class Decided:
    """The rows, the pending weights and the start times of decisions."""

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
    """Decisions with a reward; ``after`` holds the weights of their rows after the reward."""

    rewards: list[float] = field(default_factory=list)
    after: list[float] = field(default_factory=list)


@dataclass(eq=False)
class Pages:
    """Tables of decisions; decisions with negative weights are no longer pending."""

    began: list[NDArray[np.int64]] = field(default_factory=list)
    rows: list[Row | Matrix] = field(default_factory=list)
    weights: list[Vector] = field(default_factory=list)

    def append(self, rows: Row | Matrix, weights: Vector, began: NDArray[np.int64]) -> None:
        """Append a table."""
        self.began.append(began)
        self.rows.append(rows)
        self.weights.append(weights)

    def __len__(self) -> int:
        return sum(map(len, self.weights))


class Waiting:
    """Decisions that became pending or ended since the sums were last updated.

    Callers must not modify rows that they have passed to this object.

    Args:
        partitions: number of partitions of the journal.

    Attributes:
        added: decisions that became pending.
        removed: decisions that ended without a reward.
        arrived: decisions with a reward, by partition.
        pages: tables of decisions that became pending or ended.
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
        """Return the start times, rows and changes in pending weight of decisions."""
        pages = self.pages
        for decided in (self.added, self.removed, *self.arrived):
            if decided.rows:
                weights, began = np.array(decided.weights), np.array(decided.began, dtype=np.int64)
                change = weights if decided is self.added else -weights
                pages.append(np.array(decided.rows), change, began)
        joined = np.concatenate
        return joined(pages.began), joined(pages.rows), joined(pages.weights)
