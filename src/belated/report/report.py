"""What a bandit earns, on one page."""

from __future__ import annotations

from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import Any

import msgspec

from belated.advice import Evidence
from belated.core.results import Result
from belated.evaluation.log import DecisionLog
from belated.exceptions import BelatedError, InvalidInput, extra
from belated.expressions import as_whole_policy
from belated.fold.evidence import evidence_of
from belated.model.estimators import Estimate
from belated.report.facts import DAY, Facts, short
from belated.report.page import document
from belated.report.panels import PANELS, attention, headline, health, quality, specifications
from belated.report.panels.feed import LAG
from belated.report.vega import LIGHT

SCHEMA = "belated-report/1"
#: Size of a picture, in pixels; and of a page in a notebook.
WIDTH, SCALE, FRAME = 620, 2, 900


@dataclass(frozen=True, eq=False, repr=False)
class Report(Result):
    """What a bandit earns, what is still to come, and whether all is well.

    Attributes:
        data: all numbers, as ``belated-report/1``.
    """

    data: dict[str, Any]

    @classmethod
    def of(
        cls,
        log: DecisionLog,
        estimate: Estimate | None = None,
        evidence: Evidence | None = None,
    ) -> Report:
        """The report of a log.

        Args:
            log: of a journal, or of another system.
            estimate: what the bandit has learned; without it the coefficients are not shown.
            evidence: what its checks look at; without it only the others are listed.

        Raises:
            InvalidInput: nothing was decided yet.
        """
        facts = Facts.read(log, estimate, evidence)
        if not len(facts.table):
            message = f"the journal of {log.name!r} has no decisions"
            raise InvalidInput(f"{message}: decide something first", 0)
        data: dict[str, Any] = {"schema": SCHEMA, **_identity(facts)}
        data["headline"] = headline.collect(facts)
        data |= {panel.name: panel.collect(facts) for panel in PANELS if panel is not LAG}
        data["quality"] = quality.collect(facts)
        data["modes"] = facts.watched.modes[-50:]
        data["health"] = health.collect(facts)
        data["headline"] |= headline.complete(facts, data)
        data["attention"] = attention.collect(facts, data)
        return cls(data)

    def to_dict(self) -> dict[str, Any]:
        """Return all numbers."""
        return self.data

    def html(self) -> str:
        """Return one HTML file, which loads nothing."""
        return document(self.data)

    def save(self, path: str | Path) -> None:
        """Write the report: ``.html`` the page, ``.json`` its data.

        Raises:
            InvalidInput: the name ends in neither.
        """
        file = Path(path)
        if file.suffix == ".html":
            file.write_text(self.html(), encoding="utf-8")
        elif file.suffix == ".json":
            file.write_bytes(msgspec.json.encode(self.data))
        else:
            message = f"{str(file)!r} is neither .html nor .json"
            raise InvalidInput(f"{message}: give it one of these endings", path)

    def save_charts(self, folder: str | Path) -> list[Path]:
        """Write each chart as a PNG file, named for its panel; returns the files.

        Raises:
            MissingExtra: the extra ``report`` is not installed.
        """
        with extra("a chart as PNG", "report"):
            import vl_convert
        target = Path(folder)
        target.mkdir(parents=True, exist_ok=True)
        found = []
        for name, spec in specifications(self.data, LIGHT).items():
            sized = spec | {"width": WIDTH, "background": LIGHT["card"], "autosize": "pad"}
            picture = vl_convert.vegalite_to_png(sized, vl_version="5.21", scale=SCALE)
            file = target / f"{name}.png"
            file.write_bytes(picture)
            found.append(file)
        return found

    def __repr__(self) -> str:
        head = self.data["headline"]
        return (
            f"<Report of {self.data['bandit']!r}: {head['decisions']:,} decisions,"
            f" {head['rewards']:,} rewards>"
        )

    def _repr_html_(self) -> str:
        page = escape(self.html())
        return f'<iframe srcdoc="{page}" width="100%" height="{FRAME}" style="border:0"></iframe>'


def learned(log: DecisionLog) -> tuple[Estimate | None, Evidence | None]:
    """Return what the bandit of a journal has learned, and the evidence for its checks.

    Both are None if the journal does not describe the policy.
    """
    try:
        # Only the absence of a prior can be written as text.
        policy = as_whole_policy(log.settings["policy"].replace("prior=None, ", ""))
    except (BelatedError, KeyError):  # one of the user's own
        return None, None
    fold = log.fold(policy, log.until)
    fold.load(log.journal)
    fold.catch_up(log.journal)
    return fold.learner.estimate, evidence_of(fold)


def _identity(facts: Facts) -> dict[str, Any]:
    table, family, said = facts.table, facts.log.family, facts.log.settings
    window, retention = table.rewards.window_us, table.retention
    return {
        "bandit": facts.log.name,
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
