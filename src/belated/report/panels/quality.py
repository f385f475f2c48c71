"""Reward messages that needed care."""

from __future__ import annotations

from html import escape
from typing import Any

import numpy as np

from belated.advice.issues import KINDS as ISSUES, issues_of
from belated.report.facts import Facts
from belated.report.html import around, bars, element
from belated.report.panel import Said
from belated.report.text import Data, percent, several, whole

#: Issues of values, not of rewards.
OF_FIELDS = ("clipped", "unknown")
#: What each kind of event is called, and what became of it.
KINDS = {
    "duplicate": ("Told twice", "the same reward again; counted once"),
    "late": ("After the window", "learned all the same"),
    "revised": ("Corrected", "a further part or a higher revision"),
    "voided": ("Voided", "decisions never carried out"),
    **{
        kind: (issue.title, f"{issue.what}: {issue.remedy}")
        for kind, issue in ISSUES.items()
        if kind not in OF_FIELDS
    },
}


def collect(facts: Facts) -> dict[str, Any]:
    """Events that needed care, by kind and period."""
    rows = []
    for kind in KINDS:
        times = np.array(facts.watched.care.get(kind, ()), dtype=np.int64)
        daily = facts.calendar.counts(times).astype(int).tolist() if len(times) else []
        rows.append({"kind": kind, "n": len(times), "daily": daily})
    fields = [
        {"kind": one.name, "field": one.field, "n": one.count, "example": one.example}
        for one in issues_of(facts.fields)
    ]
    return {"rows": rows, "rewards_told": len(facts.watched.rewards), "fields": fields}


def words(data: Data) -> Said:
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


def card(data: Data) -> str:
    """The card of what needed care."""
    said, told = words(data), max(data["quality"]["rewards_told"], 1)
    lines = []
    for row in data["quality"]["rows"]:
        if not row["n"]:
            continue
        name, what = KINDS[row["kind"]]
        head = f'<th scope="row">{escape(name)}<small>{escape(what)}</small></th>'
        counts = element("td", whole(row["n"]), cls="n")
        share = element("td", percent(row["n"] / told), cls="n")
        lines.append(f'<tr>{head}{counts}{share}<td class="sp">{bars(row["daily"])}</td></tr>')
    for row in data["quality"]["fields"]:
        issue = ISSUES[row["kind"]]
        name = f"{row['field']}: {issue.title.lower()}"
        small = f"such as {row['example']}: {issue.remedy}"
        head = f'<th scope="row">{escape(name)}<small>{escape(small)}</small></th>'
        lines.append(f"<tr>{head}{element('td', whole(row['n']), cls='n')}<td></td><td></td></tr>")
    table = f'<table class="q"><tbody>{"".join(lines)}</tbody></table>' if lines else ""
    inner = element("h3", said.title) + element("p", said.definition, cls="sub") + table
    return around("div", inner, cls="card full", id="quality")
