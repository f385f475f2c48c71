"""What the checks look at."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from belated.core.inputs import Matrix, Row, Vector
from belated.model.families import Family
from belated.model.statistics.log_rank import STRATA, excess, strata_of

#: Decisions in a sample, and those of them whose rows are looked at, at most; of long rows there
#: are fewer, so that they hold no more numbers than this.
SAMPLE, ROWS, NUMBERS = 8_192, 1_024, 1 << 19
#: Rewards before their delays say anything.
FEW = 10
#: In ``came``: no reward.
NONE = -1


def quantile(values: NDArray[Any], share: float) -> float:
    """The value that this share of them does not exceed.

    That of numpy loads a module at its first call, and a caller would wait for it.

    >>> quantile(np.array([3, 1, 2]), 0.9)
    3.0
    """
    place = min(int(share * len(values)), len(values) - 1)
    return float(np.partition(values, place)[place])


@dataclass(frozen=True)
class Overview:
    """What only a report knows; all is well by default.

    Attributes:
        quiet: how long ago the last reward came, how many were expected since, and whether that is
            too many for chance; None if there are too few rewards to forecast.
        slowing: since when fewer rewards come than chance explains, how many have come, and how
            many should have; None if they come as expected.
        outages: gaps between rewards too long for chance: when each began, and how long it was.
        bias: of predictions, as a share of what is observed, with its standard error; None if too
            few rewards have come.
        favorite: the action with the most recent decisions, and its share of them; 0 if they are
            too few, or there is only one action.
        mode: of the bandit.
        converged: whether the last fit has converged.
        told: reward messages in all.
        care: how many of them were of each kind that needs care.
    """

    quiet: tuple[int, float, bool] | None = None
    slowing: tuple[int, int, float] | None = None
    outages: Sequence[tuple[int, int]] = ()
    bias: tuple[float, float] | None = None
    favorite: tuple[str, float] = "", 0.0
    mode: str = "learn"
    converged: bool = True
    told: int = 0
    care: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, eq=False)
class Evidence:
    """A sample of decisions, evenly spread over all that are remembered, and some counts.

    Times are in microseconds, or in rounds; dormant and voided decisions are left out.

    Attributes:
        family: of the rewards.
        ridge: the prior precision of a coefficient, on average.
        window: how long a reward is waited for.
        defaults: whether a decision without a reward is learned at the window's end.
        now: the time of the last event.
        latest: when the last reward came; NONE if none has.
        decisions: how many there are in all.
        pending: how many of them are pending.
        rewards: reward events that counted, in all.
        duplicates: events that said what was known.
        unmatched: events for ids that no decision has.
        made: when each decision of the sample was made, in order of their numbers.
        came: when its reward came, or NONE.
        value: the reward, or the default.
        learned: whether the value is learned.
        rows: of some of them.
        at: which these are.
        on_arrival: whether a reward is learned when it comes, though missing ones are not yet.
        together: whether rewards are learned at a common age.
        conversions: whether only conversions are reported, and count by age.
        overview: what only a report knows; empty for a running bandit.
    """

    family: Family
    ridge: float
    window: int | None
    defaults: bool
    now: int
    latest: int = NONE
    decisions: int = 0
    pending: int = 0
    rewards: int = 0
    duplicates: int = 0
    unmatched: int = 0
    made: NDArray[np.int64] = field(default_factory=lambda: np.zeros(0, dtype=np.int64))
    came: NDArray[np.int64] = field(default_factory=lambda: np.zeros(0, dtype=np.int64))
    value: Vector = field(default_factory=lambda: np.zeros(0))
    learned: NDArray[np.bool_] = field(default_factory=lambda: np.zeros(0, dtype=np.bool_))
    rows: Row = field(default_factory=lambda: np.zeros((0, 1), dtype=np.float32))
    at: NDArray[np.int64] = field(default_factory=lambda: np.zeros(0, dtype=np.int64))
    on_arrival: bool = True
    together: bool = False
    conversions: bool = False
    overview: Overview = field(default_factory=Overview)

    @staticmethod
    def spread(size: int, count: int) -> NDArray[np.int64]:
        """At most so many places, evenly spread.

        >>> Evidence.spread(3, 5), Evidence.spread(100, 3)
        (array([0, 1, 2]), array([ 0, 49, 99]))
        """
        return np.arange(size) if size <= count else np.linspace(0, size - 1, count).astype(int)

    @cached_property
    def rewarded(self) -> NDArray[np.bool_]:
        """Which decisions of the sample have a reward."""
        return np.asarray(self.came != NONE)

    @cached_property
    def age(self) -> NDArray[np.int64]:
        """How long ago each decision was made."""
        return self.now - self.made

    @cached_property
    def delay(self) -> NDArray[np.int64]:
        """How long each reward took that has come: no time, if it came before its decision."""
        return np.asarray(np.maximum(self.came - self.made, 0))

    @cached_property
    def patience(self) -> float:
        """The age by which a reward should have come: thrice what nine tenths of them took.

        Delays longer than the bandit has run have not been seen. But then those that were seen are
        spread over its life, and thrice their length is more than its age: nothing is old.
        """
        delay = self.delay[self.rewarded]
        return 3.0 * quantile(delay, 0.9) if len(delay) >= FEW else np.inf

    @cached_property
    def old(self) -> NDArray[np.bool_]:
        """Which decisions are so old that their reward should have come."""
        return self.age > self.patience

    @cached_property
    def dependence(self) -> DelayDependence | None:
        """How rewards depend on their delay, given the row; None if that cannot be told."""
        arrived = self.rewarded[self.at]
        rows, which = self.rows[arrived], self.at[arrived]
        if len(which) < max(FIRST, 4 * rows.shape[1]):
            return None
        age, strata = self.age[which], strata_of(self.made[which])
        later, delay = np.empty(len(which)), np.minimum(self.delay[which], age)
        for stratum in range(STRATA):
            here = strata == stratum
            later[here] = excess(-age[here], -delay[here], np.ones(int(here.sum()), dtype=np.bool_))
        table = np.column_stack([self.value[which], later])
        y, late = _given(rows.astype(np.float64), table, strata).T
        spread = math.sqrt(float(y @ y) * float(late @ late))
        # Nothing but rounding may be left of a constant.
        if spread <= 1e-9 * np.prod(np.linalg.norm(table, axis=0)):
            return None
        each = y * late
        statistic = float(each.sum() / math.sqrt(float(each @ each)))
        limit = limit_of(look_number(max(self.rewards, len(which))))
        return DelayDependence(float(each.sum()) / spread, statistic, limit)


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
