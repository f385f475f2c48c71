"""Detect that rewards have stopped or slowed down, compared with the delay curve's forecast.

The curve is estimated from data before the checked period, so that a silence does not lower the
number of rewards expected during it. If rewards arrive in batches, the checks look for missing
batches and for batches that are smaller than expected.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from datetime import datetime

import numpy as np
from scipy.special import nbdtr

from belated.core.results import Result
from belated.core.times import as_datetime
from belated.evaluation.columns import NEVER
from belated.evaluation.delays import DelayCurve, delay_curve
from belated.evaluation.table import DecisionTable, Times
from belated.exceptions import InvalidInput
from belated.fold.weighting.conversions import Deliveries, deliveries

#: Minimum number of rewards for a check.
FEW = 20
#: A month in microseconds, and the accepted number of false alarms per month.
MONTH, OFTEN = 30 * 86_400_000_000, 0.5
#: A batch counts as missing after this many times the longest pause between batches.
MISSED = 2.0
#: Window to assume if none is set, in median delays.
USUAL_WINDOW = 10.0
#: The period over which rewards are counted, in median delays, and the fraction of the expected
#: number below which rewards count as slowed.
SPAN, SLOW = 3.0, 0.5
#: Number of independent checks per period: checks run often, so the periods overlap.
OVERLAP = 5.0


@dataclass(frozen=True)
class Silence(Result):
    """The time since the last reward, and the number of rewards expected since then.

    Attributes:
        since: when the last reward arrived.
        seconds: how long ago that was, in seconds.
        expected: number of rewards expected since then.
        limit: number of expected rewards above which a silence occurs by chance less than once in
            two months.
        stopped: whether rewards have stopped: ``expected`` exceeds ``limit`` and, if rewards arrive
            in batches, a batch is missing.
    """

    since: datetime
    seconds: float
    expected: float
    limit: float
    stopped: bool


def silence(table: DecisionTable) -> Silence:
    """Return the time since the last reward, and whether it is too long to be due to chance.

    A gap between rewards in which ``expected`` rewards are due has probability exp(-expected). With
    N rewards per month and a limit of ln(2 N) expected rewards, there is therefore one false alarm
    in two months.

    Args:
        table: the decisions.

    Raises:
        InvalidInput: too few rewards have arrived for the check.

    >>> days = 86_400_000_000 * np.arange(40)
    >>> quiet = DecisionTable.of(
    ...     made=days, rewarded=np.where(days < days[30], days + 3_600_000_000, -(2**63)),
    ...     value=np.where(days < days[30], 1.0, np.nan),
    ... )
    >>> silence(quiet).stopped
    True
    """
    table = table.live()
    arrivals = _arrivals(table)
    last = int(arrivals[-1])
    before = _known(table, last)
    curve = delay_curve(before)
    quiet = float(table.as_of - last)
    expected = _expected(table, before, curve, last)
    watched = max(float(last - int(table.made.min())), 1.0)
    limit = math.log(max(len(arrivals) * MONTH / watched, 2.0) / OFTEN)
    batches = _batches(table, arrivals)
    pause = 0.0 if batches is None else MISSED * float(np.diff(batches.ends).max())
    stopped = expected > limit and quiet > pause
    return Silence(as_datetime(last), quiet / 1e6, expected, limit, stopped)


@dataclass(frozen=True)
class Slowing(Result):
    """The number of recent rewards, and the number expected.

    Attributes:
        since: the time from which rewards are counted.
        received: number of rewards that have arrived since then.
        expected: number of rewards expected since then.
        slowed: whether fewer than half of the expected rewards have arrived, and too few to be due
            to chance.
    """

    since: datetime
    received: int
    expected: float
    slowed: bool


def slowing(table: DecisionTable) -> Slowing:
    """Return whether rewards have slowed: whether fewer than half of the expected rewards arrive.

    The rewards that arrived during the last three median delays are compared with a forecast made
    before that period. Because the expected number is itself estimated from a limited number of
    rewards, the test uses a negative binomial distribution. There is one false alarm in two months.

    Args:
        table: the decisions.

    Raises:
        InvalidInput: too few rewards had arrived earlier for the check.

    >>> hour, made = 3_600_000_000, 1_700_000_000_000_000 + 3_600_000_000 * np.arange(400)
    >>> comes = (np.arange(400) < 300) | (np.arange(400) % 4 == 0)
    >>> table = DecisionTable.of(
    ...     made=made, rewarded=np.where(comes, made + 20 * hour, NEVER),
    ...     value=np.where(comes, 1.0, np.nan), as_of=int(made[-1]) + 20 * hour,
    ... )
    >>> slowing(table).slowed
    True
    """
    table = table.live()
    arrivals = _arrivals(table)
    batches = _batches(table, arrivals)
    if batches is not None:  # later rewards are unknown until the next batch
        table = _known(table, int(batches.ends[-1]))
    since = table.as_of - int(SPAN * _median(table)) - 1
    if batches is not None:
        since = int(batches.ends[batches.ends <= since].max(initial=batches.ends[0]))
    before = _known(table, since)
    learned = len(_arrivals(before))
    expected = _expected(table, before, delay_curve(before), since)
    recent = int((arrivals > since).sum())
    checks = OVERLAP * max(MONTH / max(table.as_of - since, 1), 1.0)
    chance = float(nbdtr(recent, learned, learned / (learned + expected)))
    slowed = recent < SLOW * expected and chance < OFTEN / checks
    return Slowing(as_datetime(since), recent, expected, slowed)


def _arrivals(table: DecisionTable) -> Times:
    """Return the times at which rewards arrived, in order."""
    arrivals: Times = np.sort(table.rewarded[table.arrived])
    count = len(arrivals)
    if count < FEW:
        message = f"an alarm needs at least {FEW} rewards, but only {count} have arrived for"
        raise InvalidInput(f"{message} {len(table):,} decisions: wait for more rewards", count)
    return arrivals


def _known(table: DecisionTable, now: int) -> DecisionTable:
    """Return the table as of an earlier time."""
    earlier = table.select(table.made <= now)
    arrived = earlier.arrived & (earlier.rewarded <= now)
    return replace(
        earlier,
        rewarded=np.where(arrived, earlier.rewarded, NEVER),
        value=np.where(arrived, earlier.value, np.nan),
        as_of=now,
    )


def _expected(table: DecisionTable, before: DecisionTable, curve: DelayCurve, since: int) -> float:
    """Return the number of rewards expected since a time, based on the data known at that time."""
    rate = 1.0
    if table.conversions:
        exposure = float(curve.arrived_by(before.age).sum())
        rate = min(int(before.arrived.sum()) / max(exposure, 1.0), 0.999)
    waiting = table.age[~table.arrived | (table.rewarded > since)]
    if table.retention is not None:
        waiting = waiting[waiting < table.retention]
    share_before = curve.arrived_by(np.maximum(waiting - float(table.as_of - since), 0.0))
    remaining = np.maximum(1.0 - rate * share_before, 1e-9)
    return float((rate * (curve.arrived_by(waiting) - share_before) / remaining).sum())


def _median(table: DecisionTable) -> float:
    """Return the median of the observed delays."""
    return float(np.median((table.rewarded - table.made)[table.arrived]))


def _batches(table: DecisionTable, arrivals: Times) -> Deliveries | None:
    """Return the batches in which rewards arrive; None if they arrive one by one."""
    window = table.rewards.window_us or int(USUAL_WINDOW * _median(table))
    batches = deliveries(arrivals, window)
    return batches if batches.are_batches else None
