"""Have rewards stopped? A silence is held against what the delay curve leads one to expect.

The curve is that of the moment of the last reward, so that a silence does not make itself likely.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

import numpy as np

from belated.evaluation.curves import delay_curve
from belated.evaluation.table import DecisionTable
from belated.exceptions import InvalidInput
from belated.results import Result
from belated.times import as_datetime

#: Rewards without which nothing is said.
FEW = 20
#: Microseconds of a month, in which chance may give alarm half a time.
MONTH, OFTEN = 30 * 86_400_000_000, 0.5


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

    def to_dict(self) -> dict[str, Any]:
        """Return it as plain data."""
        return {
            "since": self.since.isoformat(),
            "seconds": self.seconds,
            "expected": self.expected,
            "limit": self.limit,
            "stopped": self.stopped,
        }


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
    came = table.rewarded[table.arrived]
    if len(came) < FEW:
        message = f"{len(came)} of {len(table):,} decisions have a reward: an alarm needs {FEW}"
        raise InvalidInput(f"{message}; wait for more", len(came))
    last = int(came.max())
    before = replace(table.select(table.made <= last), as_of=last)
    curve = delay_curve(before)
    rate = 1.0
    if table.conversions:
        exposure = float(curve.come_by(before.age).sum())
        rate = min(len(came) / max(exposure, 1.0), 0.999)
    waiting = table.age[~table.arrived]
    if table.retention is not None:
        waiting = waiting[waiting < table.retention]
    quiet = float(table.as_of - last)
    then, now = curve.come_by(np.maximum(waiting - quiet, 0.0)), curve.come_by(waiting)
    left = np.maximum(1.0 - rate * then, 1e-9)
    expected = float((rate * (now - then) / left).sum())
    watched = max(float(last - int(table.made.min())), 1.0)
    limit = math.log(max(len(came) * MONTH / watched, 2.0) / OFTEN)
    return Silence(as_datetime(last), quiet / 1e6, expected, limit, expected > limit)
