"""Is a feed that stops noticed, and how often is alarm given for nothing?

``python -m experiments.evaluation.silences RUNS``: decisions come as a Poisson process, a tenth of
them convert after an exponential delay, with 2.2 to 20 conversions in a median delay. The feed
stops; the alarm is asked three median delays later. For false alarms a feed that goes on is asked
every six hours for a month, whether it has stopped and whether it has slowed. Days have no rhythm.
"""

from __future__ import annotations

import math
import sys
from dataclasses import replace

import numpy as np

from belated import DefaultAfter
from belated.evaluation.columns import NEVER
from belated.evaluation.silences import silence, slowing
from belated.evaluation.table import DecisionTable
from belated.exceptions import InvalidInput

HOUR = 3_600_000_000
START = 1_700_000_000_000_000
#: Conversions in a median delay, and the median delay in hours.
CASES = [(2.2, 24.0), (2.2, 72.0), (5.0, 24.0), (5.0, 6.0), (20.0, 24.0)]
RATE, DAYS = 0.1, 30


def drawn(per_median: float, median: float, seed: int) -> tuple[DecisionTable, float]:
    """Two months of decisions and all their conversions."""
    rng = np.random.default_rng([260, seed])
    hours = 2 * DAYS * 24.0
    count = rng.poisson(per_median / median / RATE * hours)
    decided = START + np.sort(rng.random(count) * hours * HOUR).astype(np.int64)
    delay = rng.exponential(median / math.log(2.0), count)
    converts = rng.random(count) < RATE
    arrived = np.where(converts, decided + (delay * HOUR).astype(np.int64), NEVER)
    table = DecisionTable.of(
        made=decided,
        rewarded=arrived,
        value=np.where(converts, 1.0, np.nan),
        rewards=DefaultAfter(f"{int(14 * median)}h"),
    )
    return table, median * HOUR


def known(table: DecisionTable, now: int, stop: int) -> DecisionTable:
    """What is known at a moment, if the feed has stopped at another."""
    here = table.select(table.made <= now)
    is_reported = (here.rewarded != NEVER) & (here.rewarded <= min(now, stop))
    return replace(
        here,
        rewarded=np.where(is_reported, here.rewarded, NEVER),
        value=np.where(is_reported, here.value, np.nan),
        as_of=now,
    )


def stopped(table: DecisionTable) -> bool:
    """Whether alarm is given that rewards have stopped."""
    try:
        return silence(table).stopped
    except InvalidInput:  # too few have come to say
        return False


def slowed(table: DecisionTable) -> bool:
    """Whether alarm is given that they have become fewer."""
    try:
        return slowing(table).slowed
    except InvalidInput:
        return False


def main() -> None:
    runs = int(sys.argv[1])
    for per_median, median in CASES:
        noticed = 0
        false = {stopped: 0, slowed: 0}
        for seed in range(runs):
            table, span = drawn(per_median, median, seed)
            stop = START + 45 * 24 * HOUR
            noticed += stopped(known(table, stop + int(3 * span), stop))
            alarmed = {stopped: False, slowed: False}
            for hour in range(24 * DAYS, 48 * DAYS, 6):
                now = START + hour * HOUR
                here = known(table, now, now)
                for alarm in false:
                    is_raised = alarm(here)
                    false[alarm] += is_raised and not alarmed[alarm]
                    alarmed[alarm] = is_raised
        print(
            f"{per_median:g} in a median delay of {median:g} h: noticed {noticed / runs:.3f}; false"
            f" alarms a month: {false[stopped] / runs:.2f} stopped, {false[slowed] / runs:.2f}"
            f" slowed ({runs} runs)",
            flush=True,
        )


if __name__ == "__main__":
    main()
