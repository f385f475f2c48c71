"""What is left on the table: the best action of each request, less the one chosen."""

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
    spec,
    tips,
    value_format,
    y,
)

#: Decisions whose other actions are looked at; draws of the auditor.
OFFERS, DRAWS = 12_000, 80


def collect(facts: Facts) -> dict[str, Any] | None:
    """The best action of each request by the auditor, less the one that was chosen."""
    own, auditor = np.flatnonzero(facts.own), facts.auditor
    if auditor is None or len(own) == 0:
        return None
    some = own[np.unique(np.linspace(0, len(own) - 1, OFFERS).astype(int))]
    table = facts.table.select(some)
    try:
        kept, offers = facts.log.offers(table)
    except BelatedError:  # none was kept, or not how it was chosen
        return None
    rows = offers.design
    period = facts.period[some][kept]
    count = np.bincount(period, minlength=facts.calendar.count)

    def gaps(theta: Any) -> Any:
        means = auditor.means(rows, theta)
        return np.maximum.reduceat(means, offers.starts) - means[offers.chosen]

    best = gaps(auditor.theta)
    found, *drawn = (
        np.bincount(period, weights=gap, minlength=len(count))
        for gap in (best, *map(gaps, auditor.draws(DRAWS)))
    )
    sums = np.array(drawn)
    days = []
    for n in np.flatnonzero(count).tolist():
        ends = np.quantile(sums[:, n] / count[n], [0.025, 0.975])
        days.append({"t": facts.calendar.ms(n), **interval(found[n] / count[n], *ends, digits=4)})
    start = facts.calendar.recent
    lately, made = sums[:, start:].sum(axis=1), max(int(count[start:].sum()), 1)
    recent = float(found[start:].sum()) / made
    first = count[:3].sum()
    return {
        "days": days,
        **interval(recent, *np.quantile(lately / made, [0.025, 0.975]), digits=4),
        "first": short(float(found[:3].sum() / first), 4) if first else None,
        "total": short(float(best.mean()) * len(own)),
    }


def chart(data: Spec) -> Spec:
    """What is left on the table by period."""
    time, form = TimeAxis(data), value_format(data).replace("1%", "2%")
    axis = axis_format(data)
    rows = time.named(data["foregone"]["days"])
    tip = tips(("when", "At", None), ("p", "Left per decision", form), *ends(form))
    return spec(band(rows, time.x(), y("p", axis), tip, 0.16), 240)


def words(data: Data) -> Said:
    """What is left on the table."""
    found = data["foregone"]
    now, first = amount(data, found["p"]), found["first"]
    if first is None:
        title = f"{now} per decision is left on the table"
    else:
        verb = "fell" if found["p"] < first else "rose"
        title = f"What is left on the table {verb} from {amount(data, first)} to {now} per decision"
    return Said(
        title,
        f"The best action of each request by a fit of all decisions, less the one chosen: "
        f"about {several(found['total'], 'reward')} in all. 95 % band.",
    )


FOREGONE = Panel(
    "foregone", collect, chart, words,
    columns={"when": "at", **BAND},
    rows=lambda data: data["foregone"] and data["foregone"]["days"],
    none="This needs 30 rewards, kept requests, and rows of at most 400 numbers.",
)  # fmt: skip
