"""What decisions were chosen from: all rows, and the probability of each."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from belated.core.inputs import Row, Vector
from belated.evaluation.table import Mask, Times


@dataclass(frozen=True, eq=False)
class Offers:
    """The rows on offer of all decisions, one decision after the other.

    Attributes:
        rows: of all actions, float32.
        starts: where the rows of each decision begin.
        chosen: which of all rows each decision chose.
        propensity: probability of each row at the choice.
        actions: name of the action of each row.
        kept: probability with which the request of each decision was kept.
    """

    rows: Row
    starts: Times
    chosen: Times
    propensity: Vector
    actions: NDArray[Any]
    kept: Vector

    @classmethod
    def of(cls, rows: Row, chosen: Times, propensity: Vector) -> Self:
        """The offers of decisions that all had the same number of actions.

        Args:
            rows: decisions × actions × features.
            chosen: index of the action of each decision.
            propensity: decisions × actions.
        """
        count, actions, dim = rows.shape
        starts = np.arange(count, dtype=np.int64) * actions
        return cls(
            rows=rows.reshape(-1, dim),
            starts=starts,
            chosen=starts + chosen,
            propensity=np.asarray(propensity, dtype=np.float64).reshape(-1),
            actions=np.tile(np.arange(actions), count).astype(object),
            kept=np.ones(count),
        )

    def __len__(self) -> int:
        return len(self.starts)

    @property
    def counts(self) -> NDArray[np.int64]:
        """Number of actions of each decision."""
        found: NDArray[np.int64] = np.diff(self.starts, append=len(self.rows))
        return found

    def sums(self, values: Vector) -> Vector:
        """The sum of a number of each row, over the rows of each decision."""
        if not len(self.starts):
            return np.zeros(0)
        return np.add.reduceat(values, self.starts)

    def select(self, which: Mask) -> Self:
        """The offers of some decisions."""
        rows = np.repeat(which, self.counts)
        counts = self.counts[which]
        starts = np.cumsum(counts) - counts
        return type(self)(
            rows=self.rows[rows],
            starts=starts,
            chosen=starts + (self.chosen - self.starts)[which],
            propensity=self.propensity[rows],
            actions=self.actions[rows],
            kept=self.kept[which],
        )
