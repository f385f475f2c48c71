"""What delays do to what is learned."""

from __future__ import annotations

from belated.advice.evidence import Evidence, quantile

#: Rewards before the window is judged, the share of them that come within a tenth of it, and the
#: share of decisions that are pending if that is to matter.
JUDGED, QUICK, WAITING = 50, 0.9, 0.1


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
    """The window is much longer than rewards take, and much waits for its end.

    Rewards are learned when they come, and missing ones at the window's end: until then what is
    pending looks better than it is. Only decisions twice as old as a tenth of the window tell.
    """
    if not seen.defaults or seen.window is None or seen.pending < WAITING * seen.decisions:
        return None
    told = seen.rewarded & (seen.age >= 0.2 * seen.window)
    delay = seen.delay[told]
    if len(delay) < JUDGED or quantile(delay, QUICK) > 0.1 * seen.window:
        return None
    most = quantile(delay, 0.99)
    return (
        f"{QUICK:.0%} of the rewards come within {seen.time(quantile(delay, QUICK))}, and the"
        f" window is {seen.time(seen.window)}: rewards are learned at once and missing ones only"
        " at its end, so predictions are too high meanwhile. Choose a shorter window (99% of the"
        f" rewards come within {seen.time(most)}): later rewards are still learned"
    )
