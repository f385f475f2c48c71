"""What needs attention: what a report shows first, and what a service gives alarm of."""

from __future__ import annotations

from typing import Any

import numpy as np

from belated.evaluation import delay_depends, silence, slowing
from belated.exceptions import BelatedError
from belated.report.data.calendar import RECENT
from belated.report.data.facts import Facts

#: Standard errors beyond which predictions are off, and by how much they may be off all the same.
ERRORS, OFF = 3.0, 0.1
#: Share of reward messages that needed care, beyond which somebody should look.
CARE = {"duplicate": 0.2, "conflict": 0.01, "unmatched": 0.05, "expired": 0.05, "invalid": 0.01}
#: Chance below which delays are taken to depend on rewards.
CHANCE = 0.001
#: Of so many recent decisions or more, the share of one action beyond which nothing is explored.
DECISIONS, ALONE = 200, 0.99
#: All that may need attention.
KINDS = (
    "silence", "slowed", "calibration", "outage", *CARE, "exploration", "mode", "fit", "dependence",
)  # fmt: skip


def attention(facts: Facts, data: dict[str, Any]) -> list[dict[str, Any]]:
    """What needs attention, each with the panel that shows it and its numbers."""
    found: list[dict[str, Any]] = []
    if (quiet := _silence(facts) or _slowed(facts)) is not None:
        found.append(quiet)
    off = data.get("calibration")
    if off and abs(off["bias"]) > max(OFF, ERRORS * off["bias_se"]):
        found.append({"panel": "calibration", "kind": "calibration", "ratio": 1.0 + off["bias"]})
    for outage in (data.get("feed") or {}).get("outages", ())[-3:]:
        found.append({"panel": "feed", "kind": "outage", **outage})
    told = data["quality"]["rewards_told"]
    for row in data["quality"]["rows"]:
        limit = CARE.get(row["kind"])
        if limit is not None and row["n"] >= 10 and row["n"] > limit * told:
            share = row["n"] / told
            found.append({"panel": "quality", "kind": row["kind"], "n": row["n"], "share": share})
    if (alone := _alone(facts)) is not None:
        found.append(alone)
    if (mode := data["health"]["mode"]) != "learn":
        found.append({"panel": "health", "kind": "mode", "mode": mode})
    if data["health"].get("converged") is False:
        found.append({"panel": "health", "kind": "fit"})
    if (chance := _dependence(facts)) is not None and chance < CHANCE:
        found.append({"panel": "delay", "kind": "dependence", "chance": chance})
    return found


def _silence(facts: Facts) -> dict[str, Any] | None:
    try:
        quiet = silence(facts.table)
    except BelatedError:  # too few rewards to say
        return None
    if not quiet.stopped:
        return None
    hours, since = quiet.seconds / 3600, round(1000 * quiet.since.timestamp())
    numbers = {"hours": hours, "since": since, "expected": quiet.expected}
    return {"panel": "feed", "kind": "silence", **numbers}


def _slowed(facts: Facts) -> dict[str, Any] | None:
    try:
        found = slowing(facts.table)
    except BelatedError:
        return None
    if not found.slowed:
        return None
    since = round(1000 * found.since.timestamp())
    numbers = {"since": since, "came": found.came, "expected": found.expected}
    return {"panel": "feed", "kind": "slowed", **numbers}


def _alone(facts: Facts) -> dict[str, Any] | None:
    """One action has nearly all recent decisions: of the others nothing is learned any more."""
    recent = facts.own & (facts.period >= facts.calendar.count - RECENT)
    if recent.sum() < DECISIONS or len(facts.actions) < 2:
        return None
    counts = np.bincount(facts.table.action[recent])
    share = float(counts.max() / counts.sum())
    if share < ALONE:
        return None
    name = str(facts.table.actions[int(counts.argmax())])
    return {"panel": "explore", "kind": "exploration", "action": name, "share": share}


def _dependence(facts: Facts) -> float | None:
    if facts.table.conversions:  # cannot be seen where only conversions are reported
        return None
    try:
        return float(delay_depends(facts.table, "reward").p)
    except BelatedError:
        return None
