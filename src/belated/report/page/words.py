"""What each panel says: a message from its numbers, and how they were computed. Plain text."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

from belated.report.page.text import (
    Data,
    amount,
    day,
    listed,
    percent,
    periods,
    several,
    span,
    whole,
)

#: Effective number of actions per decision below which the bandit is nearly certain.
CERTAIN = 1.2


class Said(NamedTuple):
    """What a panel says.

    Attributes:
        title: its message.
        definition: what the numbers are.
        why: what may explain them, if something does.
    """

    title: str
    definition: str
    why: str = ""


def verdict(data: Data) -> tuple[str, str, str]:
    """The sentence on top; its second part is the one that counts."""
    head = data["headline"]
    if "extra" not in head:
        if "per_decision" not in head:
            return (
                f"{several(head['decisions'], 'decision')} so far, with ",
                several(head["rewards"], "reward"),
                ": too few to say what the bandit earns.",
            )
        per = head["per_decision"]
        between = f"{amount(data, per['lo'])} to {amount(data, per['hi'])}"
        return (
            "The bandit earns ",
            f"{amount(data, per['p'])} per decision",
            f" ({between}). Without a holdout nobody knows what it earns beyond a plain rule.",
        )
    extra = head["extra"]
    noun = "reward" if data["rewards"]["shares"] else "in reward"
    between = f"({whole(extra['lo'])} to {whole(extra['hi'])})"
    if extra["lo"] <= 0.0 <= extra["hi"]:
        return (
            "Whether the bandit earns more than its holdout is ",
            "not known yet",
            f": {several(extra['p'], noun) if noun == 'reward' else whole(extra['p'])}"
            f" more {between}.",
        )
    more = "more" if extra["p"] > 0 else "less"
    count = whole(abs(extra["p"]))
    many = f"{count} rewards {more}" if noun == "reward" else f"{count} {more}"
    between = f"({whole(abs(extra['lo']))} to {whole(abs(extra['hi']))})"
    return "The bandit earned about ", many, f" than its holdout rule would have {between}."


def earn(data: Data) -> Said:
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


def per_action(data: Data) -> Said:
    """Which action earns."""
    rows = data["per_action"]
    own = {row["action"]: row["p"] for row in rows if row["arm"] == "Bandit"}
    held = {row["action"]: row["p"] for row in rows if row["arm"] == "Holdout"}
    title = "No action has enough rewards where the bandit shows it"
    if own:
        best = max(own, key=lambda name: own[name])
        title = f"{best} earns the most, {amount(data, own[best])}"
    both = [name for name in own if name in held]
    if both and (gains := max(both, key=lambda name: own[name] - held[name])):
        gain = own[gains] - held[gains]
        if gain > 0 and len(both) > 1:
            same = " and" if gains == best else f"; {gains}"
            title += f"{same} gains the most from being targeted"
    definition = "Reward per decision by action, with 95 % intervals."
    if held:
        definition += (
            " Where the bandit shows it, it is shown to those it suits; on the holdout, to anyone."
        )
    else:
        definition += (
            " The bandit shows an action to those it suits: without a holdout nobody knows "
            "what it earns elsewhere."
        )
    return Said(title, definition)


def share(data: Data) -> Said:
    """Which action is shown."""
    last: dict[str, float] = {}
    for row in data["share"]:
        last[row["action"]] = row["share"]
    top = sorted(last, key=lambda name: -last[name])[:2]
    total = sum(last[name] for name in top)
    verb = "take" if len(top) > 1 else "takes"
    return Said(
        f"{listed(top)} now {verb} {percent(total, 0)} of the decisions",
        f"Share of the bandit's decisions per {data['period']}, without the holdout; "
        f"numbers: the last.",
    )


def segments(data: Data) -> Said:
    """Who is shown what."""
    best = max(data["segments"], key=lambda row: (row["share"], row["n"]))
    return Said(
        f"{best['segment'][:1].upper()}{best['segment'][1:]}: {percent(best['share'], 0)} "
        f"see {best['action']}",
        f"Share of a segment's decisions in the last {periods(data, 7)}, by parts of the "
        f"context that are 0 or 1.",
    )


def delay(data: Data) -> Said:
    """When rewards come."""
    found = data["delay"]
    half, most = found["median"], found["p90"]
    title = f"{several(found['n'], 'reward')} are in: too few to know when half are"
    if half is not None:
        title = f"Half of the rewards are in after {span(half)}"
        if most is not None:
            title += f", nine in ten after {span(most)}"
    kind = (
        "Share of the rewards that come at all, by time since the decision; corrected for "
        "those too young to be seen"
        if data["rewards"]["kind"] != "Explicit"
        else "Share of decisions whose reward is in, by time since the decision; pending ones "
        "count for as long as they are old"
    )
    return Said(title, f"{kind}. 95 % band, {several(found['n'], 'reward')}.")


def forecast(data: Data) -> Said:
    """What is still to come."""
    total, soon = data["forecast"]["total"], data["forecast"]["soon"]
    verb = "is" if round(total["n"]) == 1 else "are"
    return Said(
        f"{several(total['n'], 'reward')} {verb} still to come, {whole(soon['n'])} in the "
        f"next {periods(data, 3)}",
        f"Rewards per {data['period']}: arrived, and expected of decisions already made "
        f"({whole(total['lo'])} to {whole(total['hi'])} in all, 95 %).",
    )


def cohorts(data: Data) -> Said:
    """How decisions ripen."""
    out = (data.get("feed") or {}).get("outages")
    title = "Decisions of all periods ripen alike"
    if out:
        title = f"Decisions before {day(out[-1]['from'])} had to wait for their rewards"
    else:
        off = _furthest(data["cohorts"])
        if off is not None:
            title = (
                f"Decisions of {day(off[0])} are furthest from what is expected: "
                f"{percent(off[1])} for {percent(off[2])}"
            )
    return Said(
        title,
        f"Share of the decisions of each {data['period']} that have a reward, by age. "
        f"Dashed: as the delay curve leads one to expect.",
    )


def _furthest(found: Data) -> tuple[int, float, float] | None:
    expected = {row["age"]: row["share"] for row in found["expected"]}
    rows = [row for row in found["lines"] if expected.get(row["age"])]
    if not rows:
        return None
    row = max(rows, key=lambda one: abs(one["share"] - expected[one["age"]]))
    return row["cohort"], row["share"], expected[row["age"]]


def pending(data: Data) -> Said:
    """What is pending."""
    now, window = data["headline"]["pending"], data["rewards"]["window_days"]
    verb = "is" if now["n"] == 1 else "are"
    title = f"{several(now['n'], 'decision')} {verb} pending"
    if now["n"]:
        title += f", the oldest for {span(now['oldest'])}"
    inside = "" if window is None else f" of {span(window)}"
    return Said(title, f"Decisions inside their window{inside} without a reward.")


def calibration(data: Data) -> Said:
    """Whether predictions are right."""
    found = data["calibration"]
    ratio = 1.0 + found["bias"]
    if abs(found["bias"]) > 3 * found["bias_se"]:
        title = f"Predictions are {ratio:.2g} times what is observed"
    else:
        title = f"Predictions agree with what is observed: {ratio:.2f} times"
    weeks = ", ".join(f"{1 + row['bias']:.1f}" for row in found["weeks"])
    why = ""
    if data["rewards"]["kind"] == "DefaultAfter" and ratio > 1.1:
        window = span(data["rewards"]["window_days"])
        why = (
            f"Rewards are learned when they come, their absence only after {window}: of its recent "
            "decisions the model has seen too many successes."
        )
    return Said(
        title,
        f"Predicted mean at the choice against reward per decision, ten groups of the last "
        f"{periods(data, 14)}. "
        f"Per {periods(data, 7)}: {weeks} times.",
        why if abs(found["bias"]) > 3 * found["bias_se"] else "",
    )


def foregone(data: Data) -> Said:
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


def explore(data: Data) -> Said:
    """How much is tried."""
    last = {row["what"]: row["n"] for row in data["explore"]}
    choices = last["for one decision"]
    title = f"The bandit chooses between {choices:.1f} actions per decision"
    if choices < CERTAIN:
        title = "The bandit is nearly certain about each decision"
    return Said(
        f"{title}; {last['in use overall']:.1f} of {len(data['actions'])} actions are in use",
        "Effective number of actions: the exponential of the entropy, of one choice by its "
        "propensity and of all choices.",
    )


def coefficients(data: Data) -> Said:
    """What the model has learned."""
    best = data["coefficients"][0]
    whose = f" of {best['action']}" if best["action"] else ""
    effect = f"changes the reward{whose} by {best['theta']:+.3g}".replace("-", "−")
    if data["family"] in ("Bernoulli", "Poisson"):
        what = "odds" if data["family"] == "Bernoulli" else "rate"
        theta = best["theta"]
        factor = f"{math.exp(theta):.1f}" if theta < math.log(1_000) else "more than 1,000"
        effect = f"multiplies the {what}{whose} by {factor}"
    return Said(
        f"Clearest effect: “{best['name']}” {effect}",
        "The coefficients furthest from zero by their standard errors, with 95 % "
        "intervals: as the bandit uses them, and as a fit of all decisions sees them.",
    )


def feed(data: Data) -> Said:
    """Whether rewards come."""
    found = data["feed"]
    gaps = found["outages"]
    title = (
        f"{several(sum(row['n'] for row in found['bins']), 'reward message')} came without a gap"
    )
    if gaps:
        longest = max(gaps, key=lambda one: one["hours"])
        title = (
            f"No reward reached the journal for {span(longest['hours'] / 24)} from "
            f"{day(longest['from'])}"
        )
    return Said(
        title,
        f"Rewards as the journal took them, per {span(found['step'] / 86_400_000)}; shaded: "
        f"gaps too long for chance.",
    )


def lag(data: Data) -> Said:
    """How late reports are."""
    found = data["feed"]
    title = f"A reward is recorded {span(found['lag_p50'] / 1440)} after it happened"
    worst = max(row["p99"] for row in found["lag"])
    if worst > 3 * found["lag_p50"]:
        title += f", at worst {span(worst / 1440)}"
    return Said(
        title,
        f"Time from the event to the journal per {data['period']}: median and 99th "
        f"percentile, log scale.",
    )


#: What each kind of event is called, and what became of it.
KINDS = {
    "duplicate": ("Told twice", "the same reward again; counted once"),
    "conflict": ("Contradicted", "another value for the same part and revision; the first counts"),
    "late": ("After the window", "learned all the same"),
    "revised": ("Corrected", "a further part or a higher revision"),
    "unmatched": ("No such decision", "no decision of this id was known when it came"),
    "expired": ("After the retention", "ignored"),
    "invalid": ("Invalid", "outside what a reward can be, or one too many; ignored"),
    "voided": ("Voided", "decisions never carried out"),
}


def quality(data: Data) -> Said:
    """What needed care."""
    found = data["quality"]
    rows = [row for row in found["rows"] if row["n"] and row["kind"] != "voided"]
    total = sum(row["n"] for row in rows)
    if not total:
        title = f"None of {several(found['rewards_told'], 'reward message')} needed care"
    else:
        top = sorted(rows, key=lambda row: -row["n"])[:2]
        names = [KINDS[row["kind"]][0].lower() for row in top]
        title = (
            f"{percent(total / found['rewards_told'])} of "
            f"{several(found['rewards_told'], 'reward message')} "
            f"needed care: most often “{'” and “'.join(names)}”"
        )
    return Said(title, f"What the journal made of each message; bars: per {data['period']}.")


def missing(data: Data, panel: str) -> str:
    """Why a panel has nothing to show."""
    return {
        "segments": "The requests that were kept have no context with parts that are 0 or 1.",
        "delay": "No reward has come yet.",
        "forecast": "A forecast needs 20 rewards.",
        "cohorts": "No reward has come yet.",
        "calibration": f"The last {periods(data, 14)} have fewer than 30 rewards.",
        "foregone": "This needs 30 rewards, kept requests, and rows of at most 400 numbers.",
        "coefficients": "The journal does not name its features, or what the bandit has "
        "learned was not read.",
        "feed": "No reward has come yet.",
        "lag": "No reward has come yet.",
        "per_action": "No action has 10 rewards yet.",
    }.get(panel, "There is nothing to show yet.")


PANELS: dict[str, Any] = {
    "earn": earn, "per_action": per_action, "share": share, "segments": segments, "delay": delay,
    "forecast": forecast, "cohorts": cohorts, "pending": pending, "calibration": calibration,
    "foregone": foregone, "explore": explore, "coefficients": coefficients,
    "feed": feed, "lag": lag,
}  # fmt: skip
