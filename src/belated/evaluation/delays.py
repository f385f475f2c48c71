"""The delay curve, which share of rewards has come by which age, and what delays depend on.

If every outcome is reported, a decision without a reward is one whose reward is still to come:
Kaplan and Meier's estimate. If only conversions are reported, most decisions will never have one,
and a conversion is seen only if it comes sooner than its decision is old: the estimate for
right-truncated times, which compares conversions with conversions.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Literal

import numpy as np
from scipy.special import chdtrc, ndtri

from belated.core.inputs import Vector
from belated.core.results import Result, Shortened
from belated.evaluation.table import Codes, DecisionTable
from belated.exceptions import InvalidInput
from belated.model.statistics.log_rank import STRATA, log_rank, strata_of

#: Points of a curve that are passed on as plain data.
POINTS = 200


@dataclass(frozen=True, eq=False)
class DelayCurve(Result):
    """Which share of the rewards has come by which age, with bands for each age on its own.

    Attributes:
        delays: at which the curve rises, in microseconds.
        share: of the rewards that have come by then.
        low: lower end of the band.
        high: upper end.
        rewards: that have come.
        missing: decisions without one.
        level: of the bands.
        conversions: whether it is of the rewards that come at all within the greatest age seen;
            else every decision is expected to have one.
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
        """Return the share that has come by an age, and the ends of its band."""
        return self.at_us(age / timedelta(microseconds=1))

    def at_us(self, age: float) -> tuple[float, float, float]:
        """The same by an age in microseconds."""
        place = int(np.searchsorted(self.delays, age, side="right")) - 1
        if place < 0:  # none has come so soon
            total = self.rewards if self.conversions else self.rewards + self.missing
            return 0.0, 0.0, 1.0 - ((1.0 - self.level) / 2) ** (1 / max(total, 1))
        return float(self.share[place]), float(self.low[place]), float(self.high[place])

    def come_by(self, ages: Vector) -> Vector:
        """The shares that have come by ages in microseconds."""
        padded = np.concatenate([[0.0], self.share])
        found: Vector = padded[np.searchsorted(self.delays, ages, side="right")]
        return found

    def quantile(self, share: float) -> timedelta | None:
        """Return the age by which a share of the rewards has come; None if that is not known."""
        place = int(np.searchsorted(self.share, share, side="left"))
        if place == len(self.share):
            return None
        return timedelta(microseconds=float(self.delays[place]))

    @property
    def median(self) -> timedelta | None:
        """The age by which half of the rewards have come; None if that is not known."""
        return self.quantile(0.5)

    def to_dict(self) -> dict[str, Any]:
        """Return the curve as plain data, times in seconds, thinned to :data:`POINTS` points."""
        some = np.unique(np.linspace(0, len(self.delays) - 1, POINTS).round().astype(int))
        points = [self.delays[some] / 1e6, self.share[some], self.low[some], self.high[some]]
        named = {f"p{100 * share:.0f}": self.quantile(share) for share in (0.5, 0.9, 0.99)}
        return {
            "rewards": self.rewards,
            "missing": self.missing,
            "conversions": self.conversions,
            "level": self.level,
            **{name: None if at is None else at.total_seconds() for name, at in named.items()},
            "curve": [
                dict(zip(("delay", "share", "low", "high"), map(float, one), strict=True))
                for one in zip(*points, strict=True)
            ],
        }

    def __repr__(self) -> str:
        return f"DelayCurve(rewards={self.rewards}, missing={self.missing}, median={self.median})"


def delay_curve(table: DecisionTable, *, level: float = 0.95) -> DelayCurve:
    """Return which share of the rewards has come by which age.

    Args:
        table: of the decisions.
        level: of the bands, which hold for each age on its own.

    Raises:
        InvalidInput: no reward has come.

    >>> from belated.evaluation.table import DecisionTable
    >>> made = np.arange(4) * 86_400_000_000
    >>> came = made + [86_400_000_000, 86_400_000_000, 172_800_000_000, 86_400_000_000]
    >>> delay_curve(DecisionTable.of(made=made, rewarded=came, value=[1, 0, 1, 1])).median.days
    1
    """
    table = table.live()
    arrived = int(table.arrived.sum())
    if not arrived:
        message = f"none of {len(table):,} decisions has a reward: a delay curve needs some"
        raise InvalidInput(f"{message}; wait, or check that rewards are reported", arrived)
    times, rises, at_risk = curve_steps(table)
    with np.errstate(divide="ignore", invalid="ignore"):
        parts = np.log1p(-rises / at_risk)
        spread = rises / (at_risk * (at_risk - rises))
    z = float(ndtri(0.5 + level / 2))
    if table.conversions:
        # Π over later delays; the last one is where all have come.
        logs = np.append(np.cumsum(parts[:0:-1])[::-1], 0.0)
        spreads = np.append(np.cumsum(spread[:0:-1])[::-1], 0.0)
        share, low, high = _band(logs, spreads, z)
    else:
        missing, more, less = _band(np.cumsum(parts), np.cumsum(spread), z)
        share, low, high = 1.0 - missing, 1.0 - less, 1.0 - more
    return DelayCurve(
        times, share, low, high, arrived, len(table) - arrived, level, table.conversions
    )


def curve_steps(table: DecisionTable) -> tuple[Vector, Vector, Vector]:
    """Delays that were seen, how many of each, and among how many they could have been seen.

    Of conversions these are the conversions that are no later, of decisions old enough. A delay
    beside which no other could have been seen tells nothing, and is left out but for the first.
    """
    delay, age, arrived = table.delay, table.age, table.arrived
    times, counts = np.unique(delay[arrived], return_counts=True)
    rises = counts.astype(np.float64)
    if not table.conversions:
        left = np.sort(np.where(arrived, delay, age))
        return times, rises, (len(left) - np.searchsorted(left, times)).astype(np.float64)
    ages = np.sort(age[arrived])
    at_risk = np.cumsum(rises) - np.searchsorted(ages, times, side="left")
    told = (at_risk > rises) | (np.arange(len(times)) == 0)
    return times[told], rises[told], at_risk[told]


def _band(logs: Vector, spread: Vector, z: float) -> tuple[Vector, Vector, Vector]:
    """A share from its logarithm and that one's variance, with its log-log band."""
    share = np.exp(logs)
    with np.errstate(divide="ignore", invalid="ignore"):
        width = z * np.sqrt(spread) / -logs
        low, high = np.exp(logs * np.exp(width)), np.exp(logs * np.exp(-width))
    sure = ~np.isfinite(width)  # at 0 and at 1
    return share, np.where(sure, share, low), np.where(sure, share, high)


#: The least expected number of rewards of a group that is compared.
LEAST = 5.0


@dataclass(frozen=True, repr=False)
class Dependence(Shortened, Result):
    """Whether delays differ between groups.

    Attributes:
        on: what the groups are of: ``action`` or ``reward``.
        p: probability of differences as large as those seen, if there are none.
        statistic: of the log-rank test.
        groups: how many were compared.
        rewards: how many delays were compared.
        sooner: by group, rewards that came beyond what equal delays would give, over what they
            would give: above 0, they come sooner.
    """

    on: str
    p: float
    statistic: float
    groups: int
    rewards: int
    sooner: dict[str, float]


def delay_depends(table: DecisionTable, on: Literal["action", "reward"] = "action") -> Dependence:
    """Test whether delays depend on the action, or on the reward.

    On rewards it is weak if much is pending: with half of them, it sees a twofold difference of
    delays in one case of four. What this library estimates does not depend on the answer.

    Args:
        table: of the decisions.
        on: ``action``, or ``reward``: above the median against the others.

    Raises:
        InvalidInput: there is nothing to compare; of conversions, the delays of those that never
            come are unknown, so dependence on the reward cannot be tested.
    """
    if on not in ("action", "reward"):
        raise InvalidInput(f"on is {on!r}: 'action' or 'reward' was expected", on)
    if on == "reward" and table.conversions:
        message = "a missing reward counts as one here, so no delay of it is ever seen: whether"
        raise InvalidInput(f"{message} delays depend on the reward cannot be tested", on)
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
    for one in range(STRATA):
        here = stratum == one
        sums = log_rank(start[here], end[here], event[here], groups[here], count)
        score, variance = score + sums.score, variance + sums.variance
        expected = expected + sums.expected
    used = expected >= LEAST
    if used.sum() < 2:
        message = f"delays of {int(event.sum()):,} rewards in {count} groups: at least two groups"
        raise InvalidInput(f"{message} with {LEAST:.0f} rewards each are needed", on)
    # Those that are too small to be compared stay in what the others are compared with.
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
    middle = float(np.median(value))
    high = value > middle if (value > middle).any() else value >= middle
    return high.astype(np.int32), ("low", "high")
