"""Calibration: predictions compared with outcomes."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from belated.report.facts import RECENT, Facts, short
from belated.report.panel import ENDS, Panel, Said
from belated.report.text import Data, periods, span
from belated.report.vega import (
    RANGE,
    Spec,
    across,
    axis_format,
    ends,
    layer,
    point,
    rule,
    spec,
    tips,
    value_format,
    y,
)

#: Number of groups of predictions, and the minimum number of rewards.
GROUPS, FEW = 10, 30


def collect(facts: Facts) -> dict[str, Any] | None:
    """Compare the predicted means of recent decisions with their rewards."""
    period, mean = facts.period, facts.table.mean
    recent = facts.own & (period >= facts.calendar.count - 2 * RECENT)
    if (facts.table.arrived & recent).sum() < FEW or not mean.any():  # no predictions were stored
        return None
    edges = np.quantile(mean[recent], np.linspace(0, 1, GROUPS + 1))
    group = np.clip(np.searchsorted(edges, mean, side="right") - 1, 0, GROUPS - 1)
    bins = []
    for n in range(GROUPS):
        here = recent & (group == n)
        if here.any():
            row = facts.row(here)
            value = row.pop("p")
            if value is not None:
                predicted = short(float(mean[here].mean()))
                bins.append({"predicted": predicted, "observed": value, **row})
    observed, error = facts.ratio(recent)
    # A ratio of numbers with different signs is meaningless.
    if not math.isfinite(observed) or observed * float(mean[recent].mean()) <= 0.0:
        return None
    weeks = []
    for first in range(0, facts.calendar.count, RECENT):
        here = facts.own & (period >= first) & (period < first + RECENT)
        value = facts.ratio(here)[0] if here.any() else math.nan
        if math.isfinite(value) and value * float(mean[here].mean()) > 0.0:
            bias = short(float(mean[here].mean()) / value - 1.0, 4)
            weeks.append({"t": facts.calendar.ms(first), "bias": bias})
    return {
        "bins": bins,
        "bias": short(float(mean[recent].mean()) / observed - 1.0, 4),
        "bias_se": short(error / abs(observed), 4),
        "weeks": weeks,
    }


def chart(data: Spec) -> Spec:
    """Return the chart of predicted and observed rewards."""
    bins, form = data["calibration"]["bins"], value_format(data)
    axis = axis_format(data)
    most = 1.05 * max(max(row["predicted"], row["hi"]) for row in bins)
    least = min(0.0, *(min(row["predicted"], row["lo"]) for row in bins))
    domain = {"domain": [least, most]}
    right = across("predicted", "predicted reward per decision", format=axis, grid=True) | {
        "scale": domain
    }
    up = y("observed", axis, scale=domain)
    whole = [{"predicted": end, "observed": end} for end in (least, most)]
    near = [{"predicted": 0.8 * most, "observed": 0.8 * most}]
    tip = tips(
        ("predicted", "Predicted", form), ("observed", "Observed", form), *ends(form),
        ("n", "Decisions", ",d"),
    )  # fmt: skip
    text = {"type": "text", "fill": "$muted", "align": "right", "dx": -10}
    around = {**RANGE, "stroke": "$accent"}
    return spec(
        [
            layer(whole, rule(4, 4) | {"type": "line"}, x=right, y=up),
            layer(near, text, x=right, y=up, text={"value": "perfect"}),
            layer(bins, around, x=right, y=y("lo", axis), y2={"field": "hi"}),
            layer(bins, point(60, fill="$accent"), x=right, y=up, tooltip=tip),
        ],
        240,
    )


def words(data: Data) -> Said:
    """Return the title, which compares predicted and observed rewards, and the caption."""
    calibration = data["calibration"]
    ratio = 1.0 + calibration["bias"]
    if abs(calibration["bias"]) > 3 * calibration["bias_se"]:
        title = f"Predictions are {ratio:.2g} times what is observed"
    else:
        title = f"Predictions agree with what is observed (ratio {ratio:.2f})"
    weeks = ", ".join(f"{1 + row['bias']:.1f}" for row in calibration["weeks"])
    course = (
        f" Ratio per {periods(data, RECENT)}: {weeks}." if len(calibration["weeks"]) > 1 else ""
    )
    why = ""
    if data["rewards"]["kind"] == "DefaultAfter" and ratio > 1.1:
        window = span(data["rewards"]["window_days"])
        why = (
            "The model learns from rewards when they arrive, but from missing rewards only after "
            f"{window}, so successes are overrepresented among recent decisions."
        )
    return Said(
        title,
        f"Predicted mean at the time of the decision (horizontal) and reward per decision "
        f"(vertical), for ten groups of decisions from the last {periods(data, 2 * RECENT)}."
        f"{course}",
        why if abs(calibration["bias"]) > 3 * calibration["bias_se"] else "",
    )


CALIBRATION = Panel(
    "calibration", "Calibration", collect, chart, words,
    columns={"predicted": "predicted", "observed": "observed", **ENDS, "n": "decisions"},
    rows=lambda data: data["calibration"] and data["calibration"]["bins"],
    none=lambda data: f"The last {periods(data, 2 * RECENT)} have fewer than {FEW} rewards, or "
    "no predictions were stored.",
)  # fmt: skip
