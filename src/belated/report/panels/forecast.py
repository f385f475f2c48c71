"""A forecast of the rewards still to come."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import numpy as np

from belated.evaluation.forecasts import forecast
from belated.exceptions import InvalidInput, NotEvaluable
from belated.report.facts import Facts, interval, short
from belated.report.panel import ENDS, Panel, Said
from belated.report.text import Data, periods, plural, several, whole
from belated.report.vega import (
    Spec,
    TimeAxis,
    count_axis,
    layer,
    partial_period,
    rule,
    spec,
    tips,
)

#: Number of forecast periods, and of past periods shown with them.
AHEAD, PAST = 10, 14
#: Number of periods named in the title.
SOON = 3


def collect(facts: Facts) -> dict[str, Any] | None:
    """Compute the :func:`~belated.evaluation.forecasts.forecast` by period and in total."""
    calendar = facts.calendar
    arrivals = facts.table.rewarded[facts.table.arrived]
    past = [
        {"t": calendar.ms(n), "n": int(count)} for n, count in enumerate(calendar.counts(arrivals))
    ]
    spans = [timedelta(microseconds=calendar.step * n) for n in range(1, AHEAD + 1)]
    try:
        table = facts.log.predicted(facts.table)
        result = forecast(table, spans)
        total = forecast(table).expected[0]
    except (InvalidInput, NotEvaluable):
        return None
    # Each horizon is simulated separately. Noise must not make the number at a later horizon
    # smaller, or the last number larger than the total.
    ends = np.array([(step.mean, step.low, step.high) for step in (*result.expected, total)])
    ends = np.maximum.accumulate(np.minimum(ends, ends[-1]), axis=0)
    counts = [interval(*row, key="n") for row in ends.tolist()]
    rows, before = [], 0.0
    for n, by_then in enumerate(counts[:-1]):
        when = (facts.table.as_of + n * calendar.step) // 1000
        new = short(by_then["n"] - before)
        rows.append({"t": when, **by_then, "by_then": by_then["n"], "n": new})
        before = by_then["n"]
    return {"past": past, "next": rows, "total": counts[-1], "soon": counts[SOON - 1]}


def chart(data: Spec) -> Spec:
    """Return the chart of arrived and expected rewards by period."""
    time = TimeAxis(data)
    wide = [
        [{**row, "t2": row["t"] + time.step} for row in time.named(data["forecast"][name])]
        for name in ("past", "next")
    ]
    past, to_come = wide[0][-PAST:], wide[1]
    past[-1]["t2"] = min(past[-1]["t2"], data["as_of"])
    bar: Spec = {"type": "rect", "fill": "$accent", "cornerRadius": 2, "xOffset": 1, "x2Offset": -1}
    dashed = {"fillOpacity": 0.28, "stroke": "$accent", "strokeDash": [3, 2], "strokeWidth": 1}
    where: dict[str, Any] = {
        "x": time.x(), "x2": {"field": "t2"}, "y": count_axis("n"), "y2": {"datum": 0},
    }  # fmt: skip
    now = [{"t": data["as_of"], "label": "now"}]
    text = {"type": "text", "align": "left", "dx": 5, "fill": "$muted", "baseline": "top"}
    tip = tips(
        ("when", "From", None), ("n", "Expected", ",.0f"), ("by_then", "Total by then", ",.0f"),
        ("lo", "Total at least", ",.0f"), ("hi", "Total at most", ",.0f"),
    )  # fmt: skip
    tooltip = tips(("when", "At", None), ("n", "Arrived", ",d"))
    return spec(
        [
            *partial_period(data),
            layer(past, bar, tooltip=tooltip, **where),
            layer(to_come, bar | dashed, tooltip=tip, **where),
            layer(now, rule(2, 3), x=time.x()),
            layer(now, text, x=time.x(), y={"value": 0}, text={"field": "label"}),
        ],
        240,
    )


def words(data: Data) -> Said:
    """Return the title, which says how many rewards are still to come, and the caption."""
    total, soon = data["forecast"]["total"], data["forecast"]["soon"]
    verb = "is" if round(total["n"]) == 1 else "are"
    return Said(
        f"{several(total['n'], data['unit'])} {verb} still to come, {whole(soon['n'])} in the "
        f"next {periods(data, SOON)}",
        f"{plural(data['unit']).capitalize()} per {data['period']}: arrived, and expected from "
        f"decisions already made ({whole(total['lo'])} to {whole(total['hi'])} in total, 95%).",
    )


FORECAST = Panel(
    "forecast", "Forecast", collect, chart, words,
    columns={"when": "at", "n": "rewards", "by_then": "total by then", **ENDS},
    rows=lambda data: data["forecast"] and data["forecast"]["past"] + data["forecast"]["next"],
    none="A forecast needs 20 rewards, and decisions as old as the window.",
)  # fmt: skip
