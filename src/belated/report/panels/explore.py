"""Exploration, measured as the effective number of actions."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from belated.report.facts import Facts, short
from belated.report.panel import Panel, Said
from belated.report.text import Data
from belated.report.vega import (
    Spec,
    TimeAxis,
    complete,
    dashed,
    hover,
    label,
    layer,
    line,
    partial_period,
    spec,
    tips,
    y,
)

#: Effective number of actions per decision below which the bandit is nearly certain.
CERTAIN = 1.2


def collect(facts: Facts) -> list[dict[str, Any]]:
    """Compute the effective number of actions, per decision and overall, for each period."""
    own, rows = facts.own, []
    period, action = facts.period[own], facts.table.action[own]
    surprise = -np.log(np.maximum(facts.table.propensity[own], 1e-12))
    for n in range(facts.calendar.count):
        here = period == n
        if not here.any():
            continue
        shares = np.bincount(action[here]) / here.sum()
        shares = shares[shares > 0]
        overall = math.exp(-float((shares * np.log(shares)).sum()))
        # An estimate from the propensities of chosen actions can exceed the number of actions.
        count = min(math.exp(float(surprise[here].mean())), len(facts.actions))
        when = facts.calendar.ms(n)
        rows.append({"t": when, "what": "in use overall", "n": short(overall, 4)})
        rows.append({"t": when, "what": "for one decision", "n": short(count, 4)})
    return rows


def chart(data: Spec) -> Spec:
    """Return the chart of effective numbers of actions."""
    time = TimeAxis(data)
    rows = time.named(data["explore"])
    scale = {"domain": ["in use overall", "for one decision"], "range": ["$slate", "$accent"]}
    colour = {"field": "what", "type": "nominal", "scale": scale}
    most = max(2.0, 1.15 * max(row["n"] for row in rows))
    up = y("n", ".1f", scale={"domain": [0, most], "nice": False})
    dash = dashed("datum.what=='in use overall'")
    tip = tips(
        ("when", "Period", None), ("what", "Actions", None), ("n", "Effective number", ".2f")
    )
    labels = explore_labels(rows, 0.12 * most)
    above, below = ([row for row in labels if row["above"] is side] for side in (True, False))
    return spec(
        [
            *partial_period(data),
            layer(rows, line(), x=time.x(), y=up, color=colour, strokeDash=dash),
            layer(rows, hover(200), x=time.x(), y=up, tooltip=tip),
            *(
                layer(
                    rows, label(dy=dy), x=time.x(), y={**up, "field": "at"},
                    text={"field": "what"}, color=colour,
                )
                for rows, dy in ((above, -10), (below, 12))
            ),
        ],
        240,
    )  # fmt: skip


def explore_labels(rows: list[Spec], room: float) -> list[Spec]:
    """Place each label above its line.

    If there is no room between the lines, place the lower label below its line.
    """
    covered: dict[str, list[float]] = {}
    for last in rows[-2:]:
        course = [row["n"] for row in rows if row["what"] == last["what"]]
        covered[last["what"]] = course[-max(len(course) // 3, 1) :]
    overall = covered.get("in use overall", [math.inf])
    labels = []
    for last in rows[-2:]:
        course = covered[last["what"]]
        above = course is overall or min(overall) - max(course) > room
        labels.append({**last, "at": max(course) if above else min(course), "above": above})
    return labels


def words(data: Data) -> Said:
    """Return the title, which says how many actions compete, and the caption."""
    last = {row["what"]: row["n"] for row in complete(data, data["explore"])}
    choices = last["for one decision"]
    title = f"The bandit chooses between {choices:.1f} actions per decision"
    if choices < CERTAIN:
        title = "The bandit is nearly certain about each decision"
    return Said(
        f"{title}; {last['in use overall']:.1f} of {len(data['actions'])} actions are in use",
        "Effective number of actions: the exponential of the entropy, for one decision (from its "
        f"propensity) and for all decisions of a {data['period']}. The title describes the last "
        "complete period.",
    )


EXPLORE = Panel(
    "explore", "Exploration", collect, chart, words,
    columns={"when": "period", "what": "actions", "n": "effective number"},
)  # fmt: skip
