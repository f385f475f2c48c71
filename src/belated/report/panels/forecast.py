"""How many rewards are still to come."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from belated.evaluation import Expected
from belated.evaluation.forecasts import forecast
from belated.exceptions import InvalidInput
from belated.report.facts import Facts, interval, short
from belated.report.panel import ENDS, Panel, Said
from belated.report.text import Data, periods, several, whole
from belated.report.vega import Spec, TimeAxis, layer, rule, spec, tips, y

#: Periods of the forecast, and of the past beside it.
AHEAD, PAST = 10, 14


def collect(facts: Facts) -> dict[str, Any] | None:
    """What :func:`belated.evaluation.forecasts.forecast` expects, by period and in all."""
    calendar = facts.calendar
    came = facts.table.rewarded[facts.table.arrived]
    past = [{"t": calendar.ms(n), "n": int(count)} for n, count in enumerate(calendar.counts(came))]
    spans = [timedelta(microseconds=calendar.step * n) for n in range(1, AHEAD + 1)]
    try:
        table = facts.log.predicted(facts.table)
        found = forecast(table, spans)
        total = forecast(table).expected[0]
    except InvalidInput:
        return None
    rows, before = [], 0.0
    for n, by_then in enumerate(found.expected):
        when = (facts.table.as_of + n * calendar.step) // 1000
        total_by_then = _counts(by_then)
        new = short(by_then.mean - before)
        rows.append({"t": when, "by_then": total_by_then["n"], **total_by_then, "n": new})
        before = by_then.mean
    return {
        "past": past,
        "next": rows,
        "total": _counts(total),
        "soon": _counts(found.expected[2]),
    }


def _counts(expected: Expected) -> dict[str, float | None]:
    return interval(expected.mean, expected.low, expected.high, key="n")


def chart(data: Spec) -> Spec:
    """Rewards by period: arrived, and expected."""
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
        "x": time.x(), "x2": {"field": "t2"}, "y": y("n", "~s"), "y2": {"datum": 0},
    }  # fmt: skip
    now = [{"t": data["as_of"], "label": "now"}]
    text = {"type": "text", "align": "left", "dx": 5, "fill": "$muted", "baseline": "top"}
    tip = tips(
        ("when", "From", None), ("n", "Expected", ",.0f"), ("by_then", "In all by then", ",.0f"),
        ("lo", "at least", ",.0f"), ("hi", "at most", ",.0f"),
    )  # fmt: skip
    came = tips(("when", "At", None), ("n", "Arrived", ",d"))
    return spec(
        [
            layer(past, bar, tooltip=came, **where),
            layer(to_come, bar | dashed, tooltip=tip, **where),
            layer(now, rule(2, 3), x=time.x()),
            layer(now, text, x=time.x(), y={"value": 0}, text={"field": "label"}),
        ],
        240,
    )


def words(data: Data) -> Said:
    """What is still to come."""
    total, soon = data["forecast"]["total"], data["forecast"]["soon"]
    verb = "is" if round(total["n"]) == 1 else "are"
    return Said(
        f"{several(total['n'], 'reward')} {verb} still to come, {whole(soon['n'])} in the "
        f"next {periods(data, 3)}",
        f"Rewards per {data['period']}: arrived, and expected of decisions already made "
        f"({whole(total['lo'])} to {whole(total['hi'])} in all, 95 %).",
    )


FORECAST = Panel(
    "forecast", collect, chart, words,
    columns={"when": "at", "n": "rewards", "by_then": "in all by then", **ENDS},
    rows=lambda data: data["forecast"] and data["forecast"]["past"] + data["forecast"]["next"],
    none="A forecast needs 20 rewards.",
)  # fmt: skip
