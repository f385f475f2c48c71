"""The share of each action over time."""

from __future__ import annotations

from typing import Any

import numpy as np

from belated.report.facts import ACTIONS, Facts, code_of, short
from belated.report.panel import Panel, Said
from belated.report.text import Data, listed, percent
from belated.report.vega import (
    COLOURS,
    Rows,
    Spec,
    TimeAxis,
    complete,
    layer,
    partial_period,
    spec,
    tips,
    y,
)


def collect(facts: Facts) -> list[dict[str, Any]]:
    """Compute each action's share of decisions by period; rare actions are combined."""
    own, calendar = facts.own, facts.calendar
    times, action = facts.table.made[own], facts.table.action[own]
    total = calendar.counts(times)
    shown = facts.actions[:ACTIONS]
    rows = []
    remaining = np.ones(calendar.count)
    for name in shown:
        here = calendar.counts(times[action == code_of(facts, name)])
        part = np.divide(here, total, out=np.zeros_like(here), where=total > 0)
        remaining -= part
        rows += _shares(facts, name, part, total)
    if len(facts.actions) > ACTIONS:
        rows += _shares(facts, "others", np.maximum(remaining, 0.0), total)
    return rows


def _shares(facts: Facts, name: str, part: Any, total: Any) -> list[dict[str, Any]]:
    return [
        {"t": facts.calendar.ms(n), "action": name, "share": short(float(part[n]), 4)}
        for n in range(facts.calendar.count)
        if total[n]
    ]


def chart(data: Spec) -> Spec:
    """Return the stacked chart of shares."""
    time, actions = TimeAxis(data), shown_actions(data)
    by_time: dict[int, dict[str, float]] = {}
    for row in data["share"]:
        by_time.setdefault(row["t"], {})[row["action"]] = row["share"]
    rows: Rows = []
    for when, shares in by_time.items():
        below = 0.0
        for name, _, _ in actions:
            part = shares.get(name, 0.0)
            ends = {"y0": round(below, 4), "y1": round(below + part, 4)}
            rows.append({"t": when, "action": name, "share": part, **ends})
            below += part
    rows = time.named(rows)
    scale = {
        "domain": [name for name, *_ in actions],
        "range": [colour for _, colour, _ in actions],
    }
    colour = {"field": "action", "type": "nominal", "scale": scale}
    up = y("y0", "%", axis={"values": [0, 0.25, 0.5, 0.75, 1]}, scale={"domain": [0, 1]})
    area = {"type": "area", "stroke": "$card", "strokeWidth": 1.2, "interpolate": "monotone"}
    tip = tips(("when", "Period", None), ("action", "Action", None), ("share", "Share", ".1%"))
    return spec(
        [
            layer(None, area, x=time.x(), y=up, y2={"field": "y1"}, color=colour),
            *partial_period(data),
            layer(
                None, {"type": "rule", "strokeWidth": 14, "opacity": 0},
                x=time.x(), y=up, y2={"field": "y1"}, tooltip=tip,
            ),
        ],
        250,
        data={"values": rows},
    )  # fmt: skip


def shown_actions(data: Spec) -> list[tuple[str, str, float]]:
    """Return each action with its colour and its share in the last complete period."""
    rows = complete(data, data["share"])
    last: dict[str, float] = {row["action"]: row["share"] for row in rows}
    order = sorted(last, key=lambda name: -last[name])
    return [(name, COLOURS[n % len(COLOURS)], last[name]) for n, name in enumerate(order)]


def words(data: Data) -> Said:
    """Return the title, which names the most frequent actions, and the caption."""
    top = shown_actions(data)[:2]
    total = sum(share for _, _, share in top)
    verb = "take" if len(top) > 1 else "takes"
    return Said(
        f"{listed([name for name, _, _ in top])} {verb} {percent(total, 0)} of the decisions",
        f"Share of the bandit's decisions per {data['period']}, without the holdout; "
        "the numbers describe the last complete period.",
    )


def _legend(data: Data) -> list[tuple[str, str, str]]:
    return [(colour[1:], name, percent(last, 0)) for name, colour, last in shown_actions(data)]


SHARE = Panel(
    "share", "Shares of actions", collect, chart, words, legend=_legend,
    columns={"when": "period", "action": "action", "share": "share"},
)  # fmt: skip
