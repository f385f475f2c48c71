"""Whether delays depend on the action, or on the reward: log-rank tests within strata of time.

Decisions are compared with others of about the same time only: a policy changes what it chooses,
and rewards drift. Where only arrived rewards can be compared, time runs backwards: at a delay u,
those that came within u and could have come later are at risk.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from scipy.special import chdtrc

from belated.core.results import Result
from belated.evaluation.table import Codes, DecisionTable
from belated.exceptions import InvalidInput
from belated.model.statistics.log_rank import STRATA, log_rank, strata_of

#: The least expected number of rewards of a group that is compared.
LEAST = 5.0


@dataclass(frozen=True)
class Dependence(Result):
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
