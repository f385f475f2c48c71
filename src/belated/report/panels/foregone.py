"""Reward left on the table: how much better the best action of each request was expected to be."""

from __future__ import annotations

from typing import Any

import numpy as np

from belated.exceptions import BelatedError
from belated.report.facts import Facts, interval, short
from belated.report.panel import BAND, Panel, Said
from belated.report.text import Data, amount, several
from belated.report.vega import (
    Spec,
    TimeAxis,
    axis_format,
    band,
    ends,
    partial_period,
    spec,
    tips,
    value_format,
    y,
)

#: Maximum number of compared requests; number of draws from the auditor.
OFFERS, DRAWS = 12_000, 80


def collect(facts: Facts) -> dict[str, Any] | None:
    """Compare the best action of each request, according to the auditor, with the chosen action.

    Which action is best is uncertain, so the estimate is the mean over draws of the auditor's
    coefficients, and the interval is their quantiles.
    """
    own, auditor = np.flatnonzero(facts.own), facts.auditor
    if auditor is None or len(own) == 0:
        return None
    sample = own[np.unique(np.linspace(0, len(own) - 1, OFFERS).astype(int))]
    table = facts.table.select(sample)
    try:
        usable, offers = facts.log.offers(table)
    except BelatedError:  # requests were not stored, or cannot be scored
        return None
    rows = offers.design
    period = facts.period[sample][usable]
    count = np.bincount(period, minlength=facts.calendar.count)

    def gaps(theta: Any) -> Any:
        means = auditor.means(rows, theta)
        return np.maximum.reduceat(means, offers.starts) - means[offers.chosen]

    sums = np.array(
        [
            np.bincount(period, weights=gaps(theta), minlength=len(count))
            for theta in auditor.draws(DRAWS)
        ]
    )

    def per_decision(which: Any) -> dict[str, Any]:
        values = sums[:, which].sum(axis=1) / count[which].sum()
        return interval(values.mean(), *np.quantile(values, [0.025, 0.975]), digits=4)

    days = [
        {"t": facts.calendar.ms(n), **per_decision([n])} for n in np.flatnonzero(count).tolist()
    ]
    lately = slice(facts.calendar.recent, None)
    if not count[lately].any():
        return None
    total = float(sums.sum(axis=1).mean() / count.sum()) * len(own)
    return {
        "days": days,
        **per_decision(lately),
        "first": per_decision(slice(3))["p"] if count[:3].any() else None,
        "total": short(total),
    }


def chart(data: Spec) -> Spec:
    """Return the chart of the reward left on the table by period."""
    time, form = TimeAxis(data), value_format(data).replace("1%", "2%")
    axis = axis_format(data)
    rows = time.named(data["foregone"]["days"])
    tip = tips(("when", "Period", None), ("p", "Left per decision", form), *ends(form))
    layers = band(rows, time.x(), y("p", axis, scale={"zero": True}), tip, 0.16)
    return spec([*partial_period(data), *layers], 240)


def words(data: Data) -> Said:
    """Return the title, which states the current amount and how it has changed, and the caption."""
    foregone = data["foregone"]
    now, first = amount(data, foregone["p"]), foregone["first"]
    total = amount(data, foregone["total"])
    if data["rewards"]["shares"]:
        total = several(foregone["total"], data["unit"])
    is_same = (
        first is None or foregone["lo"] <= first <= foregone["hi"] or amount(data, first) == now
    )
    if is_same:
        title = f"{now} per decision is left on the table"
    else:
        verb = "fell" if foregone["p"] < first else "rose"
        title = f"What is left on the table {verb} from {amount(data, first)} to {now} per decision"
    return Said(
        title,
        "Expected reward of the best action of each request minus that of the chosen action, "
        f"according to a model fitted to all decisions: about {total} in total. 95% band.",
    )


FOREGONE = Panel(
    "foregone", "Left on the table", collect, chart, words,
    columns={"when": "period", **BAND},
    rows=lambda data: data["foregone"] and data["foregone"]["days"],
    none="This needs 30 rewards, stored requests, and at most 400 features.",
)  # fmt: skip
