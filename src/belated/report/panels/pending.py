"""How many decisions are pending."""

from __future__ import annotations

from typing import Any

import numpy as np

from belated.fold.rules import State
from belated.report.facts import DAY, Facts, short
from belated.report.panel import Panel, Said
from belated.report.text import Data, several, span
from belated.report.vega import Spec, TimeAxis, layer, outages, spec, tips, y

#: Moments at which they are counted.
MOMENTS = 120


def collect(facts: Facts) -> list[dict[str, Any]]:
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


def chart(data: Spec) -> Spec:
    """Pending decisions over time."""
    time = TimeAxis(data)
    edge = {"stroke": "$accent", "strokeWidth": 2}
    area = {"type": "area", "fill": "$accent", "fillOpacity": 0.15, "line": edge}
    tip = tips(("when", "At", None), ("n", "Pending", ",d"))
    rows = time.named(data["pending"])
    return spec([*outages(data), layer(rows, area, x=time.x(), y=y("n", "~s"), tooltip=tip)], 240)


def words(data: Data) -> Said:
    """What is pending."""
    now, window = data["headline"]["pending"], data["rewards"]["window_days"]
    verb = "is" if now["n"] == 1 else "are"
    title = f"{several(now['n'], 'decision')} {verb} pending"
    if now["n"]:
        title += f", the oldest for {span(now['oldest'])}"
    inside = "" if window is None else f" of {span(window)}"
    return Said(title, f"Decisions inside their window{inside} without a reward.")


PENDING = Panel("pending", collect, chart, words, columns={"when": "at", "n": "pending"})
