"""What the bandit earns, in one sentence and six numbers: the top of a report."""

from __future__ import annotations

from typing import Any

from belated.evaluation.lifts import earned, lift
from belated.exceptions import NotEvaluable
from belated.report.facts import Facts, around, if_known, interval, short
from belated.report.html import bars, line, tile, whisker
from belated.report.panels.pending import pending_now
from belated.report.text import Data, amount, several, signed, whole


def collect(facts: Facts) -> dict[str, Any]:
    """The numbers on top: the lift of :func:`belated.evaluation.lifts.lift`, or what is earned."""
    own, held, least = facts.own, facts.held, facts.least
    found: dict[str, Any] = {
        "decisions": len(facts.table),
        "bandit": int(own.sum()),
        "holdout": int(held.sum()),
        "baseline": facts.table.baseline,
        "voided": len(facts.everything) - len(facts.table),
        "rewards": int(facts.table.arrived.sum()),
        "reward_sum": short(float(facts.table.value[facts.table.arrived].sum())),
    }
    try:
        compared = lift(facts.table)
    except NotEvaluable as refused:
        found["no_lift"] = str(refused)
        if (alone := if_known(earned, facts.table.select(own), "bandit")) is not None:
            found["per_decision"] = around(alone.value, alone.error, least)
        return found
    count = compared.bandit.decisions
    found["per_decision"] = around(compared.bandit.value, compared.bandit.error, least)
    found["per_decision_holdout"] = around(compared.holdout.value, compared.holdout.error, least)
    difference = compared.difference, compared.low, compared.high
    found["difference"] = interval(*difference)
    found["extra"] = interval(*(count * one for one in difference))
    found["chance"] = short(compared.p)
    found["estimand"] = compared.estimand
    if compared.relative is not None:
        found["lift"] = interval(*compared.relative)
    if compared.always is not None:
        found["always"] = interval(*compared.always)
    return found


def complete(facts: Facts, data: Data) -> dict[str, Any]:
    """What the headline takes from other panels: what is pending, and small lines."""
    calendar, table, period = facts.calendar, facts.table, facts.period
    trailing = [
        short(facts.ratio(facts.own & (period <= n) & (period > n - 3))[0])
        for n in range(calendar.count)
    ]
    left = data["foregone"]
    spark = {
        "decisions": calendar.counts(table.made).astype(int).tolist(),
        "rewards": calendar.counts(table.rewarded[table.arrived]).astype(int).tolist(),
        "pending": [row["n"] for row in data["pending"]][::4],
        "per_decision": trailing,
        "foregone": [] if left is None else [row["p"] for row in left["days"]],
    }
    return {"pending": pending_now(facts), "spark": spark}


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
        return (
            "The bandit earns ",
            f"{amount(data, per['p'])} per decision",
            f" ({_between(data, per)}). Without a holdout nobody knows what it earns beyond a plain"
            " rule.",
        )
    extra = head["extra"]
    noun = "reward" if data["rewards"]["shares"] else "in reward"
    between = f"({whole(extra['lo'])} to {whole(extra['hi'])})"
    if extra["lo"] <= 0.0 <= extra["hi"]:
        return (
            f"Whether the bandit earns more than {_baseline(head)} is ",
            "not known yet",
            f": {several(extra['p'], noun) if noun == 'reward' else whole(extra['p'])}"
            f" more {between}.",
        )
    more = "more" if extra["p"] > 0 else "less"
    count = whole(abs(extra["p"]))
    many = f"{count} rewards {more}" if noun == "reward" else f"{count} {more}"
    between = f"({whole(abs(extra['lo']))} to {whole(abs(extra['hi']))})"
    return "The bandit earned about ", many, f" than {_baseline(head)} would have {between}."


def tiles(data: Data) -> str:
    """The numbers, each with a small picture."""
    head, spark = data["headline"], data["headline"]["spark"]
    lift, per, left = head.get("lift"), head.get("per_decision"), data["foregone"]
    said = "no holdout" if not head["holdout"] else "too few rewards in the holdout"
    first = tile("Lift over holdout", "not known", [said], "", "hero")
    if lift:
        kind = "good" if lift["lo"] > 0 else "bad" if lift["hi"] < 0 else ""
        between = f"95 % between {signed(lift['lo'])} and {signed(lift['hi'])}"
        notes = [between, f"the holdout is {_baseline(head)}"]
        picture = whisker(lift["lo"], lift["p"], lift["hi"])
        first = tile("Lift over holdout", signed(lift["p"]), notes, picture, f"hero {kind}")
    earned = tile("Reward per decision", "not known", ["fewer than 10 rewards"], "")
    if per:
        notes = [_between(data, per)]
        if "per_decision_holdout" in head:
            notes.append(f"holdout {amount(data, head['per_decision_holdout']['p'])}")
        picture = line(spark["per_decision"])
        earned = tile("Reward per decision", amount(data, per["p"]), notes, picture)
    made = [f"{whole(head['holdout'])} in the holdout", f"{whole(head['voided'])} voided"]
    late = next(row["n"] for row in data["quality"]["rows"] if row["kind"] == "late")
    lately = f"{whole(data['health']['rewards_last_day'])} in the last 24 h"
    came = [lately, f"{whole(late)} after the window"]
    to_come = []
    if data["forecast"]:
        total = data["forecast"]["total"]
        between = f"({whole(total['lo'])} to {whole(total['hi'])})"
        to_come = [f"{several(total['n'], 'reward')} to come", between]
    missed = tile("Left on the table", "not known", ["see below"], "")
    if left:
        notes = [_between(data, left), "per decision, lately"]
        missed = tile("Left on the table", amount(data, left["p"]), notes, line(spark["foregone"]))
    decisions = tile("Decisions", whole(head["decisions"]), made, bars(spark["decisions"]))
    rewards = tile("Rewards", whole(head["rewards"]), came, bars(spark["rewards"]))
    pending = tile("Pending", whole(head["pending"]["n"]), to_come, line(spark["pending"]))
    return first + earned + decisions + rewards + pending + missed


def _baseline(head: dict[str, Any]) -> str:
    """What the holdout shows."""
    rule = head["baseline"]
    if rule is None:
        return "its holdout rule"
    named = {"uniform": "a random choice", "first": "the first action"}
    return named.get(rule, f"“{rule}”")


def _between(data: Data, interval: dict[str, Any]) -> str:
    return f"{amount(data, interval['lo'])} to {amount(data, interval['hi'])}"
