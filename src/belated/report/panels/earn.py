"""Reward per decision over time, compared with the holdout."""

from __future__ import annotations

from typing import Any

from belated.report.facts import RECENT, Facts
from belated.report.panel import BAND, Panel, Said
from belated.report.text import Data, amount, periods
from belated.report.vega import (
    Rows,
    Spec,
    TimeAxis,
    arm_tips,
    arms,
    axis_format,
    dashed,
    hover,
    label,
    layer,
    line,
    partial_period,
    spec,
    value_format,
    y,
)


def collect(facts: Facts) -> list[dict[str, Any]]:
    """Compute the reward per decision over trailing periods."""
    period, rows = facts.period, []
    for last in range(min(2, facts.calendar.count - 1), facts.calendar.count):
        recent = (period <= last) & (period > last - RECENT)
        for arm, mask in facts.arms:
            row = facts.row(mask & recent)
            if row["p"] is not None:
                rows.append({"t": facts.calendar.ms(last), "arm": arm, **row})
    return rows


def chart(data: Spec) -> Spec:
    """Return the chart of reward per decision over trailing periods."""
    time, form = TimeAxis(data), value_format(data)
    axis = axis_format(data)
    rows = time.named(data["earn"])
    labels = earn_labels(rows)
    tip = arm_tips(("when", "Up to", None), form)
    at, up, dash = time.x(), y("p", axis), dashed("datum.arm=='Holdout'")
    return spec(
        [
            *partial_period(data),
            layer(
                None, {"type": "area", "opacity": 0.14, "interpolate": "monotone"},
                x=at, y=y("lo", axis), y2={"field": "hi"}, color=arms(),
            ),
            layer(None, line(), x=at, y=up, color=arms(), strokeDash=dash),
            layer(None, hover(220) | {"filled": True}, x=at, y=up, tooltip=tip),
            layer(labels, label(), x=at, y=y("at", axis), text={"field": "arm"}, color=arms()),
        ],
        250,
        data={"values": rows},
    )  # fmt: skip


def earn_labels(rows: Rows) -> Rows:
    """Place the label of the higher line above its last third, the other label below its line."""
    room = 0.05 * (max(row["hi"] for row in rows) - min(row["lo"] for row in rows))
    courses = [[row for row in rows if row["arm"] == arm] for arm in ("Bandit", "Holdout")]
    courses = sorted(filter(None, courses), key=lambda course: -course[-1]["p"])
    labels = []
    for end, side, course in zip((max, min), (room, -room), courses, strict=False):
        tail = [row["p"] for row in course[-max(len(course) // 3, 1) :]]
        labels.append({**course[-1], "at": end(tail) + side})
    return labels


def words(data: Data) -> Said:
    """Return the title, which states the headline's reward per decision, and the caption."""
    head = data["headline"]
    if "per_decision_holdout" in head:
        own, holdout = (amount(data, head[f"per_decision{arm}"]["p"]) for arm in ("", "_holdout"))
        title = f"The bandit earns {own} per decision, the holdout {holdout}"
    elif "per_decision" in head:
        title = f"The bandit earns {amount(data, head['per_decision']['p'])} per decision"
    else:
        title = "Too early to tell what a decision earns"
    return Said(
        title,
        f"Reward per decision over trailing {periods(data, 7)}, with 95% bands. Recent decisions "
        f"are weighted by the share of rewards expected by their age.",
    )


EARN = Panel(
    "earn", "Reward per decision", collect, chart, words,
    columns={"when": "up to", "arm": "decisions of", **BAND, "n": "decisions"},
)  # fmt: skip
