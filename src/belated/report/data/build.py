"""From a journal to the data of a report: plain, in milliseconds, and as large as it is long."""

from __future__ import annotations

from typing import Any

from belated.advice import Evidence
from belated.estimators import Estimate
from belated.evaluation.journal import JournalEvaluation
from belated.exceptions import InvalidInput
from belated.report.data import earning, running, trust, waiting
from belated.report.data.attention import attention
from belated.report.data.auditor import audit
from belated.report.data.calendar import DAY
from belated.report.data.facts import Facts
from belated.report.data.matched import Matched
from belated.report.data.numbers import short

SCHEMA = "belated-report/1"


def report_data(
    evaluation: JournalEvaluation,
    estimate: Estimate | None = None,
    evidence: Evidence | None = None,
) -> dict[str, Any]:
    """Return the data of a report; a panel that has none is None or empty.

    Args:
        evaluation: of the journal.
        estimate: what the bandit has learned, if that is known.
        evidence: what its checks look at, if that is known.

    Raises:
        InvalidInput: nothing was decided yet.
    """
    facts = Facts.read(evaluation, estimate, evidence)
    if not len(facts.table):
        message = f"the journal of {evaluation.journal.bandit!r} has no decisions"
        raise InvalidInput(f"{message}: decide something first", 0)
    matched, auditor = Matched(facts), audit(facts)
    data: dict[str, Any] = {"schema": SCHEMA, **_identity(facts)}
    data["headline"] = earning.headline(facts, matched)
    data |= {
        "earn": earning.earn(facts, matched),
        "per_action": earning.per_action(facts, matched),
        "share": earning.share(facts),
        "segments": earning.segments(facts),
        "delay": waiting.delay(facts),
        "forecast": waiting.to_come(facts),
        "cohorts": waiting.cohorts(facts, matched),
        "pending": waiting.pending(facts),
        "calibration": trust.calibration(facts, matched),
        "foregone": trust.foregone(facts, auditor),
        "explore": trust.explore(facts),
        "coefficients": trust.coefficients(facts, auditor),
        "feed": running.feed(facts),
        "quality": running.quality(facts),
        "modes": facts.watched.modes[-50:],
        "health": running.health(facts),
    }
    data["headline"]["pending"] = waiting.pending_now(facts)
    data["headline"]["spark"] = _sparks(facts, matched, data)
    data["attention"] = attention(facts, data)
    return data


def _identity(facts: Facts) -> dict[str, Any]:
    table, family = facts.table, facts.evaluation.family
    configured = facts.evaluation.journal.configured()
    said = {} if configured is None else configured.settings
    window, retention = table.rewards.window_us, table.retention
    return {
        "bandit": facts.evaluation.journal.bandit,
        "policy": said.get("policy", "").partition("(")[0],
        "family": type(family).__name__,
        "dim": facts.rows.shape[1] if len(facts.rows) else None,
        "actions": facts.actions,
        "from": facts.calendar.start // 1000,
        "as_of": table.as_of // 1000,
        "period": facts.calendar.name,
        "period_ms": facts.calendar.step // 1000,
        "rewards": {
            "kind": type(table.rewards).__name__,
            "default": table.rewards.default if table.conversions else None,
            "window_days": None if window is None else short(window / DAY),
            "retention_days": None if retention is None else short(retention / DAY),
            "shares": family.support.lower == 0.0 and family.support.upper == 1.0,
        },
    }


def _sparks(facts: Facts, matched: Matched, data: dict[str, Any]) -> dict[str, list[Any]]:
    """Small lines beside the numbers on top."""
    calendar, table, period = facts.calendar, facts.table, facts.period
    trailing = [
        short(matched.ratio(facts.own & (period <= n) & (period > n - 3))[0])
        for n in range(calendar.count)
    ]
    left = data["foregone"]
    return {
        "decisions": calendar.counts(table.made).astype(int).tolist(),
        "rewards": calendar.counts(table.rewarded[table.arrived]).astype(int).tolist(),
        "pending": [row["n"] for row in data["pending"]][::4],
        "per_decision": trailing,
        "foregone": [] if left is None else [row["p"] for row in left["days"]],
    }
