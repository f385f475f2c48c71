"""The model's most significant coefficients."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from belated.model.blocks import diagonal
from belated.report.facts import Facts, around, short
from belated.report.panel import ENDS, Panel, Said
from belated.report.text import Data, amount
from belated.report.vega import (
    RANGE,
    Spec,
    across,
    axis_format,
    ends,
    layer,
    names,
    number,
    point,
    rule,
    spec,
    tips,
)

#: Maximum number of coefficients in the table and in the chart.
LISTED, SHOWN = 12, 10


def collect(facts: Facts) -> list[dict[str, Any]]:
    """Return the coefficients with the largest z-scores, with the auditor's values."""
    features, auditor = facts.log.features, facts.auditor
    labels = None if features is None else features.names
    estimate = facts.estimate
    if labels is None or estimate is None or estimate.mean.size != len(labels):
        return []
    means = estimate.mean.ravel()
    errors = np.sqrt(diagonal(estimate.covariance).ravel())
    rows = []
    for place, name in enumerate(labels):
        if name.endswith("intercept"):
            continue
        action, _, column = name.rpartition(": ")
        theta, error = float(means[place]), float(errors[place])
        row = {"name": column, "action": action, **around(theta, error, digits=4, key="theta")}
        row["z"] = short(theta / error, 3)
        if auditor is not None and place < len(auditor.theta):
            row["audit"] = short(float(auditor.theta[place]), 4)
        rows.append(row)
    rows.sort(key=lambda row: -abs(row["z"] or 0.0))
    return rows[:LISTED]


def chart(data: Spec) -> Spec:
    """Return the chart of the most significant coefficients."""
    rows = [
        {**row, "label": f"{row['action']} · {row['name']}" if row["action"] else row["name"]}
        for row in data["coefficients"][:SHOWN]
    ]
    up = names("label", labelFontSize=11.5, labelLimit=200)
    unit = {"Bernoulli": "change in log-odds", "Poisson": "change in log-rate"}

    def right(field: str) -> Spec:
        title = unit.get(data["family"], "change in reward")
        form = {} if data["family"] in unit else {"format": axis_format(data)}
        return across(field, title, grid=True, **form)

    tip = tips(
        ("label", "Feature", None), ("theta", "In use", ".2f"), *ends(".2f"),
        ("audit", "Fit of all decisions", ".2f"),
    )  # fmt: skip
    bar, where = {**RANGE, "stroke": "$accent"}, {"y": up, "tooltip": tip}
    audited = [row for row in rows if "audit" in row]
    diamond = point(60, filled=False, stroke="$ink", strokeWidth=1.6, shape="diamond")
    return spec(
        [
            layer([{"zero": 0}], rule(), x=number("zero")),
            layer(rows, bar, x=right("lo"), x2={"field": "hi"}, **where),
            layer(rows, point(70, fill="$accent"), x=right("theta"), **where),
            layer(audited, diamond, x=right("audit"), **where),
        ],
        270,
    )


def words(data: Data) -> Said:
    """Return the title, which names the most significant effect, and the caption."""
    best = data["coefficients"][0]
    suffix = f" of {best['action']}" if best["action"] else ""
    verb = "raises" if best["theta"] > 0 else "lowers"
    size = abs(best["theta"])  # in percentage points if rewards are shares
    size = f"{100 * size:.3g} points" if data["rewards"]["shares"] else amount(data, size)
    effect = f"{verb} the reward{suffix} by {size}"
    if data["family"] in ("Bernoulli", "Poisson"):
        quantity = "odds" if data["family"] == "Bernoulli" else "rate"
        theta = best["theta"]
        factor = f"{math.exp(theta):.1f}" if theta < math.log(1_000) else "more than 1,000"
        effect = f"multiplies the {quantity}{suffix} by {factor}"
    title = f"Clearest effect: “{best['name']}” {effect}"
    if best["lo"] <= 0.0 <= best["hi"]:
        title = "No effect is clear yet: all intervals contain zero"
    return Said(
        title,
        "The coefficients furthest from zero in standard errors, with 95% intervals: those of "
        "the bandit, and those of a model fitted to all decisions.",
    )


COEFFICIENTS = Panel(
    "coefficients", "Clearest effects", collect, chart, words,
    columns={
        "action": "action", "name": "feature", "theta": "in use", **ENDS,
        "audit": "fit of all decisions",
    },
    none="The features have no names, or the bandit's model could not be read.",
    legend=lambda data: [("accent", "model in use", ""), ("dia", "fit of all decisions", "")],
)  # fmt: skip
