"""Log-rank sums: whether some of what was waited for came sooner than others did.

At every time at which something came, all who were waiting are compared. Who waits from ``start``
to ``end`` is at risk at each time between, both included.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from belated.core.inputs import Matrix, Vector

#: Strata of the times of decisions: only decisions of about the same time are compared.
STRATA = 10


class LogRank(NamedTuple):
    """Sums by group.

    Attributes:
        score: what came, less what was expected.
        variance: the covariance of the scores.
        expected: what would have come if all groups were alike.
    """

    score: Vector
    variance: Matrix
    expected: Vector


def strata_of(times: NDArray[Any], count: int = STRATA) -> NDArray[np.int64]:
    """Number the strata of equally many consecutive times.

    >>> strata_of(np.array([30, 10, 20, 40]), 2)
    array([1, 0, 0, 1])
    """
    found = np.empty(len(times), dtype=np.int64)
    found[np.argsort(times, kind="stable")] = np.arange(len(times)) * count // max(len(times), 1)
    return found


def log_rank(
    start: NDArray[Any],
    end: NDArray[Any],
    event: NDArray[np.bool_],
    groups: NDArray[Any],
    count: int,
) -> LogRank:
    """Compare groups.

    Args:
        start: when the wait of each began.
        end: when it ended.
        event: whether it ended because something came.
        groups: the number of its group.
        count: of groups.
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
    told = total > 1
    share, gone, total = at_risk[:, told] / total[told], gone[told], total[told]
    factor = gone * (total - gone) / (total - 1)
    score = events[:, told].sum(axis=1) - share @ gone
    variance = np.diag(share @ factor) - (share * factor) @ share.T
    return LogRank(score, variance, share @ gone)


def excess(start: NDArray[Any], end: NDArray[Any], event: NDArray[np.bool_]) -> Vector:
    """What came of each wait, less what was to be expected in a wait so long.

    Above 0 it was shorter than usual. They sum to 0; the score of a group is the sum of its own.

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
