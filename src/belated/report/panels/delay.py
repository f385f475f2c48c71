"""Delay curve: when rewards arrive."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import numpy as np

from belated.report.facts import DAY, Facts, interval, short
from belated.report.panel import ENDS, Panel, Said
from belated.report.text import Data, percent, plural, several, span
from belated.report.vega import (
    Spec,
    across,
    band,
    ends,
    label,
    layer,
    number,
    point,
    rule,
    span_of,
    spec,
    tips,
    y,
)

#: Number of points of the delay curve.
POINTS = 57


def collect(facts: Facts) -> dict[str, Any] | None:
    """Sample the :func:`~belated.evaluation.delays.delay_curve` at equal intervals, in days."""
    curve = facts.curve
    if curve is None:
        return None
    end = curve_end(facts)
    rows = []
    for age in np.linspace(0.0, end, POINTS):
        ends = curve.at_us(float(age)) if age else (0.0, 0.0, 0.0)
        rows.append({"d": short(age / DAY), **interval(*ends, key="F")})
    figures: dict[str, Any] = {"curve": rows, "n": curve.rewards, "missing": curve.missing}
    for name, part in (("median", 0.5), ("p90", 0.9)):
        when = curve.quantile(part)
        figures[name] = None if when is None else short(when / timedelta(days=1))
    window = facts.table.rewards.window_us
    if window is not None:
        figures["window"] = short(window / DAY)
        figures["in_window"] = short(curve.at_us(float(window))[0])
    return figures


def curve_end(facts: Facts) -> float:
    """Return the age at which the chart ends, after the window and nearly all rewards."""
    assert facts.curve is not None
    reach, window = facts.table.reach, facts.table.rewards.window_us
    nearly = facts.curve.quantile(0.995)
    end = reach if nearly is None else 1.2 * (nearly / timedelta(microseconds=1))
    if window is not None:
        end = max(end, 1.4 * window)
    return max(min(end, reach), 1.0)


def chart(data: Spec) -> Spec:
    """Return the chart of the delay curve with its band, its quantiles and the window."""
    delay = data["delay"]
    scale, unit = span_of(delay["curve"][-1]["d"])
    curve = [{**row, "d": row["d"] * scale} for row in delay["curve"]]
    marks = [
        {"d": delay[name] * scale, "F": at, "label": f"{part} within {span(delay[name])}"}
        for name, at, part in (("median", 0.5, "half"), ("p90", 0.9, "90%"))
        if delay[name] is not None
    ]
    right = across("d", f"{unit} since the decision")
    up = y("F", "%", scale={"domain": [0, 1]})
    layers = []
    if "window" in delay:
        at, window = number("d"), delay["window"] * scale
        text_here = f"window: {percent(delay['in_window'])} arrived"
        # Place the label to the left of the line if there is no room to the right.
        align, dx = ("right", -6) if 2 * window > curve[-1]["d"] else ("left", 6)
        text = {"type": "text", "align": align, "dx": dx, "fill": "$muted"}
        here = [{"d": window, "F": 0.06, "label": text_here}]
        named = layer(here, text, x=at, y=up, text={"field": "label"})
        layers = [layer(here, rule(2, 3), x=at), named]
    tip = tips(("d", unit.capitalize(), ".2f"), ("F", "Arrived", ".1%"), *ends(".1%"))
    dot = point(80, fill="$accent", stroke="$card", strokeWidth=2)
    layers += [
        *band(curve, right, up, tip, 0.18),
        layer(marks, dot, x=right, y=up),
        layer(marks, label(align="left", dx=11, dy=14), x=right, y=up, text={"field": "label"}),
    ]
    return spec(layers, 240)


def words(data: Data) -> Said:
    """Return the title, which says when 50 % and 90 % of rewards have arrived, and the caption."""
    delay = data["delay"]
    half, most = delay["median"], delay["p90"]
    units = plural(data["unit"])
    title = f"Too early to tell when half of the {units} have arrived"
    if half is not None:
        title = f"Half of the {units} arrive within {span(half)}"
        if most is not None:
            title += f", nine in ten within {span(most)}"
    kind = (
        f"Share of all {units} that have arrived, by time since the decision; corrected for "
        "those that cannot have arrived yet"
        if data["rewards"]["kind"] != "Explicit"
        else "Share of decisions whose reward has arrived, by time since the decision; pending "
        "decisions are included up to their age"
    )
    return Said(title, f"{kind}. 95% band, {several(delay['n'], data['unit'])}.")


DELAY = Panel(
    "delay", "Delays", collect, chart, words,
    columns={"d": "days", "F": "share arrived", **ENDS},
    rows=lambda data: data["delay"] and data["delay"]["curve"],
    none="No reward has arrived yet.",
)  # fmt: skip
