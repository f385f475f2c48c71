"""The evidence that checks examine."""

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

#: Maximum number of decisions, rows and row values in a sample.
SAMPLE, ROWS, NUMBERS = 8_192, 1_024, 1 << 19
#: Minimum number of rewards for conclusions about delays.
FEW = 10
#: Marks decisions without a reward in ``arrived``.
NONE = -1


def quantile(values: NDArray[Any], share: float) -> float:
    """Return the quantile of the values at ``share``, without interpolation.

    ``np.quantile`` is avoided because it imports a module on its first call, which would delay the
    caller.

    >>> quantile(np.array([3, 1, 2]), 0.9)
    3.0
    """
    place = min(int(share * len(values)), len(values) - 1)
    return float(np.partition(values, place)[place])


@dataclass(frozen=True)
class Overview:
    """Facts available only in a report; the defaults produce no findings.

    Attributes:
        quiet: time since the last reward, the number of rewards expected since then, and whether
            that number is too large to be due to chance; None if there are too few rewards for a
            forecast.
        slowing: if fewer rewards arrive than chance explains, the time at which this began, the
            number of rewards since then, and the number expected; otherwise None.
        outages: start and length of each gap between rewards that is too long to be due to chance.
        bias: relative bias of predictions and its standard error; None if there are too few
            rewards.
        favorite: the action with the most recent decisions, and its share of them; the share is 0
            if there are too few decisions or only one action.
        mode: mode of the bandit.
        converged: whether the last fit converged.
        reward_messages: total number of reward messages.
        problems: number of reward messages with each kind of problem.
    """

    quiet: tuple[int, float, bool] | None = None
    slowing: tuple[int, int, float] | None = None
    outages: Sequence[tuple[int, int]] = ()
    bias: tuple[float, float] | None = None
    favorite: tuple[str, float] = "", 0.0
    mode: str = "learn"
    converged: bool = True
    reward_messages: int = 0
    problems: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, eq=False)
class Evidence:
    """A sample of decisions, evenly spread over the decisions in memory, and some counts.

    Times are in microseconds or rounds. Dormant and voided decisions are omitted.

    Attributes:
        family: family of the rewards.
        ridge: average prior precision of a coefficient.
        window: the window of rewards; None if there is none.
        defaults: whether the model learns from a decision without a reward when its window ends.
        now: time of the last event.
        latest: when the last reward arrived; NONE if there is none.
        decisions: total number of decisions.
        pending: number of pending decisions.
        rewards: total number of reward events that counted.
        duplicates: number of reward events that repeat a known reward.
        unmatched: number of events with an unknown decision id.
        made: when each decision in the sample was made, in the order of decision numbers.
        arrived: when the reward of each decision arrived, or NONE.
        value: the reward of each decision, or the default.
        learned: whether the model learns from each value.
        rows: rows of some decisions in the sample.
        at: indices of these decisions in the sample.
        on_arrival: whether the model learns from rewards on arrival, and from missing ones later.
        together: whether the model learns from all rewards at a common age.
        conversions: whether only conversions are reported, so that decisions are weighted by age.
        overview: facts available only in a report; the default in a running bandit.
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
    arrived: NDArray[np.int64] = field(default_factory=lambda: np.zeros(0, dtype=np.int64))
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
        """Return up to ``count`` evenly spread indices below ``size``.

        >>> Evidence.spread(3, 5), Evidence.spread(100, 3)
        (array([0, 1, 2]), array([ 0, 49, 99]))
        """
        return np.arange(size) if size <= count else np.linspace(0, size - 1, count).astype(int)

    @cached_property
    def rewarded(self) -> NDArray[np.bool_]:
        """Mask of the decisions with a reward."""
        return np.asarray(self.arrived != NONE)

    @cached_property
    def age(self) -> NDArray[np.int64]:
        """Age of each decision."""
        return self.now - self.made

    @cached_property
    def delay(self) -> NDArray[np.int64]:
        """Delay of each reward that has arrived; 0 if the reward arrived before its decision."""
        return np.asarray(np.maximum(self.arrived - self.made, 0))

    @cached_property
    def patience(self) -> float:
        """The age by which a reward should have arrived: three times the 90 % quantile of delays.

        Delays longer than the bandit's lifetime cannot have been observed. If delays are that long,
        the observed delays are spread over the lifetime, three times their quantile exceeds it, and
        no decision counts as old.
        """
        delay = self.delay[self.rewarded]
        return 3.0 * quantile(delay, 0.9) if len(delay) >= FEW else np.inf

    @cached_property
    def old(self) -> NDArray[np.bool_]:
        """Mask of the decisions that are old enough for their reward to have arrived."""
        return self.age > self.patience

    @cached_property
    def dependence(self) -> DelayDependence | None:
        """Dependence of rewards on their delay, given the row; None if it cannot be tested."""
        arrived = self.rewarded[self.at]
        rows, places = self.rows[arrived], self.at[arrived]
        if len(places) < max(FIRST, 4 * rows.shape[1]):
            return None
        age, strata = self.age[places], strata_of(self.made[places])
        later, delay = np.empty(len(places)), np.minimum(self.delay[places], age)
        for stratum in range(STRATA):
            here = strata == stratum
            later[here] = excess(-age[here], -delay[here], np.ones(int(here.sum()), dtype=np.bool_))
        table = np.column_stack([self.value[places], later])
        y, late = _given(rows.astype(np.float64), table, strata).T
        spread = math.sqrt(float(y @ y) * float(late @ late))
        # If a column is constant, only rounding errors may remain.
        if spread <= 1e-9 * np.prod(np.linalg.norm(table, axis=0)):
            return None
        terms = y * late
        statistic = float(terms.sum() / math.sqrt(float(terms @ terms)))
        limit = limit_of(look_number(max(self.rewards, len(places))))
        return DelayDependence(float(terms.sum()) / spread, statistic, limit)


#: Probability that a bandit ever warns of dependence although delays do not depend on rewards.
LEVEL = 0.001
#: Number of rewards before the first test, and the growth between tests.
FIRST, GROWTH = 200, 1.5


@dataclass(frozen=True)
class DelayDependence:
    """Dependence of rewards on their delays.

    Attributes:
        correlation: correlation of the reward with its lateness, given the row.
        statistic: the correlation in standard errors.
        limit: critical value of the statistic, corrected for repeated tests.
    """

    correlation: float
    statistic: float
    limit: float

    @property
    def ratio(self) -> float:
        """Statistic divided by its limit; above 1, delays depend on the reward."""
        return abs(self.statistic) / self.limit


def look_number(rewards: int) -> int:
    """Return the number of the test due after ``rewards`` rewards; 0 before the first test.

    >>> [look_number(rewards) for rewards in (199, 200, 299, 300, 10_000)]
    [0, 1, 1, 2, 10]
    """
    if rewards < FIRST:
        return 0
    return 1 + int(math.log(rewards / FIRST) / math.log(GROWTH) + 1e-9)


def limit_of(look: int) -> float:
    """Return the critical value of test number ``look``, in standard errors.

    >>> [round(limit_of(look), 2) for look in (1, 10, 100)]
    [3.9, 4.82, 5.67]
    """
    return math.sqrt(2.0 * math.log(look * (look + 1) / LEVEL))


def _given(rows: Matrix, table: Matrix, strata: NDArray[np.int64]) -> Matrix:
    """Regress a table's columns on the rows within strata; return the residuals."""
    stacked = np.column_stack([rows, table])
    for stratum in range(STRATA):
        here = strata == stratum
        stacked[here] -= stacked[here].mean(axis=0)
    rows, target = stacked[:, : rows.shape[1]], stacked[:, rows.shape[1] :]
    gram = rows.T @ rows
    little = 1e-9 * gram.trace()
    if little == 0.0:  # all rows are the same
        return target
    return target - rows @ np.linalg.solve(gram + little * np.eye(len(gram)), rows.T @ target)
