"""The number of pending decisions over time."""

from __future__ import annotations

from typing import Any

import numpy as np

from belated.evaluation.table import Times
from belated.report.facts import DAY, Facts, short
from belated.report.panel import Panel, Said
from belated.report.text import Data, several, span
from belated.report.vega import Spec, TimeAxis, count_axis, layer, outages, spec, tips

#: Number of points in time at which pending decisions are counted.
MOMENTS = 120


def collect(facts: Facts) -> list[dict[str, Any]]:
    """Count the pending decisions at equal intervals."""
    table = facts.table
    starts, ends = np.sort(table.made), np.sort(_ends(facts))
    moments = np.linspace(facts.calendar.start, table.as_of, MOMENTS).astype(np.int64)
    counts = np.searchsorted(starts, moments, "right") - np.searchsorted(ends, moments, "right")
    return [
        {"t": int(when) // 1000, "n": int(count)}
        for when, count in zip(moments, counts, strict=True)
    ]


def pending_now(facts: Facts) -> dict[str, Any]:
    """Return the number of pending decisions, and the age of the oldest in days."""
    pending = _ends(facts) > facts.table.as_of
    oldest = float(facts.table.age[pending].max(initial=0.0))
    return {"n": int(pending.sum()), "oldest": short(oldest / DAY)}


def _ends(facts: Facts) -> Times:
    """Return when each decision stops being pending: when its reward arrives or its window ends."""
    table, window = facts.table, facts.table.rewards.window_us
    ends = np.where(table.arrived, table.rewarded, np.iinfo(np.int64).max)
    return ends if window is None else np.minimum(ends, table.made + window)


def chart(data: Spec) -> Spec:
    """Return the chart of pending decisions."""
    time = TimeAxis(data)
    edge = {"stroke": "$accent", "strokeWidth": 2}
    area = {"type": "area", "fill": "$accent", "fillOpacity": 0.15, "line": edge}
    tip = tips(("when", "At", None), ("n", "Pending", ",d"))
    rows = time.named(data["pending"])
    return spec(
        [*outages(data), layer(rows, area, x=time.x(), y=count_axis("n"), tooltip=tip)], 240
    )


def words(data: Data) -> Said:
    """Return the title, which says how many decisions are pending, and the caption."""
    now, window = data["headline"]["pending"], data["rewards"]["window_days"]
    verb = "is" if now["n"] == 1 else "are"
    title = f"{several(now['n'], 'decision')} {verb} pending"
    if now["n"]:
        title += f", the oldest for {span(now['oldest'])}"
    inside = "" if window is None else f" inside their window of {span(window)}"
    return Said(title, f"Decisions without a reward{inside}.")


PENDING = Panel(
    "pending", "Pending decisions", collect, chart, words, columns={"when": "at", "n": "pending"}
)
