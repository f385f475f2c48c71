"""What the bandit earns beyond its holdout, though rewards are late, and later in one group.

Each group is made whole by weights of its own (:mod:`belated.evaluation.arrivals`): the plain
difference of what has arrived rejects a true null in one case of five if one group is slower.
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

#: Rewards of a group without which nothing is said.
FEW = 10
#: Of an interval that holds at all times: outcomes above the mean, and others, of each group before
#: which it says nothing; and the decisions of the smaller group at which it is the narrowest.
FIRST, USUAL = 20, 2_000

#: The decisions that are compared.
GROUPS = ("bandit", "holdout")


class GroupValue(NamedTuple):
    """What one group earns per decision.

    Attributes:
        name: of the group.
        decisions: in it.
        rewards: that have come.
        value: mean reward of a decision.
        error: its standard error.
    """

    name: str
    decisions: int
    rewards: int
    value: float
    error: float


@dataclass(frozen=True)
class Lift(Result):
    """What one group earns beyond another.

    Attributes:
        bandit: the group that is compared.
        holdout: the group it is compared with.
        difference: of their mean rewards per decision.
        low: lower end of the interval, at the time of the evaluation.
        high: upper end.
        p: probability of a difference as large as that seen, if there is none.
        relative: difference over the mean of the holdout, and the ends of its interval; None if a
            mean is not above 0.
        always: difference and the interval that holds at all times, by decisions older than the
            limit or the window; None if there is neither, or too few are so old.
        level: of the intervals.
        estimand: what this is the lift of, in words.
        baseline: what the holdout shows: the name of an action, ``"first"`` or ``"uniform"``; None
            if that is not known.
    """

    bandit: GroupValue
    holdout: GroupValue
    difference: float
    low: float
    high: float
    p: float
    relative: tuple[float, float, float] | None
    always: tuple[float, float, float] | None
    level: float
    estimand: str
    baseline: str | None = None

    def __repr__(self) -> str:
        ends = f"low={self.low:+.4g}, high={self.high:+.4g}"
        return f"Lift({self.difference:+.4g}, {ends}, baseline={self.baseline!r})"


def lift(table: DecisionTable, *, limit: Duration | None = None, level: float = 0.95) -> Lift:
    """Return what the bandit's decisions earn beyond those of its holdout.

    Args:
        table: of the decisions, with their groups.
        limit: count rewards that come within this time only; None: all that could be seen.
        level: of the intervals.

    Raises:
        NotEvaluable: there is no such group, or hardly a reward in one.
    """
    table = table.live()
    reach = reach_of(table, limit)
    one, other = (earned(_group(table, name), name, limit=reach) for name in GROUPS)
    difference, error = one.value - other.value, math.hypot(one.error, other.error)
    z = float(ndtri(0.5 + level / 2))
    relative: tuple[float, float, float] | None = None
    if one.value > 0.0 and other.value > 0.0:
        factor = math.exp(z * math.hypot(one.error / one.value, other.error / other.value))
        ratio = one.value / other.value
        relative = ratio - 1.0, ratio / factor - 1.0, ratio * factor - 1.0
    return Lift(
        one,
        other,
        difference,
        difference - z * error,
        difference + z * error,
        float(2.0 * ndtr(-abs(difference) / error)) if error else float(difference == 0.0),
        relative,
        always=final_difference(table, limit=limit, level=level),
        level=level,
        estimand=estimand("difference in mean reward, over all decisions", table, limit),
        baseline=table.baseline,
    )


def earned(here: DecisionTable, name: str, *, limit: float | None = None) -> GroupValue:
    """Return what decisions earn each, made whole by weights of their own.

    Args:
        here: the decisions, all of which took effect.
        name: what to call them.
        limit: count rewards that come within so many microseconds only; None: all that could be
            seen.

    Raises:
        NotEvaluable: hardly one has a reward.
    """
    reach = here.reach if limit is None else limit
    omega = arrival_weights(within(here.delay, reach), here.age)
    came = omega > 0.0
    rewards, count = int(came.sum()), len(here)
    if rewards < FEW:
        message = f"{rewards} of {count:,} decisions of the group {name!r} have a reward: at least"
        raise NotEvaluable(f"{message} {FEW} are needed; wait for more, or hold out a larger share")
    if here.conversions:
        base = here.rewards.default
        terms = np.where(came, omega * (np.where(came, here.value, base) - base), 0.0)
        value = base + float(terms.mean())
        error = float(terms.std(ddof=1)) / math.sqrt(count)
    else:
        outcome = np.where(came, here.value, 0.0)
        total = float(omega.sum())
        value = float((omega * outcome).sum()) / total
        error = math.sqrt(float(np.square(omega * (outcome - value)).sum())) / total
    return GroupValue(name, count, rewards, value, error)


def _group(table: DecisionTable, name: str) -> DecisionTable:
    if name not in table.groups:
        known = ", ".join(repr(one) for one in table.groups if one) or "none"
        message = f"there is no group {name!r} (groups: {known})"
        raise NotEvaluable(
            f"{message}: make the bandit with holdout=Holdout(0.05, 'first'), and wait"
        )
    return table.select(table.in_group(name))


def final_difference(
    table: DecisionTable, *, limit: Duration | None = None, level: float = 0.95
) -> tuple[float, float, float] | None:
    """Return the difference by decisions whose outcome is final, and an interval for all times.

    It is None before each group has :data:`FIRST` outcomes above its mean, and as many others.

    Args:
        table: of the decisions, all of which took effect.
        limit: outcomes are final after this time; None: after the window.
        level: of the interval.
    """
    horizon = final_age(table, limit)
    if horizon is None:
        return None
    means, variances, counts = [], [], []
    for name in GROUPS:
        here = table.in_group(name) & (table.age >= horizon)
        came, value = table.delay[here] <= horizon, table.value[here]
        value = np.where(came, value, table.rewards.default) if table.conversions else value[came]
        above = int((value > value.mean()).sum()) if len(value) else 0
        if min(above, len(value) - above) < FIRST:
            return None
        means.append(float(value.mean()))
        variances.append(float(value.var(ddof=1)) / len(value))
        counts.append(len(value))
    difference, variance = means[0] - means[1], sum(variances)
    width = sequence_width(variance, min(counts), USUAL, 1.0 - level)
    return difference, difference - width, difference + width
