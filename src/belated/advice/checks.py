"""Checks for problems that raise no errors but harm results.

A check is a function of :class:`~belated.advice.evidence.Evidence`, registered under its own name,
which is also the anchor of its section in ``docs/howto/warnings.md``. It returns a finding and a
remedy, or None. A running bandit issues findings as warnings. A report lists the same findings, as
well as the findings of checks that need an :class:`~belated.advice.evidence.Overview`.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime

import numpy as np

from belated.advice.evidence import FEW, NONE, Evidence, quantile
from belated.advice.issues import KINDS
from belated.core.inputs import Matrix, Vector
from belated.core.times import lasting
from belated.exceptions import (
    AdviceWarning,
    DelayWarning,
    DuplicateWarning,
    InterceptWarning,
    MissingRewardWarning,
    ScaleWarning,
    WindowWarning,
)
from belated.model.estimators.laplace import fit_rows
from belated.model.families import Gaussian

#: A finding, and what to do about it.
Words = tuple[str, str]
Find = Callable[[Evidence], Words | None]


@dataclass(frozen=True)
class Check:
    """A check, with its warning category and its panel in reports.

    Attributes:
        find: returns a finding and what to do about it, or None.
        panel: panel of the report that shows the numbers.
        category: warning category in a running bandit; None if the check runs only in reports.
    """

    find: Find
    panel: str
    category: type[AdviceWarning] | None


#: The checks by name, as used in metrics, logs and reports, in the order of findings.
CHECKS: dict[str, Check] = {}


def check(panel: str, category: type[AdviceWarning] | None = None) -> Callable[[Find], Find]:
    """Register a function as a check under its name."""

    def register(find: Find) -> Find:
        CHECKS[find.__name__] = Check(find, panel, category)
        return find

    return register


# --- which rewards are reported ------------------------------------------------------------------

#: Minimum number of decisions old enough to have a reward, for a finding that most of them have
#: none: ``OLD`` if all rewards are equal, otherwise ``OLD_MIXED``.
OLD, OLD_MIXED = 50, 250
#: Number of decisions after which it is a finding that none has a reward: ``SILENT_DEFAULTS`` if
#: missing rewards have a default value, otherwise ``SILENT``.
SILENT, SILENT_DEFAULTS = 1_000, 5_000
#: Report silence if none of this many expected rewards has arrived, which has the probability e⁻²⁰.
EXPECTED = 20.0


@check("feed", MissingRewardWarning)
def alike(seen: Evidence) -> Words | None:
    """All rewards are equal, and most decisions that are old enough have none."""
    counts = _missing(seen, OLD)
    if counts is None or seen.defaults or not _are_alike(seen):
        return None
    value, (missing, old) = seen.value[seen.rewarded][0], counts
    return (
        f"all rewards so far are {value:g}, and {missing} of {old} decisions older than"
        f" {_time(seen.patience)} have none",
        "if only one outcome is reported, nothing is learned about the other. Use"
        " rewards=ConversionsOnly(window), or report both outcomes",
    )


@check("pending", DelayWarning)
def missing(seen: Evidence) -> Words | None:
    """Most decisions that are old enough have no reward, and no window ends the wait."""
    if _missing(seen, OLD_MIXED) is None or seen.window is not None or _are_alike(seen):
        return None
    return (
        f"{seen.pending} of {seen.decisions} decisions have no reward, including most of those"
        f" older than {_time(seen.patience)}",
        "pending decisions count as explored. Set a window, as in Explicit(window): after it ends,"
        " they no longer count",
    )


def _missing(seen: Evidence, least: int) -> tuple[int, int] | None:
    """Count old decisions without a reward, and all old decisions; None unless most have none."""
    old = int(seen.old.sum())
    without = int((seen.old & ~seen.rewarded).sum())
    return (without, old) if old >= least and without > 0.5 * old else None


def _are_alike(seen: Evidence) -> bool:
    values = seen.value[seen.rewarded]
    return len(values) >= FEW and bool((values == values[0]).all())


@check("feed", MissingRewardWarning)
def silence(seen: Evidence) -> Words | None:
    """No reward has ever arrived, or none has arrived for longer than expected.

    A report compares rewards with their forecast, which accounts for batches. A running bandit
    compares them with the share of earlier decisions that had a reward by the same age.
    """
    if seen.overview.quiet is not None:
        length, expected, stopped = seen.overview.quiet
    elif seen.latest == NONE:
        return _never(seen)
    else:
        length = seen.now - seen.latest
        due = seen.made <= seen.now - seen.patience
        before = due & (seen.made <= seen.latest)
        if before.sum() < OLD:
            return None
        since = seen.decisions / len(seen.made) * float((due & (seen.made > seen.latest)).sum())
        expected = since * float(seen.rewarded[before].mean())
        stopped = expected >= EXPECTED
    if not stopped:
        return None
    return (
        f"no reward has arrived for {_time(length)}",
        f"about {expected:.0f} were due. Check that the process that reports rewards is"
        f" running{_astray(seen)}",
    )


def _never(seen: Evidence) -> Words | None:
    """Check for silence before the first reward, when delays are unknown but windows have ended."""
    count, least = float(seen.decisions), SILENT_DEFAULTS if seen.defaults else SILENT
    if count >= least and seen.window is not None and len(seen.age):
        # The windows of forgotten decisions have ended.
        count *= float((seen.age >= seen.window).mean())
    if count < least:
        return None
    if seen.window is None:
        clause, remedy = "", ". If rewards take a long time, set a window, as in Explicit(window)"
    else:
        clause, remedy = " whose window has ended", ""
    return (
        f"none of {count:.0f} decisions{clause} has a reward",
        f"report rewards with observe(decision.id, value){remedy}{_astray(seen)}",
    )


def _astray(seen: Evidence) -> str:
    if not seen.unmatched:
        return ""
    return f". {seen.unmatched} events are for unknown decision ids: use decision.id"


@check("feed")
def slowed(seen: Evidence) -> Words | None:
    """Fewer than half of the forecast rewards arrive."""
    if seen.overview.slowing is None:
        return None
    since, received, expected = seen.overview.slowing
    return (
        f"{received} reward{'' if received == 1 else 's'} since {_day(since)}",
        f"about {expected:.0f} were due. Check the process that reports rewards",
    )


@check("feed")
def outage(seen: Evidence) -> Words | None:
    """The journal received no rewards for longer than chance explains, but has recovered."""
    if not seen.overview.outages:
        return None
    start, length = seen.overview.outages[-1]
    count = len(seen.overview.outages)
    total = f"; {count} gaps in all" if count > 1 else ""
    return (
        f"no reward arrived for {_time(length)} from {_day(start)}",
        f"rewards are arriving again{total}",
    )


# --- delays --------------------------------------------------------------------------------------

#: Minimum number of rewards for checking the window, minimum share of rewards within a tenth of the
#: window, and minimum share of decisions that are pending.
JUDGED, QUICK, WAITING = 50, 0.9, 0.1
#: If ``SOME`` rewards arrive within a share ``INSTANT`` of the window, almost no time passes.
SOME, INSTANT = 3, 1e-5
#: Ratio of window to delays above which the window for conversions is too long, and the time that
#: must elapse before the check, as a multiple of the delays.
TOO_LONG, SEEN = 1_000.0, 10.0
#: Tolerated overestimate of the share of rewards among learned outcomes, as a factor.
TOO_HIGH = 1.5


@check("delay", DelayWarning)
def dependence(seen: Evidence) -> Words | None:
    """Rewards depend on their delay, given the row, so arrived rewards are not representative."""
    test = seen.dependence
    if seen.together or test is None or test.ratio <= 1.0:
        return None
    late = "high" if test.correlation > 0 else "low"
    return (
        f"delays depend on the reward (correlation {test.correlation:.2f}; {late} rewards arrive"
        " late)",
        "rewards that have arrived differ from those still pending, so estimates are biased. Learn"
        " rewards at a common age: set the policy's learn_after",
    )


@check("delay", WindowWarning)
def clock(seen: Evidence) -> Words | None:
    """Rewards arrive, but almost no time passes relative to the window, as in a test loop."""
    if seen.window is None or not (seen.conversions or (seen.defaults and seen.on_arrival)):
        return None
    elapsed = seen.now - int(seen.made.min(initial=seen.now))
    if seen.rewards < SOME or elapsed > INSTANT * seen.window:
        return None
    statement = (
        f"{seen.decisions} decisions and {seen.rewards} rewards arrived within {_time(elapsed)},"
        f" but the window is {_time(seen.window)}"
    )
    remedy = "In a test or a simulation, pass a clock with Bandit(clock=...) and advance it"
    if seen.conversions:
        return statement, (
            "slow conversions cannot be distinguished from those that never arrive."
            f" {remedy}, or choose a shorter window"
        )
    return statement, (
        "a missing reward counts only when its window ends, so until then every action looks good."
        f" Use rewards=ConversionsOnly(window). {remedy}"
    )


@check("delay", WindowWarning)
def window(seen: Evidence) -> Words | None:
    """The window is much longer than the delays of rewards."""
    if seen.window is None:
        return None
    if seen.conversions:
        return _long_window(seen, seen.window)
    return _waiting(seen, seen.window) if seen.defaults and seen.on_arrival else None


def _long_window(seen: Evidence, window: int) -> Words | None:
    """Check whether conversions arrive much sooner than the window ends, if enough time passed."""
    delay = seen.delay[seen.rewarded]
    if len(delay) < FEW:
        return None
    most = quantile(delay, 0.99)
    if TOO_LONG * most >= window or SEEN * most > seen.now - int(seen.made.min()):
        return None
    return (
        f"99% of the conversions arrived within {_time(most)}, but the window is"
        f" {_time(window)}, more than {TOO_LONG:,.0f} times as long",
        "decisions without a conversion stay pending, and in memory, until it ends. Choose a window"
        " of a few times the longest delay (later conversions still count), or check the unit of"
        " your clock",
    )


def _waiting(seen: Evidence, window: int) -> Words | None:
    """Check whether the window is long relative to the delays, and many decisions are pending.

    The model learns from rewards on arrival, but from missing rewards only when the window ends, so
    predictions are too high until then. The finding is that predictions are too high now, or that
    rewards arrive so quickly that most of the window is unnecessary. Only decisions older than a
    fifth of the window are used.
    """
    if seen.pending < WAITING * seen.decisions:
        return None
    delay = seen.delay[seen.rewarded & (seen.age >= 0.2 * window)]
    if len(delay) < JUDGED:
        return None
    quick, most, high = quantile(delay, QUICK), quantile(delay, 0.99), _too_high(seen, window)
    if quick > 0.1 * window and high < TOO_HIGH:
        return None
    by_how_much = (
        f"predictions are currently about {high:.1f} times too high"
        if high > 1.1
        else "predictions are too high until then"
    )
    shorter = (
        f", or a shorter window (99% of the rewards arrived within {_time(most)}): later rewards"
        " still count"
        if most < 0.5 * window
        else ""
    )
    return (
        f"{QUICK:.0%} of the rewards so far arrived within {_time(quick)}, but the window is"
        f" {_time(window)}",
        "the model learns from rewards on arrival, but from missing rewards only when the window"
        " ends, so"
        f" {by_how_much}. Use rewards=ConversionsOnly(window){shorter}",
    )


def _too_high(seen: Evidence, window: int) -> float:
    """Return the share of rewards among learned outcomes, relative to the share at a common age.

    The common age is the age by which 90 % of the rewards had arrived.
    """
    age = quantile(seen.delay[seen.rewarded], QUICK)
    old = seen.age >= age
    by_then = float((seen.rewarded & (seen.delay <= age))[old].mean()) if old.any() else 0.0
    settled = seen.rewarded | (seen.age >= window)
    learned = float(seen.rewarded[settled].mean()) if settled.any() else 0.0
    return QUICK * learned / by_then if by_then > 0.0 else 1.0


# --- rows and the model --------------------------------------------------------------------------

#: Reasonable range of the norm of rows, and of the prior standard deviation of xᵀθ.
SENSIBLE = (1e-2, 1e2)
#: Minimum number of rows for a check; number of rows, in addition to some per column, that suffices
#: to detect a missing intercept.
ENOUGH, PLENTY = 20, 400
#: Report a missing intercept if its score exceeds this many standard errors, and if a constant
#: explains this share of the residual variance.
ERRORS, EXPLAINED = 6.0, 0.2
#: Number of standard errors above which predictions count as biased, and the tolerated bias.
BIAS_ERRORS, OFF = 3.0, 0.1
#: If one action's share of recent decisions exceeds this, little is learned about the others.
ALONE = 0.99


@check("coefficients", ScaleWarning)
def scale(seen: Evidence) -> Words | None:
    """Row norms are far too large or too small for the prior.

    Columns with a single nonzero value, such as an intercept, are ignored.
    """
    rows = np.abs(seen.rows.astype(np.float64))
    if len(rows) < ENOUGH:
        return None
    top = rows.max(axis=0)
    varies = ((rows != 0.0) & (rows != top)).any(axis=0)
    if varies.any():
        rows, top = rows[:, varies], top[varies]
    squares = np.square(rows).sum(axis=1)
    if not squares.any():
        return None
    length = math.sqrt(squares[squares > 0.0].mean())
    deviation = length / math.sqrt(seen.ridge)
    if any(SENSIBLE[0] <= size <= SENSIBLE[1] for size in (length, deviation)):
        return None
    effect = "has no effect" if deviation > 1.0 else "outweighs the rewards"
    return (
        f"rows have a typical norm of {length:.2g}, and their largest feature is {top.max():.3g}",
        f"a prior precision of {seen.ridge:.2g} {effect}. Scale the features so that rows have a"
        " norm of about 1 (see belated.features.scaling_advice), or use"
        f" ridge={1 / length**2:.1g}",
    )


@check("calibration", InterceptWarning)
def intercept(seen: Evidence) -> Words | None:
    """Rewards have an average level that rows without an intercept cannot represent.

    Rewards of 0 and 1 that are modeled as Gaussian always require an intercept. For other rewards,
    a score test determines whether a constant would explain much of the residual variance.
    """
    mask = seen.learned[seen.at]
    if seen.defaults and seen.window is not None:  # younger outcomes are incomplete
        mask &= seen.age[seen.at] >= seen.window
    here = np.flatnonzero(mask)
    here = here[Evidence.spread(len(here), PLENTY + 4 * seen.rows.shape[1])]
    rows, y = seen.rows[here].astype(np.float64), seen.value[seen.at[here]]
    if len(y) < max(ENOUGH, 4 * rows.shape[1]) or (y == y[0]).all() or has_intercept(rows):
        return None
    remedy = "add a column of ones (intercept=True)"
    if isinstance(seen.family, Gaussian) and np.isin(y, (0.0, 1.0)).all():
        return (
            "rewards of 0 and 1 are modeled as Gaussian, but the rows have no intercept",
            f"{remedy}, use Bernoulli(), or subtract the mean reward",
        )
    if not _needs_constant(seen, rows, y):
        return None
    return f"rewards are {y.mean():.3g} on average, but the rows have no intercept", remedy


def has_intercept(rows: Matrix) -> bool:
    """Return whether a linear combination of the columns is 1 in all rows.

    >>> has_intercept(np.eye(3)[[0, 1, 2, 0]]), has_intercept(np.array([[1.0], [2.0]]))
    (True, False)
    """
    if ((rows == rows[0]).all(axis=0) & (rows[0] != 0.0)).any():
        return True
    if not rows.any():
        return False
    ones = np.ones(len(rows))
    gram = rows.T @ rows
    weights = np.linalg.solve(gram + 1e-9 * gram.trace() * np.eye(len(gram)), ones @ rows)
    return bool(np.abs(rows @ weights - ones).max() <= 1e-3)


def _needs_constant(seen: Evidence, rows: Matrix, y: Vector) -> bool:
    """Return whether a score test of the fit without a constant shows that one is needed."""
    size = math.sqrt(np.square(rows).sum() / len(rows))
    rows = rows / (size or 1.0)
    little = 1e-2 * np.eye(rows.shape[1])  # needed if all rewards are equal in some direction
    theta = fit_rows(rows, y, np.ones(len(y)), seen.family, ridge=little[0, 0])
    _, mean, slope = seen.family.cumulant_mean_slope(rows @ theta)
    cross = slope @ rows
    information = slope.sum() - cross @ np.linalg.solve((rows.T * slope) @ rows + little, cross)
    noise = np.mean(np.square(y - mean) / np.maximum(slope, 1e-12))
    squared = np.square((y - mean).sum()) / max(information * noise, 1e-300)
    return bool(squared > max(ERRORS**2, EXPLAINED * len(y)))


@check("calibration")
def calibration(seen: Evidence) -> Words | None:
    """Predictions are biased by more than chance explains, and by more than 10 %."""
    if seen.overview.bias is None:
        return None
    bias, error = seen.overview.bias
    if abs(bias) <= max(OFF, BIAS_ERRORS * error):
        return None
    statement = f"predictions are {1.0 + bias:.2g} times the observed rewards"
    if seen.defaults and seen.on_arrival and seen.window is not None and bias > 0.0:
        return statement, (
            "the model learns from rewards on arrival, but from missing rewards only after"
            f" {_time(seen.window)}. Use rewards=ConversionsOnly(window)"
        )
    return statement, (
        "rewards may have changed over time: set the policy's half_life, or add the features on"
        " which rewards depend"
    )


@check("explore")
def exploration(seen: Evidence) -> Words | None:
    """Nearly all recent decisions chose the same action."""
    action, share = seen.overview.favorite
    if share < ALONE:
        return None
    return (
        f"{share:.0%} of recent decisions chose {action}",
        "little is learned about the other actions. Set a floor, so that they are tried",
    )


@check("health")
def mode(seen: Evidence) -> Words | None:
    """The bandit is not in ``learn`` mode."""
    if seen.overview.mode == "learn":
        return None
    return f"the mode is {seen.overview.mode}", "new rewards do not affect decisions"


@check("health")
def fit(seen: Evidence) -> Words | None:
    """The last fit did not converge."""
    if seen.overview.converged:
        return None
    return "the last fit did not converge", "check whether features are badly scaled"


# --- reward messages -----------------------------------------------------------------------------

#: Minimum number of events for checking duplicates.
MANY = 100
#: Minimum number of reward messages with a problem for a finding; for each kind of problem, the
#: minimum share of all messages.
LEAST = 10
CARE = {
    kind: (share, *KINDS[kind][1:])
    for kind, share in (("conflict", 0.01), ("unmatched", 0.05), ("expired", 0.05),
                        ("invalid", 0.01))
}  # fmt: skip


@check("quality", DuplicateWarning)
def duplicates(seen: Evidence) -> Words | None:
    """More than a third of the events repeat a known reward."""
    total = seen.rewards + seen.duplicates
    if total < MANY or 3 * seen.duplicates <= total:
        return None
    return (
        f"{seen.duplicates} of {total} rewards had already been reported",
        "they count once, but each costs as much as a new one. Stop retrying once a report has been"
        " acknowledged",
    )


def _care(kind: str) -> Find:
    share, problem, remedy = CARE[kind]

    def find(seen: Evidence) -> Words | None:
        overview = seen.overview
        count, messages = overview.problems.get(kind, 0), overview.reward_messages
        if count < LEAST or count <= share * messages:
            return None
        return f"{count / messages:.0%} of reward messages {problem}", remedy

    return find


CHECKS |= {kind: Check(_care(kind), "quality", None) for kind in CARE}


def _time(microseconds: float) -> str:
    return lasting(microseconds / 1e6, words=True)


def _day(time: int) -> str:
    return datetime.fromtimestamp(time / 1e6, UTC).strftime("%-d %B")
