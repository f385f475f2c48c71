"""Is it running well? The feed of rewards, its lag, what needed care, and health."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from belated.report.data.calendar import DAY, HOUR, LENGTHS, MINUTE
from belated.report.data.facts import Facts
from belated.report.data.numbers import short

#: Bars of the feed, at most; rewards without which nothing is said of gaps.
BARS, FEW = 124, 50
#: A gap is an outage if chance would hardly leave so long a one at a quarter of the usual rate.
UNLIKELY, QUARTER = 14.0, 0.25
#: Kinds of events that need care, in the order in which they are shown.
KINDS = ("duplicate", "conflict", "late", "revised", "unmatched", "expired", "invalid", "voided")


def feed(facts: Facts) -> dict[str, Any] | None:
    """Rewards as the journal took them, gaps, and how long after the event that was."""
    came = np.array(facts.watched.rewards, dtype=np.int64)
    if not len(came):
        return None
    start, as_of = facts.calendar.start, facts.table.as_of
    step = next((one for one, _ in LENGTHS if (as_of - start) / one <= BARS), LENGTHS[-1][0])
    counts = np.bincount(
        (np.maximum(came - start, 0)) // step, minlength=(as_of - start) // step + 1
    )
    bins = [{"t": (start + n * step) // 1000, "n": int(one)} for n, one in enumerate(counts)]
    lags = np.array(facts.watched.lags, dtype=np.int64)
    told = lags >= 0
    found: dict[str, Any] = {
        "bins": bins,
        "step": step // 1000,
        "outages": _outages(np.sort(came)),
        "lag": [],
    }
    if told.any():
        period = facts.calendar.place(came)
        for n in range(facts.calendar.count):
            here = told & (period == n)
            if here.sum() > 5:
                middle, most = np.quantile(lags[here], [0.5, 0.99]) / MINUTE
                found["lag"].append(
                    {"t": facts.calendar.ms(n), "p50": short(middle, 4), "p99": short(most, 4)}
                )
        middle, most = np.quantile(lags[told], [0.5, 0.99]) / MINUTE
        found["lag_p50"], found["lag_p99"] = short(middle, 4), short(most, 4)
    return found


def _outages(came: Any) -> list[dict[str, Any]]:
    gaps = np.diff(came)
    if len(gaps) < FEW:
        return []
    rate = math.log(2.0) / max(float(np.median(gaps)), 1.0)
    # The first rewards come slowly: nothing has been decided long enough ago.
    steady = np.arange(len(gaps)) >= 0.02 * len(gaps) + 10
    return [
        {
            "from": int(came[n]) // 1000,
            "to": int(came[n + 1]) // 1000,
            "hours": short(float(gaps[n]) / HOUR, 4),
        }
        for n in np.flatnonzero(steady & (QUARTER * rate * gaps > UNLIKELY)).tolist()
    ]


def quality(facts: Facts) -> dict[str, Any]:
    """Events that needed care, by kind and period."""
    rows = []
    for kind in KINDS:
        times = np.array(facts.watched.care.get(kind, ()), dtype=np.int64)
        daily = facts.calendar.counts(times).astype(int).tolist() if len(times) else []
        rows.append({"kind": kind, "n": len(times), "daily": daily})
    return {"rows": rows, "rewards_told": len(facts.watched.rewards)}


def health(facts: Facts) -> dict[str, Any]:
    """What whoever is on call asks first."""
    as_of, watched, table = facts.table.as_of, facts.watched, facts.everything
    modes = watched.modes
    found: dict[str, Any] = {
        "mode": modes[-1]["mode"] if modes else "learn",
        "records": watched.records,
        "decisions_last_day": int((table.made > as_of - DAY).sum()),
        "rewards_last_day": int((np.array(watched.rewards, dtype=np.int64) > as_of - DAY).sum()),
    }
    if len(table):
        found["last_decision"] = short((as_of - int(table.made.max())) / MINUTE, 3)
    if watched.rewards:
        found["last_reward"] = short((as_of - max(watched.rewards)) / MINUTE, 3)
    if facts.estimate is not None:
        found["fit_n"] = facts.estimate.n
        found["converged"] = bool(facts.estimate.converged)
    return found
