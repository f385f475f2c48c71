"""The delay curve (the share of rewards that has arrived by each age), and tests for dependence.

If every outcome is reported, a decision without a reward is right-censored, and the curve is the
Kaplan–Meier estimate. If only conversions are reported, most decisions never convert, and a
conversion is observed only if its delay is shorter than the age of its decision. Delays are then
right-truncated, and the curve is the corresponding estimate, which uses conversions only.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Literal

import numpy as np
from scipy.special import chdtrc, ndtri

from belated.core.inputs import Vector, must_be
from belated.core.results import Result, Shortened
from belated.evaluation.table import Codes, DecisionTable
from belated.exceptions import InvalidInput
from belated.model.statistics.log_rank import STRATA, log_rank, strata_of

#: Maximum number of points per curve in `to_dict()` output.
POINTS = 200


@dataclass(frozen=True, eq=False)
class DelayCurve(Result):
    """The share of rewards that has arrived by each age, with pointwise confidence bands.

    Attributes:
        delays: delays at which the curve rises, in microseconds.
        share: share of the rewards that has arrived by each delay.
        low: lower bound of the band.
        high: upper bound of the band.
        rewards: number of rewards that have arrived.
        missing: number of decisions without a reward.
        level: confidence level of the bands.
        conversions: whether only conversions are reported; shares then refer to the rewards that
            arrive within the greatest observed age. Otherwise, every decision is expected to have
            a reward.
    """

    delays: Vector
    share: Vector
    low: Vector
    high: Vector
    rewards: int
    missing: int
    level: float
    conversions: bool

    def at(self, age: timedelta) -> tuple[float, float, float]:
        """Return the share that has arrived by an age, and its band."""
        return self.at_us(age / timedelta(microseconds=1))

    def at_us(self, age: float) -> tuple[float, float, float]:
        """Return the share that has arrived by an age in microseconds, and its band."""
        place = int(np.searchsorted(self.delays, age, side="right")) - 1
        if place < 0:  # all observed delays are longer
            total = self.rewards if self.conversions else self.rewards + self.missing
            return 0.0, 0.0, 1.0 - ((1.0 - self.level) / 2) ** (1 / max(total, 1))
        return float(self.share[place]), float(self.low[place]), float(self.high[place])

    def arrived_by(self, ages: Vector) -> Vector:
        """Return the shares that have arrived by the given ages, in microseconds."""
        padded = np.concatenate([[0.0], self.share])
        shares: Vector = padded[np.searchsorted(self.delays, ages, side="right")]
        return shares

    def quantile(self, share: float) -> timedelta | None:
        """Return the age by which a share of the rewards has arrived; None if unknown."""
        place = int(np.searchsorted(self.share, share, side="left"))
        if place == len(self.share):
            return None
        return timedelta(microseconds=float(self.delays[place]))

    @property
    def median(self) -> timedelta | None:
        """The age by which half of the rewards have arrived; None if unknown."""
        return self.quantile(0.5)

    def to_dict(self) -> dict[str, Any]:
        """Return the curve as plain data, with times in seconds and up to :data:`POINTS` points."""
        places = np.unique(np.linspace(0, len(self.delays) - 1, POINTS).round().astype(int))
        columns = [self.delays / 1e6, self.share, self.low, self.high]
        quantiles = {f"p{100 * share:.0f}": self.quantile(share) for share in (0.5, 0.9, 0.99)}
        return {
            "rewards": self.rewards,
            "missing": self.missing,
            "conversions": self.conversions,
            "level": self.level,
            **{name: None if at is None else at.total_seconds() for name, at in quantiles.items()},
            "curve": [
                dict(zip(("delay", "share", "low", "high"), map(float, point), strict=True))
                for point in zip(*(column[places] for column in columns), strict=True)
            ],
        }

    def __repr__(self) -> str:
        return f"DelayCurve(rewards={self.rewards}, missing={self.missing}, median={self.median})"


def delay_curve(table: DecisionTable, *, level: float = 0.95) -> DelayCurve:
    """Estimate the share of rewards that has arrived by each age.

    Args:
        table: the decisions.
        level: confidence level of the bands, which are pointwise.

    Raises:
        InvalidInput: no reward has arrived.

    >>> from belated.evaluation.table import DecisionTable
    >>> made = np.arange(4) * 86_400_000_000
    >>> came = made + [86_400_000_000, 86_400_000_000, 172_800_000_000, 86_400_000_000]
    >>> delay_curve(DecisionTable.of(made=made, rewarded=came, value=[1, 0, 1, 1])).median.days
    1
    """
    table = table.live()
    arrived = int(table.arrived.sum())
    if not arrived:
        message = (
            f"a delay curve needs rewards, but none of the {len(table):,} decisions has a reward"
        )
        raise InvalidInput(f"{message}: wait, or check that rewards are reported", arrived)
    times, rises, at_risk = curve_steps(table)
    with np.errstate(divide="ignore", invalid="ignore"):
        parts = np.log1p(-rises / at_risk)
        spread = rises / (at_risk * (at_risk - rises))
    z = float(ndtri(0.5 + level / 2))
    if table.conversions:
        # The product over later delays; the share at the last delay is 1.
        logs = np.append(np.cumsum(parts[:0:-1])[::-1], 0.0)
        spreads = np.append(np.cumsum(spread[:0:-1])[::-1], 0.0)
        share, low, high = _band(logs, spreads, z)
    else:
        missing, fewest, most = _band(np.cumsum(parts), np.cumsum(spread), z)
        share, low, high = 1.0 - missing, 1.0 - most, 1.0 - fewest
    return DelayCurve(
        times, share, low, high, arrived, len(table) - arrived, level, table.conversions
    )


def curve_steps(table: DecisionTable) -> tuple[Vector, Vector, Vector]:
    """Return the observed delays, the number of rewards with each, and the number at risk.

    If only conversions are reported, the conversions at risk at a delay are those with at most that
    delay whose decision is at least that old. A delay at which no other conversion is at risk
    carries no information and is omitted, except for the first.
    """
    delay, age, arrived = table.delay, table.age, table.arrived
    times, counts = np.unique(delay[arrived], return_counts=True)
    rises = counts.astype(np.float64)
    if not table.conversions:
        ends = np.sort(np.where(arrived, delay, age))
        return times, rises, (len(ends) - np.searchsorted(ends, times)).astype(np.float64)
    ages = np.sort(age[arrived])
    at_risk = np.cumsum(rises) - np.searchsorted(ages, times, side="left")
    used = (at_risk > rises) | (np.arange(len(times)) == 0)
    return times[used], rises[used], at_risk[used]


def _band(logs: Vector, spread: Vector, z: float) -> tuple[Vector, Vector, Vector]:
    """Return shares and their log-log band, from the logarithm of the shares and its variance."""
    share = np.exp(logs)
    with np.errstate(divide="ignore", invalid="ignore"):
        width = z * np.sqrt(spread) / -logs
        low, high = np.exp(logs * np.exp(width)), np.exp(logs * np.exp(-width))
    exact = ~np.isfinite(width)  # shares of 0 and 1
    return share, np.where(exact, share, low), np.where(exact, share, high)


#: Minimum expected number of rewards for a group to be compared.
LEAST = 5.0


@dataclass(frozen=True, repr=False)
class Dependence(Shortened, Result):
    """Result of a test for differences in delay between groups.

    Attributes:
        on: how decisions are grouped: by ``action`` or by ``reward``.
        p: p-value of the test that delays do not differ.
        statistic: statistic of the log-rank test.
        groups: number of groups compared.
        rewards: number of delays compared.
        sooner: for each group, the number of rewards divided by the number expected with equal
            delays, minus 1. A positive value means that rewards arrive sooner.
    """

    on: str
    p: float
    statistic: float
    groups: int
    rewards: int
    sooner: dict[str, float]


def delay_depends(table: DecisionTable, on: Literal["action", "reward"] = "action") -> Dependence:
    """Test whether delays depend on the action, or on the reward.

    The test on rewards has little power if many are pending: with half of them pending, it detects
    a twofold difference in delays in one case of four. The library's estimates are valid in either
    case.

    Args:
        table: the decisions.
        on: ``action``; or ``reward`` to compare rewards above the median with the remaining ones.

    Raises:
        InvalidInput: there are too few groups to compare; or ``on`` is ``reward`` and a missing
            reward counts as a value, because the delay of such a reward is never observed.
    """
    if on not in ("action", "reward"):
        raise must_be("on", "'action' or 'reward'", on)
    if on == "reward" and table.conversions:
        message = "cannot test whether delays depend on the reward, because a missing reward counts"
        raise InvalidInput(f"{message} as a value whose delay is never observed: use 'action'", on)
    table = table.live()
    backwards = on == "reward" or table.conversions
    if backwards:
        table = table.select(table.arrived)
    groups, names = _groups(table, on)
    stratum = strata_of(table.made)
    delay, age, event = table.delay, table.age, table.arrived
    start = np.zeros(len(table))
    end = np.where(event, delay, age)
    if backwards:
        start, end = -age, -delay
    count = len(names)
    score, variance, expected = np.zeros(count), np.zeros((count, count)), np.zeros(count)
    for number in range(STRATA):
        here = stratum == number
        sums = log_rank(start[here], end[here], event[here], groups[here], count)
        score, variance = score + sums.score, variance + sums.variance
        expected = expected + sums.expected
    used = expected >= LEAST
    if used.sum() < 2:
        message = f"too few rewards to compare delays: {int(event.sum()):,} in {count} groups. At"
        raise InvalidInput(f"{message} least two groups need {LEAST:.0f} rewards each", on)
    # Groups that are too small to compare remain part of the reference for the other groups.
    places = np.flatnonzero(used)
    free = places if not used.all() else places[:-1]
    statistic = float(score[free] @ np.linalg.pinv(variance[np.ix_(free, free)]) @ score[free])
    sign = -1.0 if backwards else 1.0
    sooner = {str(names[g]): float(sign * score[g] / expected[g]) for g in places}
    p = float(chdtrc(len(free), statistic))
    return Dependence(on, p, statistic, len(places), int(event.sum()), sooner)


def _groups(table: DecisionTable, on: str) -> tuple[Codes, tuple[Any, ...]]:
    if on == "action":
        return table.action, table.actions
    value = table.value
    if not len(value):
        return table.action, ("low",)
    median = float(np.median(value))
    high = value > median if (value > median).any() else value >= median
    return high.astype(np.int32), ("low", "high")
