"""What is still to come? The delay curve, the forecast, cohorts, and what is pending."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import numpy as np

from belated.evaluation import forecast
from belated.exceptions import InvalidInput
from belated.ledger import State
from belated.report.data.calendar import DAY
from belated.report.data.facts import Facts
from belated.report.data.matched import Matched
from belated.report.data.numbers import short

#: Points of the delay curve; ages of a cohort; periods of the forecast; moments of the pending.
POINTS, AGES, AHEAD, MOMENTS = 57, 21, 10, 120


def delay(facts: Facts) -> dict[str, Any] | None:
    """The curve of :func:`belated.evaluation.delay_curve` at equal steps, in days."""
    curve = facts.curve
    if curve is None:
        return None
    end = _end(facts)
    rows = []
    for age in np.linspace(0.0, end, POINTS):
        value, low, high = curve.at_us(float(age)) if age else (0.0, 0.0, 0.0)
        rows.append({"d": short(age / DAY), "F": short(value), "lo": short(low), "hi": short(high)})
    found: dict[str, Any] = {"curve": rows, "n": curve.rewards, "missing": curve.missing}
    for name, part in (("median", 0.5), ("p90", 0.9)):
        when = curve.quantile(part)
        found[name] = None if when is None else short(when / timedelta(days=1))
    window = facts.table.rewards.window_us
    if window is not None:
        found["window"] = short(window / DAY)
        found["in_window"] = short(curve.at_us(float(window))[0])
    return found


def _end(facts: Facts) -> float:
    """Up to which age the curve is shown: all of the window, and until hardly any is to come."""
    assert facts.curve is not None
    reach, window = facts.table.reach, facts.table.rewards.window_us
    nearly = facts.curve.quantile(0.995)
    wanted = reach if nearly is None else 1.2 * (nearly / timedelta(microseconds=1))
    if window is not None:
        wanted = max(wanted, 1.4 * window)
    return max(min(wanted, reach), 1.0)


def to_come(facts: Facts) -> dict[str, Any] | None:
    """What :func:`belated.evaluation.forecast` expects, by period and in all."""
    calendar = facts.calendar
    came = facts.table.rewarded[facts.table.arrived]
    past = [{"t": calendar.ms(n), "n": int(count)} for n, count in enumerate(calendar.counts(came))]
    spans = [timedelta(microseconds=calendar.step * n) for n in range(1, AHEAD + 1)]
    try:
        found = forecast(facts.table, spans)
        total = forecast(facts.table).expected[0]
    except InvalidInput:
        return None
    rows, before = [], 0.0
    for n, one in enumerate(found.expected):
        rows.append(
            {
                "t": (facts.table.as_of + n * calendar.step) // 1000,
                "n": short(one.mean - before),
                "by_then": short(one.mean),
                "lo": short(one.low),
                "hi": short(one.high),
            }
        )
        before = one.mean
    soon = found.expected[2]
    return {
        "past": past,
        "next": rows,
        "total": {"n": short(total.mean), "lo": short(total.low), "hi": short(total.high)},
        "soon": {"n": short(soon.mean), "lo": short(soon.low), "hi": short(soon.high)},
    }


def cohorts(facts: Facts, matched: Matched) -> dict[str, Any] | None:
    """Share of a period's decisions that have a reward by an age that all of them have."""
    curve, table, calendar = facts.curve, facts.table, facts.calendar
    if curve is None:
        return None
    ages = np.linspace(0.0, min(_end(facts), table.reach), AGES)
    delay, period = table.delay, facts.period
    lines = []
    for n in range(calendar.count):
        here = period == n
        if not here.any():
            continue
        youngest = float(table.age[here].min())
        waited = np.sort(delay[here])
        shares = np.searchsorted(waited, ages, side="right") / len(waited)
        lines += [
            {"cohort": calendar.ms(n), "age": short(age / DAY), "share": short(float(one), 4)}
            for age, one in zip(ages, shares, strict=True)
            if age <= youngest
        ]
    rate = float(table.arrived.sum()) / max(float(facts.exposure.sum()), 1.0)
    rate = min(rate, 1.0) if table.conversions else 1.0
    expected = [
        {"age": short(age / DAY), "share": short(rate * float(one), 4)}
        for age, one in zip(ages, curve.come_by(ages), strict=True)
    ]
    return {"lines": lines, "expected": expected}


def pending(facts: Facts) -> list[dict[str, Any]]:
    """How many decisions were inside their window without a reward, from time to time."""
    table, window = facts.table, facts.table.rewards.window_us
    ends = np.where(table.arrived, table.rewarded, np.iinfo(np.int64).max)
    if window is not None:
        ends = np.minimum(ends, table.made + window)
    starts, ends = np.sort(table.made), np.sort(ends)
    moments = np.linspace(facts.calendar.start, table.as_of, MOMENTS).astype(np.int64)
    counts = np.searchsorted(starts, moments, "right") - np.searchsorted(ends, moments, "right")
    return [
        {"t": int(when) // 1000, "n": int(count)}
        for when, count in zip(moments, counts, strict=True)
    ]


def pending_now(facts: Facts) -> dict[str, Any]:
    """How many decisions are pending, and for how long the oldest has been."""
    waits = facts.table.state == State.PENDING
    oldest = float(facts.table.age[waits].max(initial=0.0))
    return {"n": int(waits.sum()), "oldest": short(oldest / DAY)}
