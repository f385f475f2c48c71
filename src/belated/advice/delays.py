"""What delays do to what is learned."""

from __future__ import annotations

import numpy as np

from belated.advice.evidence import Evidence, quantile

#: Rewards before the window is judged, the share of them that come within a tenth of it, and the
#: share of decisions that are pending if that is to matter.
JUDGED, QUICK, WAITING = 50, 0.9, 0.1
#: How many times too high the share of rewards among all that is learned may be.
TOO_HIGH = 1.5


def dependence(seen: Evidence) -> str | None:
    """Rewards depend on their delay, given the row: what has arrived is not like what has not."""
    found = seen.dependence
    if seen.together or found is None or found.ratio <= 1.0:
        return None
    which_come = "high rewards come late" if found.correlation > 0 else "low rewards come late"
    return (
        f"delays depend on the reward (correlation {found.correlation:.2f}; {which_come}): what has"
        " arrived is not like what is still to come, and estimates from it are biased. Learn"
        " rewards at a common age, with learn_after= of the policy"
    )


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
