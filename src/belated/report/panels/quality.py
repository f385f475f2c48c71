"""Issues with reward messages and field values."""

from __future__ import annotations

from html import escape
from typing import Any

import numpy as np

from belated.advice.issues import KINDS as ISSUES, issues_of
from belated.report.facts import Facts
from belated.report.html import around, bars, element
from belated.report.panel import Said
from belated.report.text import Data, percent, several, whole

#: Issues with field values, not with rewards.
OF_FIELDS = ("clipped", "unknown")
#: Title and explanation of each kind of event.
KINDS = {
    "duplicate": ("Duplicate", "the same reward again; counted once"),
    "late": ("After the window", "still counted, and used for learning"),
    "revised": ("Corrected", "another part or a higher revision"),
    "voided": ("Voided", "decisions that were not carried out"),
    **{
        kind: (issue.title, f"{issue.what}: {issue.remedy}")
        for kind, issue in ISSUES.items()
        if kind not in OF_FIELDS
    },
}


def collect(facts: Facts) -> dict[str, Any]:
    """Count events with issues, by kind and period."""
    watched, rows = facts.watched, []
    recorded = np.array(watched.rewards, dtype=np.int64)
    for kind in KINDS:
        times = recorded[watched.care.get(kind, [])]
        if kind == "voided":
            times = np.array(watched.voids, dtype=np.int64)
        daily = facts.calendar.counts(times).astype(int).tolist() if len(times) else []
        rows.append({"kind": kind, "n": len(times), "daily": daily})
    fields = [
        {"kind": issue.name, "field": issue.field, "n": issue.count, "example": issue.example}
        for issue in issues_of(facts.fields)
    ]
    affected = len({number for numbers in watched.care.values() for number in numbers})
    return {
        "rows": rows,
        "reward_messages": len(recorded),
        "affected": affected,
        "fields": fields,
    }


def words(data: Data) -> Said:
    """Return the title, which states the share of messages with an issue, and the caption."""
    quality = data["quality"]
    messages = several(quality["reward_messages"], "reward message")
    if not quality["reward_messages"]:
        title = "No reward message has arrived yet"
    elif not quality["affected"]:
        title = f"None of {messages} had an issue"
    else:
        rows = [row for row in quality["rows"] if row["n"] and row["kind"] != "voided"]
        top = sorted(rows, key=lambda row: -row["n"])[:2]
        names = [KINDS[row["kind"]][0].lower() for row in top]
        share = percent(quality["affected"] / quality["reward_messages"])
        title = f"{share} of {messages} had an issue, most often “{'” and “'.join(names)}”"
    return Said(
        title,
        f"Number of messages, share of all reward messages, and messages per {data['period']}.",
    )


def card(data: Data) -> str:
    """Return the card as HTML, with one line per kind of issue."""
    summary, total = words(data), data["quality"]["reward_messages"]
    partial = data["partial"] is not None
    lines = []
    for row in data["quality"]["rows"]:
        if not row["n"]:
            continue
        name, meaning = KINDS[row["kind"]]
        head = f'<th scope="row">{escape(name)}<small>{escape(meaning)}</small></th>'
        counts = element("td", whole(row["n"]), cls="n")
        # Decisions are voided, not rewards.
        share = "" if row["kind"] == "voided" else percent(row["n"] / total)
        picture = bars(row["daily"], partial)
        lines.append(
            f'<tr>{head}{counts}{element("td", share, cls="n")}<td class="sp">{picture}</td></tr>'
        )
    for row in data["quality"]["fields"]:
        issue = ISSUES[row["kind"]]
        name = f"{row['field']}: {issue.title.lower()}"
        small = f"such as {row['example']}: {issue.remedy}"
        head = f'<th scope="row">{escape(name)}<small>{escape(small)}</small></th>'
        lines.append(f"<tr>{head}{element('td', whole(row['n']), cls='n')}<td></td><td></td></tr>")
    table = f'<table class="q"><tbody>{"".join(lines)}</tbody></table>' if lines else ""
    inner = element("h3", summary.title) + element("p", summary.definition, cls="sub") + table
    return around("div", inner, cls="card full", id="quality")
