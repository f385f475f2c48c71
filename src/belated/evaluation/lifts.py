"""Lift of the bandit over its holdout, corrected for pending rewards.

Each group has its own arrival weights (:mod:`belated.evaluation.arrivals`). Without weights, a test
on the arrived rewards rejects a true null hypothesis in one of five cases if one group's rewards
arrive more slowly.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from scipy.special import ndtr, ndtri

from belated.core.results import Result
from belated.core.times import Duration
from belated.evaluation.arrivals import arrival_weights, estimand, final_age, reach_of, within
from belated.evaluation.sequences import sequence_width
from belated.evaluation.table import DecisionTable
from belated.exceptions import NotEvaluable

#: Minimum number of rewards in each group.
FEW = 10
#: For the anytime-valid interval: the minimum number of outcomes above the mean, and of remaining
#: outcomes, in each group; and the size of the smaller group for which the interval is optimized.
FIRST, USUAL = 20, 2_000

#: The groups that are compared.
GROUPS = ("bandit", "holdout")


class GroupValue(NamedTuple):
    """Mean reward of a group of decisions.

    Attributes:
        name: name of the group.
        decisions: number of decisions in the group.
        rewards: number of rewards that have arrived.
        value: mean reward per decision.
        error: standard error of the mean reward.
    """

    name: str
    decisions: int
    rewards: int
    value: float
    error: float


@dataclass(frozen=True)
class Lift(Result):
    """Difference in mean reward between the bandit and its holdout.

    Attributes:
        bandit: mean reward of the bandit's decisions.
        holdout: mean reward of the holdout's decisions.
        difference: difference in mean reward per decision.
        low: lower bound of the interval, for a single evaluation.
        high: upper bound of the interval, for a single evaluation.
        p: p-value of the test that there is no difference.
        relative: difference relative to the holdout's mean, and the limits of its interval; None
            if either mean is not above 0.
        confidence_sequence: difference and anytime-valid interval, from decisions older than the
            limit or the window; None if neither is set, or if too few decisions are that old.
        level: confidence level of the intervals.
        estimand: description of the estimated quantity.
        baseline: the baseline of the holdout: the name of an action, ``"first"`` or ``"uniform"``;
            None if unknown.
    """

    bandit: GroupValue
    holdout: GroupValue
    difference: float
    low: float
    high: float
    p: float
    relative: tuple[float, float, float] | None
    confidence_sequence: tuple[float, float, float] | None
    level: float
    estimand: str
    baseline: str | None = None

    def __repr__(self) -> str:
        ends = f"low={self.low:+.4g}, high={self.high:+.4g}"
        return f"Lift({self.difference:+.4g}, {ends}, baseline={self.baseline!r})"


def lift(table: DecisionTable, *, limit: Duration | None = None, level: float = 0.95) -> Lift:
    """Estimate the lift of the bandit's decisions over those of its holdout.

    Args:
        table: the decisions, with their groups.
        limit: count only rewards that arrive within this time; None means all observable rewards.
        level: confidence level of the intervals.

    Raises:
        NotEvaluable: a group is missing, or has too few rewards.
    """
    table = table.live()
    reach = reach_of(table, limit)
    bandit, holdout = (earned(_group(table, name), name, limit=reach) for name in GROUPS)
    difference, error = bandit.value - holdout.value, math.hypot(bandit.error, holdout.error)
    z = float(ndtri(0.5 + level / 2))
    relative: tuple[float, float, float] | None = None
    if bandit.value > 0.0 and holdout.value > 0.0:
        spread = math.hypot(bandit.error / bandit.value, holdout.error / holdout.value)
        factor = math.exp(z * spread)
        ratio = bandit.value / holdout.value
        relative = ratio - 1.0, ratio / factor - 1.0, ratio * factor - 1.0
    return Lift(
        bandit,
        holdout,
        difference,
        difference - z * error,
        difference + z * error,
        float(2.0 * ndtr(-abs(difference) / error)) if error else float(difference == 0.0),
        relative,
        confidence_sequence=final_difference(table, limit=limit, level=level),
        level=level,
        estimand=estimand("difference in mean reward, over all decisions", table, limit),
        baseline=table.baseline,
    )


def earned(group: DecisionTable, name: str, *, limit: float | None = None) -> GroupValue:
    """Estimate the mean reward of a group's decisions, with its own arrival weights.

    Args:
        group: the decisions, all of which took effect.
        name: name of the group.
        limit: count only rewards that arrive within this time, in microseconds; None means all
            observable rewards.

    Raises:
        NotEvaluable: too few decisions have a reward.
    """
    reach = group.reach if limit is None else limit
    omega = arrival_weights(within(group.delay, reach), group.age)
    arrived = omega > 0.0
    rewards, count = int(arrived.sum()), len(group)
    if rewards < FEW:
        message = f"only {rewards} of {count:,} decisions of the group {name!r} have a reward, but"
        raise NotEvaluable(
            f"{message} at least {FEW} are needed: wait for more, or hold out a larger share"
        )
    if group.conversions:
        base = group.rewards.default
        terms = np.where(arrived, omega * (np.where(arrived, group.value, base) - base), 0.0)
        value = base + float(terms.mean())
        error = float(terms.std(ddof=1)) / math.sqrt(count)
    else:
        outcome = np.where(arrived, group.value, 0.0)
        total = float(omega.sum())
        value = float((omega * outcome).sum()) / total
        error = math.sqrt(float(np.square(omega * (outcome - value)).sum())) / total
    return GroupValue(name, count, rewards, value, error)


def _group(table: DecisionTable, name: str) -> DecisionTable:
    if name not in table.groups:
        names = ", ".join(repr(group) for group in table.groups if group) or "none"
        message = f"there is no group {name!r} (groups: {names})"
        raise NotEvaluable(
            f"{message}: create the bandit with holdout=Holdout(0.05, 'first'), and wait for"
            " rewards"
        )
    return table.select(table.in_group(name))


def final_difference(
    table: DecisionTable, *, limit: Duration | None = None, level: float = 0.95
) -> tuple[float, float, float] | None:
    """Return the difference from decisions with a final outcome, and its anytime-valid interval.

    The result is None until each group has :data:`FIRST` outcomes above its mean and :data:`FIRST`
    remaining outcomes.

    Args:
        table: the decisions, all of which took effect.
        limit: outcomes are final after this time; None means after the window.
        level: confidence level of the interval.
    """
    horizon = final_age(table, limit)
    if horizon is None:
        return None
    means, variances, counts = [], [], []
    for name in GROUPS:
        final = table.in_group(name) & (table.age >= horizon)
        arrived, value = table.delay[final] <= horizon, table.value[final]
        if table.conversions:
            value = np.where(arrived, value, table.rewards.default)
        else:
            value = value[arrived]
        above = int((value > value.mean()).sum()) if len(value) else 0
        if min(above, len(value) - above) < FIRST:
            return None
        means.append(float(value.mean()))
        variances.append(float(value.var(ddof=1)) / len(value))
        counts.append(len(value))
    difference, variance = means[0] - means[1], sum(variances)
    width = sequence_width(variance, min(counts), USUAL, 1.0 - level)
    return difference, difference - width, difference + width
