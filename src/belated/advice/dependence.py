"""Whether rewards depend on their delay, given the row: a test that may be looked at for ever.

Time runs backwards, as in :mod:`belated.evaluation.dependence`: among rewards that came within u,
and could have come later, does it tell anything about a reward that its delay is u? Each reward has
an *excess*: above 0 it came later than those it is compared with. The excess and the reward are
compared given the row, so that an action that is better and slower does not count; and within
strata of decision time, so that a policy that learns does not.

Looks are few, so that all of them together are wrong with a probability of :data:`LEVEL` at most:
one whenever rewards have grown by half, and the k-th with LEVEL/(k (k + 1)).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from belated.core.inputs import Matrix, Vector
from belated.model.statistics.log_rank import STRATA, excess, strata_of

#: The probability that a bandit whose delays do not depend on rewards is ever warned.
LEVEL = 0.001
#: Rewards before the first look, and their growth until the next.
FIRST, GROWTH = 200, 1.5


@dataclass(frozen=True)
class DelayDependence:
    """How far rewards depend on their delays.

    Attributes:
        correlation: of the reward with how late it came, given the row.
        statistic: the same in standard errors.
        limit: what chance stays below, at this look and at all others.
    """

    correlation: float
    statistic: float
    limit: float

    @property
    def ratio(self) -> float:
        """The statistic over what chance may reach: above 1, delays depend on the reward."""
        return abs(self.statistic) / self.limit


def look_number(rewards: int) -> int:
    """Which look this is, after so many rewards; 0 if it is too early.

    >>> [look_number(rewards) for rewards in (199, 200, 299, 300, 10_000)]
    [0, 1, 1, 2, 10]
    """
    if rewards < FIRST:
        return 0
    return 1 + int(math.log(rewards / FIRST) / math.log(GROWTH) + 1e-9)


def limit_of(look: int) -> float:
    """Standard errors that chance exceeds in the k-th look with less than its probability.

    >>> [round(limit_of(look), 2) for look in (1, 10, 100)]
    [3.9, 4.82, 5.67]
    """
    return math.sqrt(2.0 * math.log(look * (look + 1) / LEVEL))


def measured(
    rows: NDArray[Any],
    value: Vector,
    made: NDArray[np.int64],
    delay: NDArray[np.int64],
    age: NDArray[np.int64],
    rewards: int,
) -> DelayDependence | None:
    """Measure how rewards that have arrived depend on their delay; None if that cannot be told.

    Args:
        rows: of their decisions.
        value: the rewards.
        made: when the decisions were made.
        delay: how long each reward took.
        age: how old the decisions are.
        rewards: how many have come in all, of which these are some.
    """
    if len(value) < max(FIRST, 4 * rows.shape[1]):
        return None
    strata = strata_of(made)
    later, delay = np.empty(len(value)), np.minimum(delay, age)
    for one in range(STRATA):
        here = strata == one
        later[here] = excess(-age[here], -delay[here], np.ones(int(here.sum()), dtype=np.bool_))
    table = np.column_stack([value, later])
    y, late = _given(rows.astype(np.float64), table, strata).T
    spread = math.sqrt(float(y @ y) * float(late @ late))
    # Nothing but rounding may be left of a constant.
    if spread <= 1e-9 * np.prod(np.linalg.norm(table, axis=0)):
        return None
    each = y * late
    statistic = float(each.sum() / math.sqrt(float(each @ each)))
    limit = limit_of(look_number(max(rewards, len(value))))
    return DelayDependence(float(each.sum()) / spread, statistic, limit)


def _given(rows: Matrix, table: Matrix, strata: NDArray[np.int64]) -> Matrix:
    """What is left of the columns of a table beside the rows, within strata."""
    both = np.column_stack([rows, table])
    for one in range(STRATA):
        here = strata == one
        both[here] -= both[here].mean(axis=0)
    rows, left = both[:, : rows.shape[1]], both[:, rows.shape[1] :]
    gram = rows.T @ rows
    little = 1e-9 * gram.trace()
    if little == 0.0:  # rows do not differ
        return left
    return left - rows @ np.linalg.solve(gram + little * np.eye(len(gram)), rows.T @ left)
