"""The log-rank test: whether events arrive sooner in some groups than in others.

At the time of each event, all subjects at risk are compared. A subject is at risk from ``start``
to ``end``, inclusive.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from belated.core.inputs import Matrix, Vector

#: Number of strata of decision times; only decisions made at about the same time are compared.
STRATA = 10


class LogRank(NamedTuple):
    """Log-rank sums by group.

    Attributes:
        score: number of events minus the expected number.
        variance: covariance of the scores.
        expected: expected number of events if the groups do not differ.
    """

    score: Vector
    variance: Matrix
    expected: Vector


def strata_of(times: NDArray[Any], count: int = STRATA) -> NDArray[np.int64]:
    """Assign each time to a stratum; strata are consecutive and have equal numbers of times.

    >>> strata_of(np.array([30, 10, 20, 40]), 2)
    array([1, 0, 0, 1])
    """
    strata = np.empty(len(times), dtype=np.int64)
    strata[np.argsort(times, kind="stable")] = np.arange(len(times)) * count // max(len(times), 1)
    return strata


def log_rank(
    start: NDArray[Any],
    end: NDArray[Any],
    event: NDArray[np.bool_],
    groups: NDArray[Any],
    count: int,
) -> LogRank:
    """Return the log-rank sums for each group.

    Args:
        start: start of each subject's time at risk.
        end: end of the time at risk.
        event: whether the time at risk ended with an event.
        groups: index of the subject's group.
        count: number of groups.
    """
    times = np.unique(end[event])
    if not len(times):
        return LogRank(np.zeros(count), np.zeros((count, count)), np.zeros(count))
    at_risk, events = np.empty((count, len(times))), np.empty((count, len(times)))
    for g in range(count):
        here = groups == g
        at_risk[g] = _at_risk(start[here], end[here], times)
        place = np.searchsorted(times, end[here & event])
        events[g] = np.bincount(place, minlength=len(times))
    total, gone = at_risk.sum(axis=0), events.sum(axis=0)
    used = total > 1
    share, gone, total = at_risk[:, used] / total[used], gone[used], total[used]
    factor = gone * (total - gone) / (total - 1)
    score = events[:, used].sum(axis=1) - share @ gone
    variance = np.diag(share @ factor) - (share * factor) @ share.T
    return LogRank(score, variance, share @ gone)


def excess(start: NDArray[Any], end: NDArray[Any], event: NDArray[np.bool_]) -> Vector:
    """Return each subject's event count (0 or 1) minus the number expected while at risk.

    A positive value means that the event was early. The values sum to 0, and the score of a group
    is the sum of its values.

    >>> excess(np.zeros(3), np.array([1.0, 2.0, 2.0]), np.array([True, True, False])).round(2)
    array([ 0.67,  0.17, -0.83])
    """
    times, events = np.unique(end[event], return_counts=True)
    hazard = np.append(0.0, np.cumsum(events / _at_risk(start, end, times)))
    until = hazard[np.searchsorted(times, end, side="right")]
    return np.asarray(event - (until - hazard[np.searchsorted(times, start, side="left")]))


def _at_risk(start: NDArray[Any], end: NDArray[Any], times: NDArray[Any]) -> NDArray[np.int64]:
    began = np.searchsorted(np.sort(start), times, side="right")
    return np.asarray(began - np.searchsorted(np.sort(end), times, side="left"))
