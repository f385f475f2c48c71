"""Two panels: when rewards reach the journal, and how long after the event."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from belated.report.facts import HOUR, LENGTHS, MINUTE, SECOND, Facts, short
from belated.report.panel import Panel, Said
from belated.report.text import Data, day, several, span
from belated.report.vega import (
    RANGE,
    Spec,
    TimeAxis,
    count_axis,
    layer,
    number,
    outages,
    point,
    spec,
    tips,
)

#: Maximum number of bars; minimum number of rewards for detecting gaps.
BARS, FEW = 124, 50
#: Minimum number of rewards in a period for showing their lags.
LAGS = 6
#: A gap is an outage if it is too long to be due to chance even at a quarter of the typical rate.
UNLIKELY, QUARTER = 14.0, 0.25


def collect(facts: Facts) -> dict[str, Any] | None:
    """Count reward messages over time; find outages and lags."""
    arrivals = np.array(facts.watched.rewards, dtype=np.int64)
    if not len(arrivals):
        return None
    start, as_of = facts.calendar.start, facts.table.as_of
    step = next((step for step, _ in LENGTHS if (as_of - start) / step <= BARS), LENGTHS[-1][0])
    counts = np.bincount(
        (np.maximum(arrivals - start, 0)) // step, minlength=(as_of - start) // step + 1
    )
    bins = [{"t": (start + n * step) // 1000, "n": int(count)} for n, count in enumerate(counts)]
    lags = np.array(facts.watched.lags, dtype=np.int64)
    has_lag = lags >= 0
    figures: dict[str, Any] = {
        "bins": bins,
        "step": step // 1000,
        "outages": _outages(np.sort(arrivals)),
        "lag": [],
    }
    if has_lag.any():
        period = facts.calendar.place(arrivals)
        for n in range(facts.calendar.count):
            here = has_lag & (period == n)
            if here.sum() >= LAGS:
                figures["lag"].append({"t": facts.calendar.ms(n), **_quantiles(lags[here])})
        figures |= {f"lag_{name}": value for name, value in _quantiles(lags[has_lag]).items()}
    return figures


def _quantiles(lags: Any) -> dict[str, float | None]:
    minutes = np.quantile(lags, [0.5, 0.99]) / MINUTE
    return {"p50": short(minutes[0], 4), "p99": short(minutes[1], 4)}


def _outages(came: Any) -> list[dict[str, Any]]:
    gaps = np.diff(came)
    if len(gaps) < FEW:
        return []
    rate = math.log(2.0) / max(float(np.median(gaps)), 1.0)
    # The first rewards arrive slowly, because no decision is old enough yet.
    steady = np.arange(len(gaps)) >= 0.02 * len(gaps) + 10
    return [
        {
            "from": int(came[n]) // 1000,
            "to": int(came[n + 1]) // 1000,
            "hours": short(float(gaps[n]) / HOUR, 4),
        }
        for n in np.flatnonzero(steady & (QUARTER * rate * gaps > UNLIKELY)).tolist()
    ]


def chart(data: Spec) -> Spec:
    """Return the chart of reward messages over time."""
    time, step = TimeAxis(data), data["feed"]["step"]
    rows = [{**row, "t2": row["t"] + step} for row in time.named(data["feed"]["bins"])]
    tip = tips(("when", "From", None), ("n", "Reward messages", ",d"))
    bar = {"type": "rect", "fill": "$accent", "xOffset": 0.5, "x2Offset": -0.5}
    where = {"x": time.x(), "x2": {"field": "t2"}, "y": count_axis("n"), "y2": {"datum": 0}}
    return spec([*outages(data), layer(rows, bar, tooltip=tip, **where)], 200)


def words(data: Data) -> Said:
    """Return the title, which states the longest gap, and the caption."""
    feed, names = data["feed"], {step // 1000: name for step, name in LENGTHS}
    gaps = feed["outages"]
    count = sum(row["n"] for row in feed["bins"])
    title = f"{several(count, 'reward message')} arrived without a gap"
    if gaps:
        longest = max(gaps, key=lambda gap: gap["hours"])
        length, start = span(longest["hours"] / 24), day(longest["from"])
        title = f"No reward reached the journal for {length} from {start}"
    return Said(
        title,
        f"Reward messages that reached the journal, per {names[feed['step']]}; "
        f"shaded: gaps that are too long to be due to chance.",
    )


def lag_chart(data: Spec) -> Spec:
    """Return the chart of the time between the event and its record in the journal."""
    time = TimeAxis(data)
    least = 1 / 60
    rows = [
        {**row, "p50": max(row["p50"], least), "p99": max(row["p99"], least)}
        for row in time.named(data["feed"]["lag"])
    ]
    most = max(row["p99"] for row in rows)
    low = min(row["p50"] for row in rows)
    steps = (1 / 60, 1 / 6, 1, 3, 10, 30, 60, 180, 360, 1440, 10080)
    ticks = [step for step in steps if low / 3 <= step <= 3 * most]
    expression = (
        "datum.value < 1 ? format(datum.value * 60, '.0f') + ' s' : datum.value < 60 ? "
        "format(datum.value, '.0f') + ' min' : format(datum.value / 60, '.0f') + ' h'"
    )
    scale = {"type": "log", "domain": [low / 2, 2 * most]}
    axis = {"values": ticks, "labelExpr": expression}
    up = {**number("p50"), "title": None, "scale": scale, "axis": axis}
    tip = tips(
        ("when", "Period", None), ("p50", "p50, minutes", ".2f"), ("p99", "p99, minutes", ",.1f")
    )
    where: dict[str, Any] = {"x": time.x(), "y": up, "tooltip": tip}
    return spec(
        [
            *outages(data),
            layer(rows, {**RANGE, "stroke": "$accent"}, y2={"field": "p99"}, **where),
            layer(rows, point(45, fill="$accent"), **where),
        ],
        200,
    )


def lag_words(data: Data) -> Said:
    """Return the title, which states the median lag and the largest p99, and the caption."""
    feed = data["feed"]
    title = f"Half of the rewards are recorded within {span(feed['lag_p50'] / 1440)}"
    if feed["lag_p50"] < SECOND / MINUTE:
        title = "Half of the rewards are recorded within a second"
    worst = max(row["p99"] for row in feed["lag"])
    if worst > 3 * feed["lag_p50"]:
        title += f"; p99 of the slowest {data['period']}: {span(worst / 1440)}"
    return Said(
        title,
        f"Time from the event to the journal per {data['period']}: p50 and p99, log scale.",
    )


FEED = Panel(
    "feed", "Reward feed", collect, chart, words,
    columns={"when": "from", "n": "reward messages"},
    rows=lambda data: data["feed"] and data["feed"]["bins"],
    none="No reward has arrived yet.",
)  # fmt: skip
LAG = Panel(
    "lag", "Reporting lag", collect, lag_chart, lag_words,
    columns={"when": "period", "p50": "p50, minutes", "p99": "p99, minutes"},
    rows=lambda data: data["feed"] and data["feed"]["lag"],
    none=f"No period has {LAGS} rewards for known decisions yet.",
)  # fmt: skip
