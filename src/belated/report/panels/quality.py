"""Reward messages that needed care."""

from __future__ import annotations

from html import escape
from typing import Any

import numpy as np

from belated.report.facts import Facts
from belated.report.html import around, bars, element
from belated.report.panel import Said
from belated.report.text import Data, percent, several, whole

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


def collect(facts: Facts) -> dict[str, Any]:
    """Events that needed care, by kind and period."""
    rows = []
    for kind in KINDS:
        times = np.array(facts.watched.care.get(kind, ()), dtype=np.int64)
        daily = facts.calendar.counts(times).astype(int).tolist() if len(times) else []
        rows.append({"kind": kind, "n": len(times), "daily": daily})
    return {"rows": rows, "rewards_told": len(facts.watched.rewards)}


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
    table = f'<table class="q"><tbody>{"".join(lines)}</tbody></table>' if lines else ""
    inner = element("h3", said.title) + element("p", said.definition, cls="sub") + table
    return around("div", inner, cls="card full", id="quality")
