"""Have rewards stopped, or become fewer? Both are held against what the delay curve foretells.

The curve is that of a moment before, so that a silence does not make itself likely. Where rewards
come in batches, what counts is whether a batch is missing, or smaller than it should be.
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

#: Rewards without which nothing is said.
FEW = 20
#: Microseconds of a month, in which chance may give alarm half a time.
MONTH, OFTEN = 30 * 86_400_000_000, 0.5
#: Pauses between two batches after which one is missing.
MISSED = 2.0
#: Median delays that a window is taken to have where there is none.
USUAL_WINDOW = 10.0
#: Median delays over which rewards are counted, and the share of the expected ones that is few.
SPAN, SLOW = 3.0, 0.5
#: Whoever looks often looks at spans that overlap: so many in the time of one are new.
OVERLAP = 5.0


@dataclass(frozen=True)
class Silence(Result):
    """How long no reward has come, and how many should have.

    Attributes:
        since: when the last one came.
        seconds: how long ago that is.
        expected: rewards that should have come since.
        limit: of these, beyond which chance would be silent less than once in two months.
        stopped: whether that is exceeded.
    """

    since: datetime
    seconds: float
    expected: float
    limit: float
    stopped: bool


def silence(table: DecisionTable) -> Silence:
    """Return how long no reward has come, and whether that is too long for chance.

    A reward comes in each gap with a chance of exp(-expected) to be silent for so long; with N
    rewards a month, an alarm beyond ln(2 N) expected ones is false once in two months.

    Args:
        table: of the decisions.

    Raises:
        InvalidInput: too few rewards have come to say.

    >>> days = 86_400_000_000 * np.arange(40)
    >>> quiet = DecisionTable.of(
    ...     made=days, rewarded=np.where(days < days[30], days + 3_600_000_000, -(2**63)),
    ...     value=np.where(days < days[30], 1.0, np.nan),
    ... )
    >>> silence(quiet).stopped
    True
    """
    table = table.live()
    came = _came(table)
    last = int(came[-1])
    before = _known(table, last)
    curve = delay_curve(before)
    quiet = float(table.as_of - last)
    expected = _expected(table, before, curve, last)
    watched = max(float(last - int(table.made.min())), 1.0)
    limit = math.log(max(len(came) * MONTH / watched, 2.0) / OFTEN)
    batches = _batches(table, came)
    usual = 0.0 if batches is None else MISSED * float(np.diff(batches.ends).max())
    stopped = expected > limit and quiet > usual
    return Silence(as_datetime(last), quiet / 1e6, expected, limit, stopped)


@dataclass(frozen=True)
class Slowing(Result):
    """How many rewards have come of late, and how many should have.

    Attributes:
        since: the moment from which they are counted.
        came: how many have come.
        expected: how many should have.
        slowed: whether that is less than half, and too little for chance.
    """

    since: datetime
    came: int
    expected: float
    slowed: bool


def slowing(table: DecisionTable) -> Slowing:
    """Return whether less than half of the rewards come that should.

    The last three median delays are held against what was known before them. The number that is
    expected is uncertain as the one it was learned from: a negative binomial law holds for both. An
    alarm is false once in two months.

    Args:
        table: of the decisions.

    Raises:
        InvalidInput: too few rewards had come before to say.

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
    came = _came(table)
    batches = _batches(table, came)
    if batches is not None:  # what has happened since the last one is not known
        table = _known(table, int(batches.ends[-1]))
    since = table.as_of - int(SPAN * _median(table)) - 1
    if batches is not None:
        since = int(batches.ends[batches.ends <= since].max(initial=batches.ends[0]))
    before = _known(table, since)
    learned = len(_came(before))
    expected = _expected(table, before, delay_curve(before), since)
    found = int((came > since).sum())
    looks = OVERLAP * max(MONTH / max(table.as_of - since, 1), 1.0)
    chance = float(nbdtr(found, learned, learned / (learned + expected)))
    slowed = found < SLOW * expected and chance < OFTEN / looks
    return Slowing(as_datetime(since), found, expected, slowed)


def _came(table: DecisionTable) -> Times:
    """When rewards came, in order."""
    came: Times = np.sort(table.rewarded[table.arrived])
    if len(came) < FEW:
        message = f"{len(came)} of {len(table):,} decisions have a reward: an alarm needs {FEW}"
        raise InvalidInput(f"{message}; wait for more", len(came))
    return came


def _known(table: DecisionTable, now: int) -> DecisionTable:
    """What was known at an earlier moment."""
    here = table.select(table.made <= now)
    told = here.arrived & (here.rewarded <= now)
    return replace(
        here,
        rewarded=np.where(told, here.rewarded, NEVER),
        value=np.where(told, here.value, np.nan),
        as_of=now,
    )


def _expected(table: DecisionTable, before: DecisionTable, curve: DelayCurve, since: int) -> float:
    """Rewards that should have come since a moment, by what was known then."""
    rate = 1.0
    if table.conversions:
        exposure = float(curve.come_by(before.age).sum())
        rate = min(int(before.arrived.sum()) / max(exposure, 1.0), 0.999)
    waiting = table.age[~table.arrived | (table.rewarded > since)]
    if table.retention is not None:
        waiting = waiting[waiting < table.retention]
    then = curve.come_by(np.maximum(waiting - float(table.as_of - since), 0.0))
    left = np.maximum(1.0 - rate * then, 1e-9)
    return float((rate * (curve.come_by(waiting) - then) / left).sum())


def _median(table: DecisionTable) -> float:
    """The median of the delays that were seen."""
    return float(np.median((table.rewarded - table.made)[table.arrived]))


def _batches(table: DecisionTable, came: Times) -> Deliveries | None:
    """The batches in which rewards come; None where they come one by one."""
    found = deliveries(came, table.rewards.window_us or int(USUAL_WINDOW * _median(table)))
    return found if found.are_batches else None
