"""Does it earn? Lift, reward per decision, by action, and who is shown what."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from belated.evaluation import DecisionTable, GroupValue, earned, lift
from belated.evaluation.requests import read_requests
from belated.exceptions import NotEvaluable
from belated.ledger import KeptRequest
from belated.report.data.calendar import RECENT
from belated.report.data.facts import Facts
from belated.report.data.matched import Matched
from belated.report.data.numbers import around, interval, short

#: Actions that are shown one by one; segments by so many columns of the context, and by so many of
#: the recent decisions.
ACTIONS, COLUMNS, RECENT_REQUESTS = 12, 2, 4_000
#: Share of a usual period's decisions below which the last one says nothing of shares.
BEGUN = 0.1


def headline(facts: Facts, matched: Matched) -> dict[str, Any]:
    """The numbers on top: the lift of :func:`belated.evaluation.lift`, or what is earned."""
    own, held = facts.own, facts.held
    found: dict[str, Any] = {
        "decisions": len(facts.table),
        "bandit": int(own.sum()),
        "holdout": int(held.sum()),
        "voided": len(facts.everything) - len(facts.table),
        "rewards": int(facts.table.arrived.sum()),
        "reward_sum": short(float(facts.table.value[facts.table.arrived].sum())),
    }
    try:
        compared = lift(facts.table)
    except NotEvaluable as refused:
        found["no_lift"] = str(refused)
        if (alone := _earned(facts.table.select(own), "bandit")) is not None:
            found["per_decision"] = around(alone.value, alone.error, matched.least)
        return found
    count = compared.bandit.decisions
    found["per_decision"] = around(compared.bandit.value, compared.bandit.error, matched.least)
    found["per_decision_holdout"] = around(
        compared.holdout.value, compared.holdout.error, matched.least
    )
    found["difference"] = interval(compared.difference, compared.low, compared.high)
    found["extra"] = interval(
        count * compared.difference, count * compared.low, count * compared.high
    )
    found["chance"] = short(compared.p)
    found["estimand"] = compared.estimand
    if compared.relative is not None:
        found["lift"] = interval(*compared.relative)
    if compared.always is not None:
        found["always"] = interval(*compared.always)
    return found


def _earned(table: DecisionTable, name: str) -> GroupValue | None:
    try:
        return earned(table, name)
    except NotEvaluable:
        return None


def _arms(facts: Facts) -> list[tuple[str, Any]]:
    return [
        (name, mask)
        for name, mask in (("Bandit", facts.own), ("Holdout", facts.held))
        if mask.any()
    ]


def earn(facts: Facts, matched: Matched) -> list[dict[str, Any]]:
    """Reward per decision over trailing periods."""
    period, rows = facts.period, []
    for last in range(min(2, facts.calendar.count - 1), facts.calendar.count):
        recent = (period <= last) & (period > last - RECENT)
        for arm, mask in _arms(facts):
            row = matched.row(mask & recent)
            if row["p"] is not None:
                rows.append({"t": facts.calendar.ms(last), "arm": arm, **row})
    return rows


def per_action(facts: Facts, matched: Matched) -> list[dict[str, Any]]:
    """Reward per decision of each action, as the bandit shows it and on the holdout."""
    rows = []
    for name in facts.actions[:ACTIONS]:
        code = _code(facts, name)
        for arm, mask in _arms(facts):
            one = _earned(facts.table.select(mask & (facts.table.action == code)), name)
            if one is not None:
                value = around(one.value, one.error, matched.least)
                rows.append({"action": name, "arm": arm, **value, "n": one.decisions})
    return rows


def _code(facts: Facts, name: str) -> int:
    return [str(one) for one in facts.table.actions].index(name)


def share(facts: Facts) -> list[dict[str, Any]]:
    """Share of the bandit's decisions by period; the rarest actions together."""
    own, calendar = facts.own, facts.calendar
    made, action = facts.table.made[own], facts.table.action[own]
    total = calendar.counts(made)
    if total[-1] < BEGUN * np.median(total):  # the last period has hardly begun
        total[-1] = 0
    shown = facts.actions[:ACTIONS]
    rows = []
    left = np.ones(calendar.count)
    for name in shown:
        here = calendar.counts(made[action == _code(facts, name)])
        part = np.divide(here, total, out=np.zeros_like(here), where=total > 0)
        left -= part
        rows += _shares(facts, name, part, total)
    if len(facts.actions) > ACTIONS:
        rows += _shares(facts, "others", np.maximum(left, 0.0), total)
    return rows


def _shares(facts: Facts, name: str, part: Any, total: Any) -> list[dict[str, Any]]:
    return [
        {"t": facts.calendar.ms(n), "action": name, "share": short(float(part[n]), 4)}
        for n in range(facts.calendar.count)
        if total[n]
    ]


def segments(facts: Facts) -> list[dict[str, Any]]:
    """Who was shown what lately, by context columns that are 0 or 1."""
    recent = np.flatnonzero(facts.own & (facts.period >= facts.calendar.recent))
    if not len(recent):
        return []
    some = recent[np.unique(np.linspace(0, len(recent) - 1, RECENT_REQUESTS).astype(int))]
    table = facts.table.select(some)
    contexts: dict[int, Mapping[str, Any]] = {}
    for line, data in read_requests(facts.evaluation.journal, table):
        context = KeptRequest.read(data).context
        if isinstance(context, Mapping):
            contexts[line] = context
    columns = _binary(list(contexts.values()))
    if not columns:
        return []
    counts: dict[tuple[bool, ...], dict[str, int]] = {}
    for line, context in contexts.items():
        key = tuple(bool(context[name]) for name in columns)
        action = str(table.actions[table.action[line]])
        here = counts.setdefault(key, {})
        here[action] = here.get(action, 0) + 1
    rows = []
    for key in sorted(counts, reverse=True):
        said = [name if yes else f"not {name}" for name, yes in zip(columns, key, strict=True)]
        total = sum(counts[key].values())
        rows += [
            {
                "segment": ", ".join(said),
                "action": name,
                "share": short(counts[key].get(name, 0) / total, 4),
                "n": counts[key].get(name, 0),
            }
            for name in facts.actions[:ACTIONS]
        ]
    return rows


def _binary(contexts: list[Mapping[str, Any]]) -> list[str]:
    """Columns that all contexts have and that are both 0 and 1, those split most evenly first."""
    if not contexts:
        return []
    found = []
    for name in contexts[0]:
        values = [context.get(name) for context in contexts]
        if all(isinstance(one, bool | int | float) and one in (0, 1) for one in values):
            part = sum(map(bool, values)) / len(values)
            if 0.02 <= part <= 0.98:
                found.append((abs(part - 0.5), name))
    return [name for _, name in sorted(found)[:COLUMNS]]
