"""Changes that wait to be added to the sums: many rows at once are one product of matrices."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from belated.inputs import Matrix, Row, Vector
from belated.statistics import Information


class Arrived(NamedTuple):
    """Rewards of a partition: their rows, and the weights these had before and have now."""

    rows: list[Vector]
    rewards: list[float]
    before: list[float]
    after: list[float]


class Waiting:
    """What is pending and what has arrived since the sums were last made.

    Rows given to it must not change afterwards.

    Args:
        partitions: of the journal.

    Attributes:
        asked: rows that became pending, and their weights.
        left: rows that are pending no longer, without a reward.
        came: rewards, by partition.

    >>> waiting = Waiting(1)
    >>> waiting.asked[0].append(np.array([2.0])), waiting.asked[1].append(0.25)
    (None, None)
    >>> waiting.sum_into(Information.zero(1)).matrix
    array([[1.]])
    """

    def __init__(self, partitions: int) -> None:
        self.asked: tuple[list[Vector], list[float]] = ([], [])
        self.left: tuple[list[Vector], list[float]] = ([], [])
        self.came = [Arrived([], [], [], []) for _ in range(partitions)]
        self._tables: list[tuple[Row | Matrix, Vector]] = []
        #: Rows in whole tables, and how many more are pending by them.
        self.in_tables = self._more = 0

    def add_tables(self, asked: Row, weights: Vector, ended: Row, before: Vector) -> None:
        """Rows became pending, and others are pending no longer."""
        self._tables += (asked, weights), (ended, -before)
        self.in_tables += len(weights) + len(before)
        self._more += len(weights) - len(before)

    def sum_into(self, pending: Information) -> Information:
        """Return what is pending now; what has arrived is the caller's to take, and to clear."""
        rows, weights = [*self.asked[0]], [*self.asked[1]]
        count = pending.count + self._more + 2 * len(rows)
        for ended, its in (self.left, *((one.rows, one.before) for one in self.came)):
            rows += ended
            weights += [-weight for weight in its]
        count -= len(rows)
        if rows:
            self._tables.append((np.array(rows), np.array(weights)))
        if not self._tables:
            return pending
        tables, signed = zip(*self._tables, strict=True)
        change = Information.of(np.concatenate(tables), np.concatenate(signed))
        self._tables, self.in_tables, self._more = [], 0, 0
        for column in (*self.asked, *self.left):
            column.clear()
        if count == 0:  # what is left is rounding
            return Information.zero(pending.dim)
        return Information(count, pending.matrix + change.matrix)
