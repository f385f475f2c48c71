"""Arrival of rewards by age, for the decisions of each period."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from belated.report.facts import DAY, Facts, short
from belated.report.panel import Panel, Said
from belated.report.panels.delay import curve_end
from belated.report.text import Data, day, percent
from belated.report.vega import (
    Rows,
    Spec,
    TimeAxis,
    across,
    gaps,
    hover,
    layer,
    line,
    number,
    span_of,
    spec,
    tips,
    y,
)

#: Number of ages at which a cohort is counted.
AGES = 21
#: Number of standard errors from the expected share at which a cohort stands out. Among hundreds of
#: cohorts and ages, smaller deviations occur by chance.
UNLIKELY = 4.0


def collect(facts: Facts) -> dict[str, Any] | None:
    """Compute the share of each period's decisions with a reward, at ages all of them reached."""
    curve, table, calendar = facts.curve, facts.table, facts.calendar
    if curve is None:
        return None
    ages = np.linspace(0.0, min(curve_end(facts), table.reach), AGES)
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
            {
                "cohort": calendar.ms(n),
                "age": short(age / DAY),
                "share": short(float(share), 4),
                "n": len(waited),
            }
            for age, share in zip(ages, shares, strict=True)
            if age <= youngest
        ]
    rate = float(table.arrived.sum()) / max(float(facts.exposure.sum()), 1.0)
    rate = min(rate, 1.0) if table.conversions else 1.0
    expected = [
        {"age": short(age / DAY), "share": short(rate * float(share), 4)}
        for age, share in zip(ages, curve.arrived_by(ages), strict=True)
    ]
    return {"lines": lines, "expected": expected}


def chart(data: Spec) -> Spec:
    """Return a chart with one line per period."""
    cohorts, time = data["cohorts"], TimeAxis(data)
    days, unit = span_of(cohorts["expected"][-1]["age"])
    rows = [
        {
            **row,
            "age": row["age"] * days,
            "hit": any(
                gap["from"] - 2 * time.step < row["cohort"] < gap["to"] for gap in gaps(data)
            ),
        }
        for row in time.named(cohorts["lines"], "cohort")
    ]
    expected = [{**row, "age": row["age"] * days} for row in cohorts["expected"]]
    right = across("age", f"{unit} since the decision")
    up = y("share", "~%")
    scale = {"domain": [data["from"], data["as_of"]], "range": [0.15, 0.85]}
    strength = {**number("cohort"), "scale": scale}
    where: Spec = {"x": right, "y": up, "detail": {"field": "cohort"}}
    usual = layer(None, line(1.4, stroke="$accent"), opacity=strength, **where)
    hit = layer(None, line(2, stroke="$warn"), **where)
    tip = tips(
        ("when", "Decided", None), ("age", unit.capitalize(), ".1f"), ("share", "Rewarded", ".1%")
    )
    dashed = {"type": "line", "stroke": "$ink", "strokeWidth": 2, "strokeDash": [5, 4]}
    text: Spec = {"type": "text", "align": "right", "dy": 16, "fontWeight": 600}
    return spec(
        [
            {"transform": [{"filter": "!datum.hit"}], **usual},
            {"transform": [{"filter": "datum.hit"}], **hit},
            layer(expected, dashed, x=right, y=up),
            layer(expected[-1:], text, x=right, y=up, text={"value": "expected"}),
            layer(None, hover(50), x=right, y=up, tooltip=tip),
        ],
        240,
        data={"values": rows},
    )


def words(data: Data) -> Said:
    """Return the title, which names the cohort with the largest deviation, and the caption."""
    title = f"The rewards of every {data['period']} arrive as expected"
    if late := gaps(data):
        title = f"Rewards of decisions before {day(late[-1]['from'])} were delayed by an outage"
    else:
        worst = _furthest(data["cohorts"])
        if worst is not None:
            title = (
                f"Decisions of {TimeAxis(data).name(worst[0])} differ most from what is expected: "
                f"{percent(worst[1])} have a reward, not {percent(worst[2])}"
            )
    return Said(
        title,
        f"Share of the decisions of each {data['period']} that have a reward, by age. "
        f"Dashed: expected from the delay curve.",
    )


def _furthest(found: Data) -> tuple[int, float, float] | None:
    """Return the cohort with the largest deviation, its share, and the expected share."""
    expected = {row["age"]: row["share"] for row in found["expected"]}
    largest, furthest = UNLIKELY, None
    for row in found["lines"]:
        share, usual = row["share"], expected[row["age"]]
        middle = (share + usual) / 2
        error = math.sqrt(middle * (1.0 - middle) / row["n"])
        if abs(share - usual) > largest * error:
            largest, furthest = abs(share - usual) / error, (row["cohort"], share, usual)
    return furthest


def _rows(data: Data) -> Rows:
    cohorts = data["cohorts"]
    return TimeAxis(data).named(cohorts["lines"], "cohort") if cohorts else []


def _legend(data: Data) -> list[tuple[str, str, str]]:
    items = [("accent", f"one line per {data['period']}; newer lines are stronger", "")]
    if gaps(data):
        items.append(("warning", "delayed by an outage", ""))
    return items


COHORTS = Panel(
    "cohorts", "Arrival by cohort", collect, chart, words, rows=_rows, legend=_legend,
    columns={
        "when": "decided", "age": "age, days", "share": "share with a reward", "n": "decisions",
    },
    none="No reward has arrived yet.",
)  # fmt: skip
