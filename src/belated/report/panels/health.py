"""The state of the bandit, for the person on call."""

from __future__ import annotations

from typing import Any

from belated.core.times import as_microseconds
from belated.decider.actions import states_at
from belated.report.facts import DAY, MINUTE, Facts, short
from belated.report.html import around, element
from belated.report.text import Data, percent, several, span, whole
from belated.report.vega import TimeAxis, gaps

#: CSS classes of the label, the value and the note.
PARTS = ("lab", "hv", "note")
#: Minimum number of values of a field for showing shares.
MIN_VALUES = 100


def collect(facts: Facts) -> dict[str, Any]:
    """Collect the state of the bandit and the times of the last events."""
    as_of, watched, table = facts.table.as_of, facts.watched, facts.table
    modes, changes = watched.modes, watched.actions
    if facts.log.until is None:  # includes changes in trimmed records
        changes = facts.log.action_changes
    figures: dict[str, Any] = {
        "closed_actions": [
            action.to_dict() | {"t": as_microseconds(action.since) // 1000}
            for action in states_at(changes, as_of)
            if action.state != "open"
        ],
        "mode": modes[-1]["mode"] if modes else "learn",
        "records": watched.records,
        "decisions_last_day": int((table.made > as_of - DAY).sum()),
    }
    if (chosen := watched.chosen) is not None:
        author, why, t = chosen.actor, chosen.reason, chosen.at_us // 1000
        figures["chosen"] = {"version": chosen.version, "t": t, "actor": author, "reason": why}
    if len(table):
        figures["last_decision"] = short((as_of - int(table.made.max())) / MINUTE, 3)
    if watched.rewards:
        figures["last_reward"] = short((as_of - max(watched.rewards)) / MINUTE, 3)
    if facts.estimate is not None:
        figures["fit_n"] = facts.estimate.n
        figures["converged"] = bool(facts.estimate.converged)
    # Only the most recent decisions are encoded again.
    shares = [
        (count / sum(counts.values()), name, status)
        for name, counts in getattr(facts.watched.encoder.features, "field_counts", {}).items()
        for status, count in counts.items()
        if count and status != "ok" and sum(counts.values()) >= MIN_VALUES
    ]
    if shares:
        share, name, status = max(shares)
        figures["field"] = {"name": name, "status": status, "share": short(share, 3)}
    return figures


def card(data: Data) -> str:
    """Return the card as HTML."""
    health, modes = data["health"], data["modes"]
    switched = "never changed" if not modes else _switched(data, modes[-1])
    items = [(health["mode"] == "learn", "Mode", health["mode"], switched)]
    if closed := health["closed_actions"]:
        names = ", ".join(f"{action['action']} ({action['state']})" for action in closed)
        notes = [f"{action['action']} {_switched(data, action)}" for action in closed]
        items.append((False, "Actions", f"never chosen: {names}", "; ".join(notes)))
    if "chosen" in health:
        chosen = health["chosen"]
        value = f"version {chosen['version']}, not the latest"
        items.append((False, "Decides with", value, _switched(data, chosen)))
    lately = {
        "decision": health["decisions_last_day"],
        "reward": data["headline"]["rewards_last_day"],
    }
    for kind, count in lately.items():
        if f"last_{kind}" in health:
            note = f"{several(count, kind)} in the last 24 h"
            items.append((True, f"Last {kind}", _ago(health[f"last_{kind}"]), note))
    if "converged" in health:
        state = "converged" if health["converged"] else "not converged"
        fit = f"fit of {whole(health['fit_n'])} outcomes"
        items.append((health["converged"], "Model", state, fit))
    calibration = data["calibration"]
    if calibration:
        fine = not any(item["kind"] == "calibration" for item in data["attention"])
        items.append(
            (fine, "Calibration", f"{1 + calibration['bias']:.2g} ×", "predicted / observed")
        )
    late = gaps(data)
    status, note = "no outage", "judged by gaps between rewards"
    if late:
        status = several(len(late), "outage")
        note = f"last: {span(late[-1]['hours'] / 24)} from {_when(data, late[-1]['from'])}"
    items.append((not late, "Reward feed", status, note))
    care = {row["kind"]: row["n"] for row in data["quality"]["rows"]}
    refused = sum(care[kind] for kind in ("conflict", "unmatched", "expired", "invalid"))
    alarmed = any(item["panel"] == "quality" for item in data["attention"])
    note = "reward messages: contradicted, unmatched, expired or invalid"
    items.append((not alarmed, "Not counted", whole(refused), note))
    if "field" in health:
        most = health["field"]
        value = f"{percent(most['share'])} {most['status']}"
        items.append((True, "Fields", value, f"{most['name']}, the highest share of all fields"))
    items.append((True, "Journal", whole(health["records"]), "records"))
    cells = ""
    for fine, *texts in items:
        inner = "".join(
            element("div", text, cls=kind) for text, kind in zip(texts, PARTS, strict=True)
        )
        state = "fine" if fine else "needs attention"
        mark = element("span", "", cls="dot", role="img", aria_label=state)
        cells += around("div", f"{mark}<div>{inner}</div>", cls="hl" if fine else "hl warn")
    return around("div", cells, cls="health", id="health")


def _switched(data: Data, change: dict[str, Any]) -> str:
    author = f" by {change['actor']}" if change["actor"] else ""
    return f"since {_when(data, change['t'])}{author}: {change['reason'] or 'no reason given'}"


def _ago(minutes: float) -> str:
    return "now" if minutes < 1 else f"{span(minutes / 1440)} ago"


def _when(data: Data, ms: int) -> str:
    return TimeAxis(data).name(ms)
