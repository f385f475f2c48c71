"""What delays do to what is learned."""

from __future__ import annotations

import numpy as np

from belated.advice.evidence import FEW, Evidence, quantile

#: Rewards before the window is judged, the share of them that come within a tenth of it, and the
#: share of decisions that are pending if that is to matter.
JUDGED, QUICK, WAITING = 50, 0.9, 0.1
#: Rewards that have come in less than this share of the window: hardly any time passes.
SOME, INSTANT = 3, 1e-5
#: How many times as long as the delays the window of conversions may be, and how many delays must
#: have passed before that is said.
TOO_LONG, SEEN = 1_000.0, 10.0
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


def clock(seen: Evidence) -> str | None:
    """Rewards come, but hardly any time passes compared with the window, as in a loop of a test."""
    if seen.window is None or not (seen.conversions or (seen.defaults and seen.on_arrival)):
        return None
    passed = seen.now - int(seen.made.min(initial=seen.now))
    if seen.rewards < SOME or passed > INSTANT * seen.window:
        return None
    found = (
        f"{seen.decisions} decisions and {seen.rewards} rewards within {seen.time(passed)}, and the"
        f" window is {seen.time(seen.window)}"
    )
    remedy = "In a test or a simulation let time pass with Bandit(clock=...)"
    if seen.conversions:
        return (
            f"{found}: slow conversions cannot be told from those that never come. {remedy}, or"
            " choose a window that fits its pace"
        )
    return (
        f"{found}: a missing reward counts only when its window ends, so until then every action"
        f" looks good. Use rewards=ConversionsOnly(window). {remedy}"
    )


def window(seen: Evidence) -> str | None:
    """The window is much longer than rewards take."""
    if seen.window is None:
        return None
    if seen.conversions:
        return _long_window(seen, seen.window)
    return _waiting(seen) if seen.defaults and seen.on_arrival else None


def _long_window(seen: Evidence, window: int) -> str | None:
    """Conversions are far faster than the window, and decisions are old enough to tell."""
    delay = seen.delay[seen.rewarded]
    if len(delay) < FEW:
        return None
    most = quantile(delay, 0.99)
    if TOO_LONG * most >= window or SEEN * most > seen.now - int(seen.made.min()):
        return None
    return (
        f"99% of the conversions came within {seen.time(most)}, and the window is"
        f" {seen.time(window)}, more than {TOO_LONG:,.0f} times as long: decisions without a"
        " conversion stay pending and in memory until it ends. Choose a window of a few times the"
        " longest delay, later conversions are still learned; or check the unit of your clock"
    )


def _waiting(seen: Evidence) -> str | None:
    """The window is long beside what rewards take, and much waits for its end.

    Rewards are learned when they come, and missing ones at the window's end: until then what is
    pending looks better than it is. Either predictions are too high by now, or rewards come so
    quickly that most of the window is of no use; of that only decisions twice as old as a tenth of
    it tell.
    """
    assert seen.window is not None
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
