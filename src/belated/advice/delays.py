"""What delays do to what is learned."""

from __future__ import annotations

import math

import numpy as np

from belated.advice.evidence import Evidence, quantile
from belated.inputs import Matrix

#: Decisions, and rewards, before anything is said of dependence.
ENOUGH, ARRIVED = 500, 200
#: A correlation is told from chance by so many standard errors, and must be at least so large.
ERRORS, LEAST = 5.0, 0.1
#: Consecutive decisions that are compared with each other, and not with earlier or later ones.
BLOCK = 50
#: Rewards before the window is judged, the share of them that come within a tenth of it, and the
#: share of decisions that are pending if that is to matter.
JUDGED, QUICK, WAITING = 50, 0.9, 0.1
#: How many times too high the share of rewards among all that is learned may be.
TOO_HIGH = 1.5


def dependence(seen: Evidence) -> str | None:
    """Rewards depend on their delay, given the row: what has arrived is not like what has not.

    The partial correlation of the reward with the logarithm of its delay, given the row. Both are
    compared within blocks of consecutive decisions: rewards grow as a policy learns, and long
    delays of the latest decisions have not been seen yet.
    """
    here = seen.rewarded[seen.at]
    which, rows = seen.at[here], seen.rows[here]
    count = len(which)
    if len(seen.made) < ENOUGH or count < max(ARRIVED, 4 * rows.shape[1]):
        return None
    table = np.column_stack([seen.value[which], np.log1p(seen.delay[which])])
    y, wait = _given(rows.astype(np.float64), table).T
    spread = math.sqrt(float(y @ y) * float(wait @ wait))
    # Nothing but rounding may be left of a constant.
    if spread <= 1e-9 * np.prod(np.linalg.norm(table, axis=0)):
        return None
    correlation = float(y @ wait) / spread
    if not abs(correlation) > max(LEAST, ERRORS / math.sqrt(count)):
        return None
    which_come = "high rewards come late" if correlation > 0 else "low rewards come late"
    return (
        f"delays depend on the reward (correlation {correlation:.2f}; {which_come}): what has"
        " arrived is not like what is still to come, and estimates from it are biased. Report"
        " rewards at a common age, whatever they are"
    )


def _given(rows: Matrix, table: Matrix) -> Matrix:
    """What is left of the columns of a table beside the rows, within blocks."""
    both = np.column_stack([rows, table])
    starts = np.arange(0, len(both), BLOCK)
    sizes = np.diff(starts, append=len(both))
    both -= np.repeat(np.add.reduceat(both, starts) / sizes[:, None], sizes, axis=0)
    rows, left = both[:, : rows.shape[1]], both[:, rows.shape[1] :]
    gram = rows.T @ rows
    little = 1e-9 * gram.trace()
    if little == 0.0:  # rows do not differ
        return left
    return left - rows @ np.linalg.solve(gram + little * np.eye(len(gram)), rows.T @ left)


def window(seen: Evidence) -> str | None:
    """The window is long beside what rewards take, and much waits for its end.

    Rewards are learned when they come, and missing ones at the window's end: until then what is
    pending looks better than it is. Either predictions are too high by now, or rewards come so
    quickly that most of the window is of no use; of that only decisions twice as old as a tenth of
    it tell.
    """
    if not seen.defaults or not seen.on_arrival or seen.window is None:
        return None
    if seen.pending < WAITING * seen.decisions:
        return None
    told = seen.rewarded & (seen.age >= 0.2 * seen.window)
    delay = seen.delay[told]
    if len(delay) < JUDGED:
        return None
    quick, most, high = quantile(delay, QUICK), quantile(delay, 0.99), too_high(seen)
    if quick > 0.1 * seen.window and high < TOO_HIGH:
        return None
    by_how_much = (
        f"predictions are about {high:.1f} times too high by now"
        if high > 1.1
        else ("predictions are too high meanwhile")
    )
    return (
        f"{QUICK:.0%} of the rewards so far came within {seen.time(quick)}, and the window is"
        f" {seen.time(seen.window)}: rewards are learned at once and missing ones only at its end,"
        f" so {by_how_much}. Use rewards=ConversionsOnly(window), or a shorter window (99% of the"
        f" rewards came within {seen.time(most)}): later rewards are still learned"
    )


def too_high(seen: Evidence) -> float:
    """How many times more rewards there are among all that is learned than at a common age.

    That age is by which nine tenths of the rewards had come.
    """
    age = quantile(seen.delay[seen.rewarded], QUICK)
    old = seen.age >= age
    by_then = float((seen.rewarded & (seen.delay <= age))[old].mean()) if old.any() else 0.0
    known = seen.rewarded | (seen.age >= (seen.window or np.inf))
    learned = float(seen.rewarded[known].mean()) if known.any() else 0.0
    return QUICK * learned / by_then if by_then > 0.0 else 1.0
