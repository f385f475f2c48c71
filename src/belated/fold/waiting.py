"""What a learner was told since it made its sums."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from belated.core.inputs import Matrix, Row, Vector


@dataclass(eq=False)
class Decided:
    """Decisions: their rows, the weights they are pending with, and when they took effect."""

    rows: list[Vector] = field(default_factory=list)
    weights: list[float] = field(default_factory=list)
    began: list[int] = field(default_factory=list)

    def append(self, row: Vector, weight: float, began: int) -> None:
        """Add one."""
        self.rows.append(row)
        self.weights.append(weight)
        self.began.append(began)


@dataclass(eq=False)
class Arrived(Decided):
    """The same of decisions with a reward; ``after`` are the weights of their rows since."""

    rewards: list[float] = field(default_factory=list)
    after: list[float] = field(default_factory=list)


@dataclass(eq=False)
class Pages:
    """Whole tables of decisions that are pending, or no longer if their weights are negative."""

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
    """What became pending, left and arrived since the sums were last made.

    Rows given to it must not change afterwards.

    Args:
        partitions: of the journal.

    Attributes:
        asked: decisions that became pending.
        left: those that are pending no longer, without a reward.
        came: rewards, by partition.
        pages: whole tables of both.
        pending: decisions that are recorded and pending once all this is added.
    """

    def __init__(self, partitions: int) -> None:
        self.asked, self.left, self.pages = Decided(), Decided(), Pages()
        self.came = [Arrived() for _ in range(partitions)]
        self.pending = 0

    @property
    def is_empty(self) -> bool:
        """Whether nothing waits."""
        lists = (self.asked.rows, self.left.rows, self.pages.rows, *(one.rows for one in self.came))
        return not any(lists)

    def pending_changes(self) -> tuple[NDArray[np.int64], Matrix, Vector]:
        """When decisions took effect, their rows, and by how much more these are pending."""
        pages = self.pages
        for decided in (self.asked, self.left, *self.came):
            if decided.rows:
                weights, began = np.array(decided.weights), np.array(decided.began, dtype=np.int64)
                change = weights if decided is self.asked else -weights
                pages.append(np.array(decided.rows), change, began)
        joined = np.concatenate
        return joined(pages.began), joined(pages.rows), joined(pages.weights)
