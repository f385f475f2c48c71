"""The cards of a report: message, definition, chart, numbers."""

from __future__ import annotations

from html import escape
from typing import Any

from belated.report.charts import has_data
from belated.report.charts.earning import shown_actions
from belated.report.charts.parts import TimeAxis
from belated.report.page import words
from belated.report.page.pieces import around, bars, element, numbers
from belated.report.page.text import Data, percent, span, whole

_ENDS = {"lo": "from", "hi": "to"}
_BAND = {"p": "value", **_ENDS}
#: Columns of the tables; ``when`` is the time in words.
COLUMNS = {
    "earn": {"when": "up to", "arm": "decisions of", **_BAND, "n": "decisions"},
    "per_action": {"action": "action", "arm": "decisions of", **_BAND, "n": "decisions"},
    "share": {"when": "at", "action": "action", "share": "share"},
    "segments": {"segment": "segment", "action": "action", "share": "share", "n": "decisions"},
    "delay": {"d": "days", "F": "share in", **_ENDS},
    "forecast": {"when": "at", "n": "rewards", "by_then": "in all by then", **_ENDS},
    "cohorts": {"when": "decided", "age": "age, days", "share": "share rewarded"},
    "pending": {"when": "at", "n": "pending"},
    "calibration": {
        "predicted": "predicted", "observed": "observed", **_ENDS, "n": "decisions",
    },
    "foregone": {"when": "at", **_BAND},
    "explore": {"when": "at", "what": "actions", "n": "effective number"},
    "coefficients": {
        "action": "action", "name": "feature", "theta": "in use", **_ENDS, "audit": "age-matched",
    },
    "feed": {"when": "at", "n": "rewards"},
    "lag": {"when": "at", "p50": "median, minutes", "p99": "99 %, minutes"},
}  # fmt: skip
#: Where the rows of a panel are, if they are not the panel itself.
_INSIDE = {
    "delay": ("delay", "curve"),
    "cohorts": ("cohorts", "lines"),
    "calibration": ("calibration", "bins"),
    "foregone": ("foregone", "days"),
    "feed": ("feed", "bins"),
    "lag": ("feed", "lag"),
}


def rows_of(data: Data, panel: str) -> list[dict[str, Any]]:
    """The rows of a panel, with their times in words."""
    if panel == "forecast":
        rows = data["forecast"]["past"] + data["forecast"]["next"]
    elif panel in _INSIDE:
        outer, inner = _INSIDE[panel]
        rows = data[outer][inner]
    else:
        rows = data[panel]
    field = "cohort" if panel == "cohorts" else "t"
    return TimeAxis(data).named(rows, field) if rows and field in rows[0] else rows


def card(data: Data, panel: str) -> str:
    """The card of a panel, or what is missing for one."""
    if not has_data(data, panel):
        title = element("h3", panel.replace("_", " ").capitalize())
        return around(
            "div",
            title + element("p", words.missing(data, panel), cls="none"),
            cls="card",
            id=panel,
        )
    said = words.PANELS[panel](data)
    inner = (
        element("h3", said.title) + element("p", said.definition, cls="sub") + _legend(data, panel)
    )
    inner += (
        f'<div class="chart" id="chart-{panel}" role="img" aria-label="{escape(said.title)}"></div>'
    )
    if said.why:
        inner += element("p", said.why, cls="why")
    return around(
        "div", inner + numbers(rows_of(data, panel), COLUMNS[panel]), cls="card", id=panel
    )


def _legend(data: Data, panel: str) -> str:
    items: list[tuple[str, str, str]] = []
    if panel == "share":
        items = [(colour[1:], name, percent(last, 0)) for name, colour, last in shown_actions(data)]
    elif panel == "per_action" and any(row["arm"] == "Holdout" for row in data["per_action"]):
        items = [("accent", "where the bandit shows it", ""), ("ring", "on the holdout", "")]
    elif panel == "cohorts":
        items = [("accent", f"one line per {data['period']}, newer is stronger", "")]
        if (data.get("feed") or {}).get("outages"):
            items.append(("warning", "waited for the feed", ""))
    elif panel == "coefficients":
        items = [("accent", "model in use", ""), ("dia", "fit of all decisions", "")]
    if not items:
        return ""
    lines = "".join(
        f'<li><i class="{kind}"></i>{element("span", name)} {element("b", more)}</li>'
        for kind, name, more in items
    )
    return f'<ul class="leg">{lines}</ul>'


def quality(data: Data) -> str:
    """The card of what needed care."""
    said, told = words.quality(data), max(data["quality"]["rewards_told"], 1)
    lines = []
    for row in data["quality"]["rows"]:
        if not row["n"]:
            continue
        name, what = words.KINDS[row["kind"]]
        head = f'<th scope="row">{escape(name)}<small>{escape(what)}</small></th>'
        counts = element("td", whole(row["n"]), cls="n")
        share = element("td", percent(row["n"] / told), cls="n")
        lines.append(f'<tr>{head}{counts}{share}<td class="sp">{bars(row["daily"])}</td></tr>')
    table = f'<table class="q"><tbody>{"".join(lines)}</tbody></table>' if lines else ""
    inner = element("h3", said.title) + element("p", said.definition, cls="sub") + table
    return around("div", inner, cls="card full", id="quality")


def health(data: Data) -> str:
    """What whoever is on call looks at first."""
    found, modes = data["health"], data["modes"]
    switched = "never changed" if not modes else _switched(data, modes[-1])
    items = [(found["mode"] == "learn", "Mode", found["mode"], switched)]
    if "last_decision" in found:
        items.append(
            (
                True,
                "Last decision",
                _ago(found["last_decision"]),
                f"{whole(found['decisions_last_day'])} in 24 hours",
            )
        )
    if "last_reward" in found:
        items.append(
            (
                True,
                "Last reward",
                _ago(found["last_reward"]),
                f"{whole(found['rewards_last_day'])} in 24 hours",
            )
        )
    if "converged" in found:
        state = "converged" if found["converged"] else "not converged"
        items.append(
            (found["converged"], "Model", state, f"fit of {whole(found['fit_n'])} outcomes")
        )
    off = data["calibration"]
    if off:
        fine = not any(one["kind"] == "calibration" for one in data["attention"])
        items.append((fine, "Calibration", f"{1 + off['bias']:.2g} ×", "predicted over observed"))
    gaps = (data["feed"] or {}).get("outages", [])
    said = f"{len(gaps)} outage{'' if len(gaps) == 1 else 's'}" if gaps else "no outage"
    note = (
        f"{span(gaps[-1]['hours'] / 24)} from {_when(data, gaps[-1]['from'])}"
        if gaps
        else "by the gaps between rewards"
    )
    items.append((not gaps, "Reward feed", said, note))
    care = {row["kind"]: row["n"] for row in data["quality"]["rows"]}
    refused = care["conflict"] + care["unmatched"] + care["expired"] + care["invalid"]
    alarmed = any(one["panel"] == "quality" for one in data["attention"])
    items.append(
        (not alarmed, "Not counted", whole(refused), "contradicted, unmatched, expired or invalid")
    )
    items.append((True, "Journal", whole(found["records"]), "records"))
    cells = ""
    for fine, label, value, note in items:
        inner = (
            element("div", label, cls="lab")
            + element("div", value, cls="hv")
            + element("div", note, cls="note")
        )
        mark = element(
            "span", "", cls="dot", role="img", aria_label="fine" if fine else "needs attention"
        )
        cells += around("div", f"{mark}<div>{inner}</div>", cls="hl" if fine else "hl warn")
    return around("div", cells, cls="health", id="health")


def _switched(data: Data, change: dict[str, Any]) -> str:
    by = f" by {change['actor']}" if change["actor"] else ""
    return f"since {_when(data, change['t'])}{by}: {change['reason'] or 'no reason given'}"


def _ago(minutes: float) -> str:
    return "now" if minutes < 1 else f"{span(minutes / 1440)} ago"


def _when(data: Data, ms: int) -> str:
    return TimeAxis(data).name(ms)
