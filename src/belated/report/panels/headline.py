"""The top of a report: what the bandit earns, in one sentence and six tiles."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from belated.evaluation.lifts import Lift, earned, lift
from belated.exceptions import NotEvaluable
from belated.report.facts import DAY, Facts, around, if_known, interval, short
from belated.report.html import bars, line, tile, whisker
from belated.report.panels.pending import pending_now
from belated.report.text import Data, amount, gain, plural, several, signed, whole


def collect(facts: Facts) -> dict[str, Any]:
    """Compute the numbers at the top, from :func:`belated.evaluation.lifts.lift`."""
    own, holdout, bounds = facts.own, facts.held, facts.bounds
    table, as_of = facts.table, facts.table.as_of
    window, arrived = table.rewards.window_us, table.arrived
    figures: dict[str, Any] = {
        "decisions": len(table),
        "bandit": int(own.sum()),
        "holdout": int(holdout.sum()),
        "baseline": table.baseline,
        "voided": len(facts.everything) - len(table),
        "rewards": int(arrived.sum()),
        "rewards_last_day": int((arrived & (table.rewarded > as_of - DAY)).sum()),
        "rewards_late": 0 if window is None else int((arrived & (table.delay > window)).sum()),
        "reward_sum": short(float(table.value[arrived].sum())),
    }
    try:
        compared = lift(table)
    except NotEvaluable as refused:
        figures["no_lift"] = str(refused)
        if (estimate := if_known(earned, table.select(own), "bandit")) is not None:
            figures["per_decision"] = around(estimate.value, estimate.error, bounds)
        return figures
    count = compared.bandit.decisions
    figures["per_decision"] = around(compared.bandit.value, compared.bandit.error, bounds)
    figures["per_decision_holdout"] = around(compared.holdout.value, compared.holdout.error, bounds)
    most = bounds[1] - bounds[0]  # the largest possible difference
    ends = np.clip((compared.difference, compared.low, compared.high), -most, most).tolist()
    figures["difference"] = interval(*ends)
    figures["extra"] = interval(*(count * end for end in ends))
    figures["chance"] = short(compared.p)
    figures["estimand"] = compared.estimand
    if (relative := relative_lift(compared)) is not None:
        figures["lift"] = interval(*relative)
    if compared.confidence_sequence is not None:
        figures["confidence_sequence"] = interval(*compared.confidence_sequence)
    return figures


def relative_lift(found: Lift) -> tuple[float, float, float] | None:
    """Return the lift as a share of the holdout's mean, with its interval.

    Fieller's interval contains every ratio that the interval of the difference does not rule out,
    at the same quantile, so either both intervals contain zero or neither does.

    Args:
        found: the difference between bandit and holdout.

    Returns:
        The ratio minus 1 and the ends of its interval; None if a mean is not above 0, or if the
        holdout's mean is too uncertain for a bounded interval.
    """
    own, holdout = found.bandit, found.holdout
    error = math.hypot(own.error, holdout.error)
    if own.value <= 0.0 or holdout.value <= 0.0:
        return None
    ratio, ends = own.value / holdout.value, []
    for sign, end in ((-1.0, found.low), (1.0, found.high)):
        z = abs(end - found.difference) / error if error else 0.0
        square = holdout.value**2 - (z * holdout.error) ** 2
        if square <= 0.0:
            return None
        spread = (holdout.value * own.error) ** 2 + (own.value * holdout.error) ** 2
        root = z * math.sqrt(max(spread - (z * own.error * holdout.error) ** 2, 0.0))
        ends.append(max((own.value * holdout.value + sign * root) / square, 0.0) - 1.0)
    return ratio - 1.0, ends[0], ends[1]


def complete(facts: Facts, data: Data) -> dict[str, Any]:
    """Collect the parts of the headline that come from panels: pending decisions and sparklines."""
    calendar, table, period = facts.calendar, facts.table, facts.period
    trailing = [
        facts.row(facts.own & (period <= n) & (period > n - 3))["p"] for n in range(calendar.count)
    ]
    foregone = data["foregone"]
    spark = {
        "decisions": calendar.counts(table.made).astype(int).tolist(),
        "rewards": calendar.counts(table.rewarded[table.arrived]).astype(int).tolist(),
        "pending": [row["n"] for row in data["pending"]][::4],
        "per_decision": trailing,
        "foregone": [] if foregone is None else [row["p"] for row in foregone["days"]],
    }
    return {"pending": pending_now(facts), "spark": spark}


def verdict(data: Data) -> tuple[str, str, str]:
    """Return the top sentence of the report in three parts; the second part is emphasized."""
    head = data["headline"]
    if "extra" not in head:
        if "per_decision" not in head:
            return (
                f"{several(head['decisions'], 'decision')} so far, with ",
                several(head["rewards"], data["unit"]),
                ": too early to tell what the bandit earns.",
            )
        per = head["per_decision"]
        reason = "without a holdout"
        if head["holdout"]:
            reason = f"yet: the holdout has too few {plural(data['unit'])}"
        return (
            "The bandit earns ",
            f"{amount(data, per['p'])} per decision",
            f" ({_between(data, per)}). What it adds is not known {reason}.",
        )
    extra = head["extra"]
    than = f" than {_baseline(head)} would have"
    if extra["lo"] <= 0.0 <= extra["hi"]:
        low, high = gain(data, extra["lo"], "less"), gain(data, extra["hi"], "more")
        if data["rewards"]["shares"]:
            low = low.rpartition(" ")[0]  # show the unit only once
        return "Too early to tell: ", f"between {low} and {high}", f"{than} earned."
    word = "more" if extra["p"] > 0 else "less"
    low, high = sorted(abs(extra[end]) for end in ("lo", "hi"))
    formatted = whole if data["rewards"]["shares"] else lambda end: amount(data, end)
    between = f"({formatted(low)} to {formatted(high)})"
    return "The bandit earned about ", gain(data, extra["p"], word), f"{than} {between}."


def tiles(data: Data) -> str:
    """Return the tiles as HTML."""
    head, spark = data["headline"], data["headline"]["spark"]
    lift, per, foregone = head.get("lift"), head.get("per_decision"), data["foregone"]
    units, partial = plural(data["unit"]), data["partial"] is not None
    reason = "no holdout" if not head["holdout"] else f"too few {units} in the holdout"
    first = tile("Lift over holdout", "not known", [reason], "", "hero")
    if lift:
        kind = "good" if lift["lo"] > 0 else "bad" if lift["hi"] < 0 else ""
        between = f"95% interval: {signed(lift['lo'])} to {signed(lift['hi'])}"
        notes = [between, f"the holdout is {_baseline(head)}"]
        picture = whisker(lift["lo"], lift["p"], lift["hi"])
        first = tile("Lift over holdout", signed(lift["p"]), notes, picture, f"hero {kind}")
    earned = tile("Reward per decision", "not known", [f"fewer than 10 {units}"], "")
    if per:
        notes = [_between(data, per)]
        if "per_decision_holdout" in head:
            notes.append(f"holdout {amount(data, head['per_decision_holdout']['p'])}")
        picture = line(spark["per_decision"])
        earned = tile("Reward per decision", amount(data, per["p"]), notes, picture)
    decision_notes = [f"{whole(head['holdout'])} in the holdout", f"{whole(head['voided'])} voided"]
    lately = f"{whole(head['rewards_last_day'])} in the last 24 h"
    reward_notes = [lately, f"{whole(head['rewards_late'])} after the window"]
    to_come = []
    if data["forecast"]:
        total = data["forecast"]["total"]
        between = f"({whole(total['lo'])} to {whole(total['hi'])})"
        to_come = [f"{several(total['n'], data['unit'])} still to come", between]
    missed = tile("Left on the table", "not known", ["see below"], "")
    if foregone:
        notes = [_between(data, foregone), "per recent decision"]
        missed = tile(
            "Left on the table", amount(data, foregone["p"]), notes, line(spark["foregone"])
        )
    bar = bars(spark["decisions"], partial)
    decisions = tile("Decisions", whole(head["decisions"]), decision_notes, bar)
    bar = bars(spark["rewards"], partial)
    rewards = tile(units.capitalize(), whole(head["rewards"]), reward_notes, bar)
    pending = tile(
        "Pending decisions", whole(head["pending"]["n"]), to_come, line(spark["pending"])
    )
    return first + earned + decisions + rewards + pending + missed


def _baseline(head: dict[str, Any]) -> str:
    """Return the name of the holdout's baseline."""
    rule = head["baseline"]
    if rule is None:
        return "its holdout rule"
    named = {"uniform": "a random choice", "first": "the first action"}
    return named.get(rule, f"“{rule}”")


def _between(data: Data, interval: dict[str, Any]) -> str:
    return f"{amount(data, interval['lo'])} to {amount(data, interval['hi'])}"
