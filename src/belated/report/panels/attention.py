"""Findings that need attention, from all checks; shown at the top of a report."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from belated.advice import CHECKS, Evidence, Overview, advise
from belated.evaluation.silences import silence, slowing
from belated.report.facts import HOUR, Facts, if_known
from belated.report.html import element
from belated.report.text import Data
from belated.report.vega import gaps

#: Minimum number of recent decisions to check exploration.
DECISIONS = 200


def collect(facts: Facts, data: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the findings, each with the name of the panel that shows it."""
    rewards = facts.table.rewards
    seen = facts.evidence or Evidence(
        family=facts.log.family,
        ridge=1.0,
        window=rewards.window_us,
        defaults=rewards.on_timeout == "defaulted",
        now=facts.table.as_of,
    )
    return [
        {
            "panel": CHECKS[advice.name].panel,
            "kind": advice.name,
            "said": advice.said[:1].upper() + advice.said[1:],
            "remedy": advice.remedy[:1].upper() + advice.remedy[1:],
        }
        for advice in advise(replace(seen, overview=_overview(facts, data)))
    ]


def _overview(facts: Facts, data: dict[str, Any]) -> Overview:
    bias, health, quality = data.get("calibration"), data["health"], data["quality"]
    return Overview(
        quiet=_quiet(facts),
        slowing=_slowing(facts),
        outages=[(1000 * gap["from"], int(gap["hours"] * HOUR)) for gap in gaps(data)],
        bias=(bias["bias"], bias["bias_se"]) if bias else None,
        favorite=_favorite(facts),
        mode=health["mode"],
        converged=health.get("converged", True),
        reward_messages=quality["reward_messages"],
        problems={row["kind"]: row["n"] for row in quality["rows"]},
    )


def _quiet(facts: Facts) -> tuple[int, float, bool] | None:
    result = if_known(silence, facts.table)
    return None if result is None else (int(1e6 * result.seconds), result.expected, result.stopped)


def _slowing(facts: Facts) -> tuple[int, int, float] | None:
    result = if_known(slowing, facts.table)
    if result is None or not result.slowed:
        return None
    return int(1e6 * result.since.timestamp()), result.received, result.expected


def _favorite(facts: Facts) -> tuple[str, float]:
    recent = facts.own & (facts.period >= facts.calendar.recent)
    if recent.sum() < DECISIONS or len(facts.actions) < 2:
        return "", 0.0
    counts = np.bincount(facts.table.action[recent])
    action = int(counts.argmax())
    return str(facts.table.actions[action]), float(counts[action] / counts.sum())


def items(data: Data) -> str:
    """Return the list of findings as HTML; empty if there are none."""
    lines = "".join(
        f'<li><a href="#{item["panel"]}"><span class="dot"></span>{element("b", item["said"])} '
        f"{element('span', item['remedy'])}</a></li>"
        for item in data["attention"]
    )
    return f'<ul class="att" aria-label="Needs attention">{lines}</ul>' if lines else ""
