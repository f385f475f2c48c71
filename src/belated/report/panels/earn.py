"""Reward per decision over time, beside that of the holdout."""

from __future__ import annotations

from typing import Any

from belated.report.facts import RECENT, Facts
from belated.report.panel import BAND, Panel, Said
from belated.report.text import Data, amount, periods
from belated.report.vega import (
    Spec,
    TimeAxis,
    arm_tips,
    arms,
    axis_format,
    hover,
    layer,
    spec,
    value_format,
    y,
)


def collect(facts: Facts) -> list[dict[str, Any]]:
    """Reward per decision over trailing periods."""
    period, rows = facts.period, []
    for last in range(min(2, facts.calendar.count - 1), facts.calendar.count):
        recent = (period <= last) & (period > last - RECENT)
        for arm, mask in facts.arms:
            row = facts.matched.row(mask & recent)
            if row["p"] is not None:
                rows.append({"t": facts.calendar.ms(last), "arm": arm, **row})
    return rows


def chart(data: Spec) -> Spec:
    """Reward per decision by trailing periods."""
    time, form = TimeAxis(data), value_format(data)
    axis = axis_format(data)
    rows = time.named(data["earn"])
    last = {row["arm"]: row for row in rows}
    spread = max(row["hi"] for row in rows) - min(row["lo"] for row in rows)
    labels = [
        {**row, "at": row["p"] + (0.05 if arm == "Bandit" else -0.05) * spread}
        for arm, row in last.items()
    ]
    tip = arm_tips(("when", "Up to", None), form)
    dash = {"condition": {"test": "datum.arm=='Holdout'", "value": [5, 3]}, "value": [1, 0]}
    return spec(
        [
            layer(
                None, {"type": "area", "opacity": 0.14, "interpolate": "monotone"},
                x=time.x(), y=y("lo", axis), y2={"field": "hi"}, color=arms(),
            ),
            layer(
                None, {"type": "line", "strokeWidth": 2.5, "interpolate": "monotone"},
                x=time.x(), y=y("p", axis), color=arms(), strokeDash=dash,
            ),
            layer(
                None, hover(220) | {"filled": True},
                x=time.x(), y=y("p", axis), tooltip=tip,
            ),
            layer(
                labels, {"type": "text", "align": "right", "fontWeight": 600, "fontSize": 12},
                x=time.x(), y=y("at", axis), text={"field": "arm"}, color=arms(),
            ),
        ],
        250,
        data={"values": rows},
    )  # fmt: skip


def words(data: Data) -> Said:
    """Reward per decision over time."""
    head = data["headline"]
    last = {row["arm"]: row["p"] for row in data["earn"]}
    if "per_decision_holdout" in head:
        bandit, other = head["per_decision"]["p"], head["per_decision_holdout"]["p"]
        title = (
            f"The bandit earns {amount(data, bandit)} per decision, the holdout "
            f"{amount(data, other)}"
        )
    else:
        recent = next(iter(last.values()))
        title = f"Lately a decision earns {amount(data, recent)}"
    return Said(
        title,
        f"Reward per decision over trailing {periods(data, 7)}, with 95 % bands. Young decisions "
        f"count with the share of rewards expected by their age.",
    )


EARN = Panel(
    "earn", collect, chart, words,
    columns={"when": "up to", "arm": "decisions of", **BAND, "n": "decisions"},
)  # fmt: skip
