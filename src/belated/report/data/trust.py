"""Can the model be trusted? Calibration, what is left on the table, exploration, coefficients."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from belated.evaluation.requests import read_offers
from belated.exceptions import BelatedError
from belated.report.data.auditor import Auditor
from belated.report.data.calendar import RECENT
from belated.report.data.facts import Facts
from belated.report.data.matched import Matched
from belated.report.data.numbers import Z, short

#: Groups of predictions; decisions whose other actions are looked at; draws of the auditor;
#: coefficients.
GROUPS, OFFERS, DRAWS, SHOWN = 10, 12_000, 80, 12
#: Rewards without which nothing is said of calibration.
FEW = 30


def calibration(facts: Facts, matched: Matched) -> dict[str, Any] | None:
    """Predicted means of recent decisions against what they came to."""
    period, mean = facts.period, facts.table.mean
    recent = facts.own & (period >= facts.calendar.count - 2 * RECENT)
    if (facts.table.arrived & recent).sum() < FEW:
        return None
    edges = np.quantile(mean[recent], np.linspace(0, 1, GROUPS + 1))
    group = np.clip(np.searchsorted(edges, mean, side="right") - 1, 0, GROUPS - 1)
    bins = []
    for n in range(GROUPS):
        here = recent & (group == n)
        if here.any():
            row = matched.row(here)
            value = row.pop("p")
            if value is not None:
                predicted = short(float(mean[here].mean()))
                bins.append({"predicted": predicted, "observed": value, **row})
    observed, error = matched.ratio(recent)
    if not math.isfinite(observed) or observed == 0.0:
        return None
    weeks = []
    for first in range(0, facts.calendar.count, RECENT):
        here = facts.own & (period >= first) & (period < first + RECENT)
        value = matched.ratio(here)[0] if here.any() else math.nan
        if math.isfinite(value) and value != 0.0:
            off = short(float(mean[here].mean()) / value - 1.0, 4)
            weeks.append({"t": facts.calendar.ms(first), "bias": off})
    return {
        "bins": bins,
        "bias": short(float(mean[recent].mean()) / observed - 1.0, 4),
        "bias_se": short(error / abs(observed), 4),
        "weeks": weeks,
    }


def foregone(facts: Facts, auditor: Auditor | None) -> dict[str, Any] | None:
    """The best action of each request by the auditor, less the one that was chosen."""
    own = np.flatnonzero(facts.own)
    if auditor is None or len(own) == 0:
        return None
    some = own[np.unique(np.linspace(0, len(own) - 1, OFFERS).astype(int))]
    table = facts.table.select(some)
    try:
        kept, offers = read_offers(facts.evaluation.journal, table, facts.evaluation.features)
    except BelatedError:  # none was kept, or not how it was chosen
        return None
    rows = offers.rows.astype(np.float64)
    period = facts.period[some][kept]
    count = np.bincount(period, minlength=facts.calendar.count)

    def gaps(theta: Any) -> Any:
        means = auditor.means(rows, theta)
        return np.maximum.reduceat(means, offers.starts) - means[offers.chosen]

    best = gaps(auditor.theta)
    drawn = []
    for theta in auditor.draws(DRAWS):
        drawn.append(np.bincount(period, weights=gaps(theta), minlength=len(count)))
    sums = np.array(drawn)
    found = np.bincount(period, weights=best, minlength=len(count))
    days = []
    for n in np.flatnonzero(count).tolist():
        low, high = np.quantile(sums[:, n] / count[n], [0.025, 0.975])
        row = {"p": found[n] / count[n], "lo": low, "hi": high}
        days.append(
            {"t": facts.calendar.ms(n)} | {name: short(value, 4) for name, value in row.items()}
        )
    start = facts.calendar.recent
    lately, made = sums[:, start:].sum(axis=1), max(int(count[start:].sum()), 1)
    low, high = np.quantile(lately / made, [0.025, 0.975])
    first = count[:3].sum()
    return {
        "days": days,
        "p": short(float(found[start:].sum()) / made, 4),
        "lo": short(low, 4),
        "hi": short(high, 4),
        "first": short(float(found[:3].sum() / first), 4) if first else None,
        "total": short(float(best.mean()) * len(own)),
    }


def explore(facts: Facts) -> list[dict[str, Any]]:
    """Effective numbers of actions: of one choice, and of a period's decisions."""
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
        alone = math.exp(float(surprise[here].mean()))
        when = facts.calendar.ms(n)
        rows.append({"t": when, "what": "in use overall", "n": short(overall, 4)})
        rows.append({"t": when, "what": "for one decision", "n": short(alone, 4)})
    return rows


def coefficients(facts: Facts, auditor: Auditor | None) -> list[dict[str, Any]]:
    """The coefficients furthest from zero by their standard errors, with the auditor's."""
    features = facts.evaluation.features
    names = None if features is None else features.names
    estimate = facts.estimate
    if names is None or estimate is None or len(estimate.mean) != len(names):
        return []
    errors = np.sqrt(np.diag(estimate.covariance))
    rows = []
    for place, name in enumerate(names):
        if name.endswith("intercept"):
            continue
        action, _, column = name.rpartition(": ")
        theta, error = float(estimate.mean[place]), float(errors[place])
        row: dict[str, Any] = {
            "name": column,
            "action": action,
            "theta": short(theta, 4),
            "lo": short(theta - Z * error, 4),
            "hi": short(theta + Z * error, 4),
            "z": short(theta / error, 3),
        }
        if auditor is not None and place < len(auditor.theta):
            row["audit"] = short(float(auditor.theta[place]), 4)
        rows.append(row)
    rows.sort(key=lambda row: -abs(row["z"] or 0.0))
    return rows[:SHOWN]
